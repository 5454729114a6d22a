"""What a source of raw inputs yields, and what it is known by."""

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from anchordot_jax.encoders.base import Kind
from anchordot_jax.errors import InputError

Values = Mapping[Kind, Sequence[Any]]


class Record(NamedTuple):
    """One entry of a source: an image with its captions, a molecule with its text.

    Attributes:
        id: Its name, unique in the source.
        values: What it holds of each kind; images are paths or functions that return
            the bytes of the file.
        split: The part that the source puts it in; empty where there are none.
        error: Why the entry cannot be read at all, or empty.
    """

    id: str
    values: Values
    split: str = ""
    error: str = ""


class Item(NamedTuple):
    """One row to be: a value of one kind, and the record it belongs to."""

    id: str
    record: str
    split: str
    value: Any
    error: str


class Source(NamedTuple):
    """A source of records.

    Attributes:
        what: Its format in words.
        place: Where it was read from, as typed.
        digest: A digest of what it holds, stored with the embeddings.
        records: A function that yields the records, always in the same order.
        length: How many there are, or None where only reading all of it would tell.
    """

    what: str
    place: str
    digest: str
    records: Callable[[], Iterator[Record]]
    length: int | None


def items(source: Source, kind: Kind, limit: int | None = None) -> Iterator[Item]:
    """Yield the values of one kind, in order; a record without one gives an error."""
    for number, record in enumerate(source.records()):
        if limit is not None and number >= limit:
            return
        values = record.values.get(kind, ())
        error = record.error or ("" if values else f"no {kind} in this entry")
        if error:
            yield Item(record.id, record.id, record.split, None, error)
            continue
        for k, value in enumerate(values):
            name = record.id if len(values) == 1 else f"{record.id}#{k}"
            yield Item(name, record.id, record.split, value, "")


def digest_files(paths: Sequence[Path]) -> str:
    """Return a digest of the contents of some files."""
    total = hashlib.sha256()
    for path in paths:
        with path.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return f"sha256:{total.hexdigest()[:16]}"


def digest_listing(paths: Mapping[str, Path]) -> str:
    """Return a digest of the names and sizes of files too many or large to read."""
    total = hashlib.sha256()
    for name, path in paths.items():
        size = path.stat().st_size
        total.update(f"{name}\0{size}\0".encode("utf-8", "surrogateescape"))
    return f"names-and-sizes:{total.hexdigest()[:16]}"


def open_text(path: Path) -> TextIO:
    """Return a text file opened for reading, also where it is gzip-compressed."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def read_json_file(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file.

    Raises:
        InputError: it is damaged, or holds no object.
    """
    try:
        with open_text(path) as stream:
            values = json.load(stream)
    except (OSError, ValueError, EOFError, RecursionError) as error:
        raise InputError(
            f"{path} cannot be read as JSON ({error}); download it again."
        ) from None
    if not isinstance(values, dict):
        raise InputError(f"{path} must hold a JSON object; check the --format.")
    return values


def distinct(ids: Sequence[str], path: Path) -> None:
    """Raise InputError if an id stands for two records."""
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            raise InputError(
                f"{path} gives the id {name!r} to two records; ids must be unique."
            )
        seen.add(name)
