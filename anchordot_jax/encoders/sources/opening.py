"""Opening a source: its format is named, or told by the file's name."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

from anchordot_jax.encoders.sources import captions, folders, shards, tables
from anchordot_jax.encoders.sources.base import Record, Source
from anchordot_jax.errors import InputError

SourceFormat = Literal[
    "auto",
    "images",
    "webdataset",
    "coco",
    "karpathy",
    "flickr",
    "csv",
    "tsv",
    "jsonl",
    "lines",
    "smiles",
    "chebi20",
]
SUFFIXES: dict[str, SourceFormat] = {
    ".tar": "webdataset",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".smi": "smiles",
    ".smiles": "smiles",
    ".token": "flickr",
}


def open_source(
    place: str,
    *,
    kind: SourceFormat = "auto",
    images: Path | None = None,
    captions_folder: Path | None = None,
    columns: tables.Columns | None = None,
    split_lists: Mapping[str, Path] | None = None,
) -> Source:
    """Return the source at a path.

    Args:
        place: a file, a folder, or a pattern of tar shards.
        kind: its format; `auto` tells it by the name.
        images: the folder that image names of a caption file or table refer to.
        captions_folder: for an image folder, where its captions lie.
        columns: the columns of a table; of shards, the JSON fields of captions.
        split_lists: for a token file, a list of image names for each split.

    Raises:
        InputError: it does not exist, is of another format, or its format is unclear.
    """
    path = Path(place)
    if "{" not in place and not path.exists():
        raise InputError(f"{place} does not exist; name a file or folder of raw items.")
    if images is not None and not images.is_dir():
        raise InputError(f"{images}, the folder of images, does not exist.")
    chosen = _told_by_name(place) if kind == "auto" else kind
    columns = columns or tables.Columns()
    try:
        return _open(chosen, place, images, captions_folder, columns, split_lists or {})
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{place} cannot be read as {chosen} ({error}); check --format."
        ) from None


def _open(
    chosen: str,
    place: str,
    images: Path | None,
    captions_folder: Path | None,
    columns: tables.Columns,
    split_lists: Mapping[str, Path],
) -> Source:
    path = Path(place)
    if chosen in ("images", "chebi20") and not path.is_dir():
        raise InputError(f"{place} is a file; {chosen} is read from a folder.")
    if chosen not in ("images", "chebi20", "webdataset") and path.is_dir():
        raise InputError(f"{place} is a folder; {chosen} is read from a file.")
    if chosen == "images":
        return folders.image_folder(path, captions_folder)
    if chosen == "webdataset":
        return shards.webdataset(place, columns.text)
    if chosen == "coco":
        return captions.coco(path, images)
    if chosen == "karpathy":
        return captions.karpathy(path, images)
    if chosen == "flickr":
        return captions.flickr_tokens(path, images, split_lists)
    if chosen == "smiles":
        return tables.smiles_file(path)
    if chosen == "lines":
        return tables.lines(path)
    if chosen == "chebi20":
        return tables.chebi20(path)
    return tables.table(path, columns, images, chosen)


def only_split(source: Source, split: str) -> Source:
    """Return the records of one split.

    Raises:
        InputError: there are none.
    """
    names = sorted({record.split for record in source.records()} - {""})
    if split not in names:
        raise InputError(
            f"{source.place} has no split {split!r}; it has "
            f"{', '.join(names) or 'no splits'}."
        )

    def records() -> Iterator[Record]:
        yield from (record for record in source.records() if record.split == split)

    return source._replace(
        records=records, length=None, digest=f"{source.digest}:{split}"
    )


def _told_by_name(place: str) -> SourceFormat:
    """Return the format that a name stands for."""
    path = Path(place)
    if path.is_dir():
        if any(path.glob("*.tar")):
            return "webdataset"
        if any((path / n).is_file() for n in ("validation.txt", "test.txt")):
            return "chebi20"
        return "images"
    name = path.name.removesuffix(".gz").lower()
    for suffix, found in SUFFIXES.items():
        if name.endswith(suffix) or name.endswith(f"{suffix}.txt"):
            return found
    if name.endswith(".txt"):
        return "lines"
    if name.endswith(".json"):
        return "karpathy" if name.startswith("dataset") else "coco"
    raise InputError(
        f"The format of {place} is not told by its name; say it with --format "
        f"({', '.join(get_args(SourceFormat)[1:])})."
    )
