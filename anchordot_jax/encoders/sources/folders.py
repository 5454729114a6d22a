"""Folders of images, with captions in files of the same name beside them."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from anchordot_jax.encoders.images import SUFFIXES
from anchordot_jax.encoders.sources.base import Record, Source, digest_listing
from anchordot_jax.errors import InputError

DC = "{http://purl.org/dc/elements/1.1/}"
RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
KEYWORDS = 12
# What a faulty export left in the keywords of many drawings.
BROKEN = re.compile(r"hash(\(0x[0-9a-f]+\))?")


def image_folder(root: Path, captions: Path | None = None) -> Source:
    """Return the images below a folder, by their path inside it.

    Captions are the lines of `NAME.txt`, or the title and keywords of the drawing
    `NAME.svg`, in the same place below `captions` (or below `root` itself).

    Raises:
        InputError: there are no images.
    """
    paths = sorted(
        (path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES),
        key=lambda path: path.relative_to(root).as_posix(),
    )
    if not paths:
        raise InputError(
            f"{root} holds no image files ({', '.join(SUFFIXES)}); name another folder."
        )
    names = {path.relative_to(root).as_posix(): path for path in paths}
    beside = {name: _beside((captions or root) / name) for name in names}

    def records() -> Iterator[Record]:
        for name, path in names.items():
            texts = _captions(beside[name])
            yield Record(name, {"image": (path,), "text": texts})

    captioned = {f"{name} caption": path for name, path in beside.items() if path}
    digest = digest_listing({**names, **captioned})
    return Source("image folder", str(root), digest, records, len(paths))


def _beside(image: Path) -> Path | None:
    """Return the file of captions that lies beside an image, or would if it did."""
    files = (image.with_name(f"{image.stem}{suffix}") for suffix in (".txt", ".svg"))
    return next((path for path in files if path.is_file()), None)


def _captions(path: Path | None) -> Sequence[str]:
    """Return the captions of a file."""
    if path is None:
        return []
    if path.suffix == ".svg":
        caption = svg_caption(path)
        return [caption] if caption else []
    lines = path.read_text("utf-8", errors="replace").splitlines()
    return [line for line in lines if line.strip()]


def svg_caption(path: Path, further: Sequence[str] = ()) -> str:
    """Return `title: keyword, keyword` of a drawing's metadata, or nothing.

    Title and keywords are in lower case, hyphens and underscores are blanks, and at
    most 12 keywords are taken, those of `further` behind the drawing's own.
    """
    try:
        tree = ET.parse(path)
    except (ET.ParseError, OSError, ValueError):
        return ""
    titles = [_plain(node.text) for node in tree.iter(f"{DC}title")]
    own = [
        node.text
        for subject in tree.iter(f"{DC}subject")
        for node in subject.iter(f"{RDF}li")
    ]
    words = [_plain(word) for word in (*own, *further)]
    title = next((title for title in titles if title), "")
    good = (word for word in words if word and not BROKEN.fullmatch(word))
    kept = list(dict.fromkeys(good))[:KEYWORDS]
    return f"{title}: {', '.join(kept)}" if title and kept else title


def _plain(text: str | None) -> str:
    return " ".join((text or "").lower().replace("-", " ").replace("_", " ").split())
