"""How an item is shown: its text, a thumbnail of its picture, its drawn molecule."""

import base64
import functools
import io
import re
import warnings
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from anchordot_jax.encoders.base import Rejected
from anchordot_jax.encoders.images import decode
from anchordot_jax.encoders.libraries.rdkit import quiet_chem
from anchordot_jax.errors import InputError
from anchordot_jax.extras import needs
from anchordot_jax.fitted.fitted_run import Side
from anchordot_jax.report.blocks import Block, Examples, Item, Text

THUMBNAIL = 160
"""Largest side of a thumbnail, in pixels."""
DRAWING = (170, 130)
TEXT_LENGTH = 160
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp")


class Viewer(NamedTuple):
    """What is known of one side's items beside their embeddings."""

    side: Side
    texts: Mapping[int, str] = {}
    """By row of the side's file."""
    smiles: Mapping[int, str] = {}
    images: Path | None = None
    """Folder of pictures named by id or row number."""

    @property
    def known(self) -> bool:
        """Whether anything is known of the items."""
        return bool(self.texts or self.smiles or self.images)

    def item(self, row: int, *, note: str = "", right: bool = False) -> Item:
        """Return a row of the side's file as a reader can recognise it."""
        return self._item(row, self.side.name(row), note, right)

    def pool_item(self, number: int, *, note: str = "") -> Item:
        """Return an item of the side's pool.

        A pool with a file of its own has no texts and pictures but by its ids.
        """
        name = self.side.pool_name(number)
        if self.side.pool_source is self.side.source:
            return self._item(int(self.side.pool_rows[number]), name, note, False)
        shown = str(name) if self.side.pool_source.ids is not None else f"row {name}"
        return Item(f"{shown} of the pool's file", note=note)

    def _item(self, row: int, name: Any, note: str, right: bool) -> Item:
        smiles = self.smiles.get(row, "")
        text = self.texts.get(row, smiles)
        if len(text) > TEXT_LENGTH:
            text = text[: TEXT_LENGTH - 1].rstrip() + "…"
        shown = str(name) if self.side.source.ids is not None else f"row {name}"
        picture: str | None = ""
        if self.images is not None:
            picture = thumbnail(self.images, str(name))
        elif smiles:
            picture = molecule(smiles)
        return Item(shown, text, picture or "", picture is None, note, right)


def check_images(folder: Path) -> None:
    """Raise InputError unless pictures can be read from the folder."""
    if not folder.is_dir():
        raise InputError(f"The folder of images {folder} does not exist.")
    needs("PIL.Image", extra="images", what="Showing images")


def unread_pictures(shown: Sequence[Examples]) -> list[Block]:
    """Return a line that says how many items' pictures could not be read, if any."""
    examples = [example for block in shown for example in block.examples]
    items = [item for e in examples for item in (e.query, *e.answers)]
    count = len({item.name for item in items if item.unread})
    if not count:
        return []
    return [Text(f"Pictures that could not be read, and are left out: {count}.")]


@functools.lru_cache(maxsize=512)
def thumbnail(folder: Path, name: str) -> str | None:
    """Return an <img> of the picture of a name, or nothing where there is none.

    What is transparent is white.

    None, where there is one that cannot be read.
    """
    path = picture_path(folder, name)
    if path is None:
        return ""
    image = needs("PIL.Image", extra="images", what="Showing images")
    try:
        with warnings.catch_warnings():
            # Pillow warns of pictures so large that they may be an attack.
            warnings.simplefilter("error", image.DecompressionBombWarning)
            small = decode(path)
    except (Rejected, image.DecompressionBombWarning):
        return None
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    out = io.BytesIO()
    small.save(out, "JPEG", quality=80)
    encoded = base64.b64encode(out.getvalue()).decode()
    return (
        f'<img alt="picture of {escape(name)}" width="{small.width}" '
        f'height="{small.height}" src="data:image/jpeg;base64,{encoded}">'
    )


def picture_path(folder: Path, name: str) -> Path | None:
    """Return the file of a name inside the folder, with or without its suffix.

    None where there is none.
    """
    root = folder.resolve()
    for suffix in ("", *SUFFIXES):
        try:
            path = (root / f"{name}{suffix}").resolve()
            # An id is data: it must not lead out of the folder.
            if path.is_relative_to(root) and path.is_file():
                return path
        except (OSError, ValueError):
            # No file can have such a name: too long, or with a NUL.
            return None
    return None


@functools.lru_cache(maxsize=512)
def molecule(smiles: str) -> str:
    """Return the drawing of a SMILES string as <svg>; nothing without RDKit."""
    try:
        drawing = needs("rdkit.Chem.Draw.rdMolDraw2D", extra="molecules", what="")
    except InputError:
        return ""
    parsed = quiet_chem().MolFromSmiles(smiles)
    if parsed is None:
        return ""
    canvas = drawing.MolDraw2DSVG(*DRAWING)
    canvas.drawOptions().clearBackground = False
    drawing.PrepareAndDrawMolecule(canvas, parsed)
    canvas.FinishDrawing()
    text = canvas.GetDrawingText()
    text = re.sub(r"<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    label = f'<svg role="img" aria-label="structure of {escape(smiles)}" '
    return text.replace("<svg ", label, 1).strip()
