"""Clip art as pictures for an encoder: on white, trimmed, centred, 260 x 260.

Commands (Debian's packages hold the drawings, as PNG, and their titles, in SVG):

    apt-get install openclipart-png openclipart-svg
    python experiments/prepare_clipart.py --out clipart --folders animals food tools

writes `clipart/FOLDER/.../NAME.jpg` and, beside each, the caption `NAME.txt`: title and
keywords of the drawing, and the folders it lies in. Drawings without a title, and those
that hold nothing, are left out. The bundled `openclipart.h5` was made of such pictures.
"""

import dataclasses
from pathlib import Path

import tyro
from PIL import Image, ImageChops

from anchordot_jax.encoders.base import Rejected
from anchordot_jax.encoders.images import decode
from anchordot_jax.encoders.sources.folders import svg_caption

SIDE = 260
INNER = 236
WHITE = (255, 255, 255)
# Grey levels by which a pixel must differ from white to belong to the drawing.
FAINT = 8
QUALITY = 95


@dataclasses.dataclass(frozen=True)
class Args:
    """Where the drawings are and where the pictures go."""

    out: Path
    """Folder of the pictures."""
    drawings: Path = Path("/usr/share/openclipart")
    """Folder of `png` and `svg`."""
    folders: tuple[str, ...] = ()
    """Folders of drawings to take; all if none is named."""


def prepare(path: Path) -> Image.Image | None:
    """Return a drawing, on white, trimmed and centred; None if nothing is on it."""
    drawing = decode(path)
    ground = Image.new("RGB", drawing.size, WHITE)
    difference = ImageChops.difference(drawing, ground).convert("L")
    box = difference.point(lambda level: 255 * (level > FAINT)).getbbox()
    if box is None:
        return None
    trimmed = drawing.crop(box)
    scale = INNER / max(trimmed.size)
    width, height = (max(1, round(side * scale)) for side in trimmed.size)
    canvas = Image.new("RGB", (SIDE, SIDE), WHITE)
    fitted = trimmed.resize((width, height), Image.Resampling.LANCZOS)
    canvas.paste(fitted, ((SIDE - width) // 2, (SIDE - height) // 2))
    return canvas


def main(args: Args) -> None:
    """Write the pictures and their captions."""
    root = args.drawings / "png"
    chosen = [root / folder for folder in args.folders] or [root]
    written = 0
    for path in sorted(path for folder in chosen for path in folder.rglob("*.png")):
        name = path.relative_to(root)
        drawing = args.drawings / "svg" / name.with_suffix(".svg")
        caption = svg_caption(drawing, name.parent.parts)
        try:
            picture = prepare(path) if caption else None
        except Rejected as rejected:
            print(f"{name}: {rejected}")
            continue
        if picture is None:
            continue
        target = args.out / name.with_suffix(".jpg")
        target.parent.mkdir(parents=True, exist_ok=True)
        picture.save(target, quality=QUALITY)
        target.with_suffix(".txt").write_text(f"{caption}\n", encoding="utf-8")
        written += 1
    print(f"{args.out}: {written} pictures with captions")


if __name__ == "__main__":
    main(tyro.cli(Args))
