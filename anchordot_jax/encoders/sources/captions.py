"""Caption files of image collections: COCO, Karpathy's JSON, token files."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from anchordot_jax.encoders.sources.base import (
    Record,
    Source,
    digest_files,
    open_text,
    read_json_file,
)
from anchordot_jax.errors import InputError

TOKEN = re.compile(r"(?P<name>[^\t]+?)#(?P<number>\d+)[\t ]+(?P<text>.*)")
# Karpathy's restval are validation images that everyone trains on.
SPLITS = {"restval": "train"}


def coco(path: Path, images: Path | None) -> Source:
    """Return the images of a COCO caption file, all captions each, by file name."""
    values = read_json_file(path)
    try:
        names = {image["id"]: str(image["file_name"]) for image in values["images"]}
        texts: dict[Any, list[str]] = {key: [] for key in names}
        for note in sorted(values["annotations"], key=lambda note: int(note["id"])):
            texts[note["image_id"]].append(str(note["caption"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} is no COCO caption file: {type(error).__name__} {error} in its "
            "images and annotations; name captions_*.json."
        ) from None
    split = next((part for part in ("train", "val", "test") if part in path.stem), "")
    root = images or path.parent
    rows = [
        Record(name, {"image": (root / name,), "text": texts[key]}, split)
        for key, name in sorted(names.items(), key=lambda pair: pair[1])
    ]
    return _of_rows("COCO captions", path, rows)


def karpathy(path: Path, images: Path | None) -> Source:
    """Return the images of a Karpathy JSON (Flickr8k, Flickr30k, COCO 2014)."""
    values = read_json_file(path)
    root = images or path.parent
    try:
        rows = [_karpathy_record(entry, root) for entry in values["images"]]
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{path} is no Karpathy caption file: {type(error).__name__} {error} in "
            "its images; name dataset_flickr30k.json or dataset_coco.json."
        ) from None
    return _of_rows("Karpathy captions", path, rows)


def _karpathy_record(entry: Mapping[str, Any], root: Path) -> Record:
    name = str(entry["filename"])
    folder = root / str(entry.get("filepath") or "")
    path = folder / name if (folder / name).is_file() else root / name
    texts = [str(sentence["raw"]) for sentence in entry["sentences"]]
    split = str(entry.get("split", ""))
    return Record(name, {"image": (path,), "text": texts}, SPLITS.get(split, split))


def flickr_tokens(
    path: Path, images: Path | None, lists: Mapping[str, Path] | None = None
) -> Source:
    """Return the images of a token file, lines of `NAME.jpg#0<tab>caption`.

    Args:
        path: the token file of Flickr8k or Flickr30k.
        images: the folder of images.
        lists: a file of image names, one a line, for each split.

    Raises:
        InputError: no line has that form.
    """
    splits = _listed(lists or {})
    root = images or path.parent
    captions: dict[str, list[tuple[int, str]]] = {}
    odd: list[Record] = []
    with open_text(path) as stream:
        for number, line in enumerate(stream, 1):
            found = TOKEN.fullmatch(line.rstrip("\r\n"))
            if found:
                entry = captions.setdefault(found["name"].strip(), [])
                entry.append((int(found["number"]), found["text"].strip()))
            elif line.strip():
                error = "not of the form NAME.jpg#0<tab>caption"
                odd.append(Record(f"line{number}", {}, error=error))
    if not captions:
        raise InputError(
            f"{path} has no line of the form NAME.jpg#0<tab>caption; check --format."
        )
    rows = [
        Record(
            name,
            {"image": (root / name,), "text": [text for _, text in sorted(texts)]},
            splits.get(name, ""),
        )
        for name, texts in captions.items()
    ]
    return _of_rows("Flickr token file", path, [*rows, *odd])


def _listed(lists: Mapping[str, Path]) -> dict[str, str]:
    """Return the split of each listed name."""
    found: dict[str, str] = {}
    for split, path in lists.items():
        if not path.is_file():
            raise InputError(f"{path}, the list of the split {split}, does not exist.")
        for line in path.read_text("utf-8").splitlines():
            name = line.strip()
            if found.get(name, split) != split:
                raise InputError(
                    f"{name} is listed in two splits, {found[name]} and {split} "
                    f"({path}); correct the lists."
                )
            if name:
                found[name] = split
    return found


def _of_rows(what: str, path: Path, rows: Sequence[Record]) -> Source:
    if not rows:
        raise InputError(f"{path} lists no images; download it again.")

    def records() -> Iterator[Record]:
        yield from rows

    return Source(what, str(path), digest_files([path]), records, len(rows))
