"""Folders of images, with captions in files of the same name beside them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from anchordot_jax.encoders.images import SUFFIXES
from anchordot_jax.encoders.sources.base import Record, Source, digest_listing
from anchordot_jax.errors import InputError

DC = "{http://purl.org/dc/elements/1.1/}"
RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
KEYWORDS = 12


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
    beside = captions or root

    def records() -> Iterator[Record]:
        for path in paths:
            name = path.relative_to(root)
            texts = _captions(beside / name)
            yield Record(name.as_posix(), {"image": (path,), "text": texts})

    return Source(
        "image folder", str(root), digest_listing(root, paths), records, len(paths)
    )


def _captions(image: Path) -> Sequence[str]:
    """Return the captions that lie beside an image, or would if it lay there."""
    lines = image.with_name(f"{image.stem}.txt")
    if lines.is_file():
        return [
            line
            for line in lines.read_text("utf-8", errors="replace").splitlines()
            if line.strip()
        ]
    drawing = image.with_name(f"{image.stem}.svg")
    caption = svg_caption(drawing) if drawing.is_file() else ""
    return [caption] if caption else []


def svg_caption(path: Path) -> str:
    """Return `title: keyword, keyword` of a drawing's metadata, or nothing.

    Title and keywords are in lower case, hyphens and underscores are blanks, and at
    most 12 keywords are taken.
    """
    try:
        tree = ET.parse(path)
    except (ET.ParseError, OSError, ValueError):
        return ""
    titles = [_plain(node.text) for node in tree.iter(f"{DC}title")]
    words = [
        _plain(node.text)
        for subject in tree.iter(f"{DC}subject")
        for node in subject.iter(f"{RDF}li")
    ]
    title = next((title for title in titles if title), "")
    kept = list(dict.fromkeys(word for word in words if word))[:KEYWORDS]
    return f"{title}: {', '.join(kept)}" if title and kept else title


def _plain(text: str | None) -> str:
    return " ".join((text or "").lower().replace("-", " ").replace("_", " ").split())
