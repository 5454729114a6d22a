"""Tables: CSV, TSV, JSON lines, SMILES files, and ChEBI-20's three split files."""

import csv
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from anchordot_jax.encoders.base import Kind
from anchordot_jax.encoders.sources.base import (
    Record,
    Source,
    digest_files,
    open_text,
)
from anchordot_jax.errors import InputError, reason

csv.field_size_limit(1 << 26)
CHEBI_SPLITS = {
    "train": ("train.txt", "training.txt"),
    "validation": ("validation.txt", "val.txt"),
    "test": ("test.txt",),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of a table that are read."""

    text: tuple[str, ...] = ()
    """Captions; several columns are several captions of one record."""
    image: str | None = None
    """Paths of images."""
    smiles: str | None = None
    """SMILES strings."""
    id: str | None = None
    """Ids; rows with the same id are one record with several captions."""
    split: str | None = None
    """The part each row belongs to."""

    def named(self) -> list[str]:
        """Return all names given."""
        single = (self.image, self.smiles, self.id, self.split)
        return [*self.text, *(name for name in single if name)]


def table(path: Path, columns: Columns, images: Path | None, what: str) -> Source:
    """Return the rows of a table; `what` is csv, tsv or jsonl.

    A record's id is its `id` column, or `rowK` counted from 0. Rows of one id follow
    each other or not; the record holds the captions of all of them.

    Raises:
        InputError: a column is missing, or no column with values is named.
    """
    if not (columns.text or columns.image or columns.smiles):
        raise InputError(
            f"{path} is a table: name its columns with --text-column, --image-column "
            "or --smiles-column."
        )
    root = images or path.parent
    merged: dict[str, Record] = {}
    for number, (row, error) in enumerate(_rows(path, what, columns.named())):
        record = _record(number, row, error, columns, root)
        first = merged.get(record.id)
        merged[record.id] = record if first is None else _joined(first, record)
    if not merged:
        raise InputError(f"{path} holds no rows.")
    named = {
        field: value for field, value in dataclasses.asdict(columns).items() if value
    }
    described = "; ".join(f"{field} {value}" for field, value in named.items())
    return _of_rows(f"{what.upper()} table ({described})", path, list(merged.values()))


def _rows(
    path: Path, what: str, wanted: Sequence[str]
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield each row with the reason why it cannot be read, or an empty one."""
    try:
        with open_text(path) as stream:
            yield from (
                _json_rows(stream) if what == "jsonl" else _csv_rows(stream, what)
            )
    except (UnicodeDecodeError, csv.Error, EOFError, OSError) as error:
        raise InputError(
            f"{path} cannot be read as {what} ({reason(error)}); check --format, and "
            "save it as UTF-8."
        ) from None
    except _Missing as error:
        raise InputError(f"{path} has no rows under a header line.") from error


class _Missing(Exception):
    """A table without a header."""


def _csv_rows(stream: Any, what: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    # Published TSV files hold bare quotes; a tab separates there whatever stands near.
    tabs = what == "tsv"
    reader = (
        csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        if tabs
        else csv.reader(stream)
    )
    header = next(reader, None)
    if not header:
        raise _Missing
    names = [name.strip() for name in header]
    for fields in reader:
        if not any(fields):
            continue
        short = len(fields) < len(names)
        error = f"{len(fields)} fields where the header has {len(names)}"
        yield dict(zip(names, fields, strict=False)), error if short else ""


def _json_rows(stream: Any) -> Iterator[tuple[Mapping[str, Any], str]]:
    for line in stream:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield {}, f"not JSON: {reason(error)}"
            continue
        yield (row, "") if isinstance(row, dict) else ({}, "not a JSON object")


def _record(
    number: int, row: Mapping[str, Any], error: str, columns: Columns, root: Path
) -> Record:
    missing = [name for name in columns.named() if name not in row]
    if missing and not error:
        if number == 0:
            raise InputError(
                f"The table has no column {missing[0]!r}; it has {', '.join(row)}."
            )
        error = f"no column {missing[0]}"
    name = f"row{number}"
    if columns.id and str(row.get(columns.id) or "").strip():
        name = str(row[columns.id]).strip()
    if error:
        return Record(name, {}, error=error)
    values: dict[Kind, Sequence[Any]] = {}
    if columns.text:
        values["text"] = [
            text for column in columns.text for text in _texts(row[column])
        ]
    if columns.image:
        values["image"] = (root / str(row[columns.image] or "").strip(),)
    if columns.smiles:
        values["molecule"] = (str(row[columns.smiles] or "").strip(),)
    split = str(row[columns.split] or "").strip() if columns.split else ""
    return Record(name, values, split)


def _texts(value: Any) -> list[str]:
    """Return the captions of a cell; JSON may hold a list of them."""
    if isinstance(value, list):
        return [str(text) for text in value]
    return ["" if value is None else str(value)]


def _joined(first: Record, again: Record) -> Record:
    """Return one record of two rows with the same id; only captions may differ."""
    if first.error or again.error:
        return first if first.error else again
    for kind in ("image", "molecule"):
        if first.values.get(kind, ()) != again.values.get(kind, ()):
            error = f"two rows of this id name different {kind}s"
            return Record(first.id, {}, error=error)
    texts = [*first.values.get("text", ()), *again.values.get("text", ())]
    return first._replace(values={**first.values, "text": texts})


def smiles_file(path: Path) -> Source:
    """Return the molecules of lines `SMILES [NAME]`; ids are the names, or `rowK`."""
    rows: list[Record] = []
    with open_text(path) as stream:
        for line in stream:
            fields = line.split(maxsplit=1)
            if not fields or (not rows and fields[0].lower() == "smiles"):
                continue
            name = fields[1].strip() if len(fields) > 1 else f"row{len(rows)}"
            rows.append(Record(name, {"molecule": (fields[0],)}))
    if not rows:
        raise InputError(f"{path} holds no SMILES.")
    return _of_rows("SMILES file", path, rows)


def lines(path: Path) -> Source:
    """Return the lines of a text file, blank ones left out, by `rowK`."""
    with open_text(path) as stream:
        texts = [line.strip() for line in stream if line.strip()]
    if not texts:
        raise InputError(f"{path} holds no text.")
    rows = [Record(f"row{k}", {"text": (text,)}) for k, text in enumerate(texts)]
    return _of_rows("lines of text", path, rows)


def chebi20(folder: Path) -> Source:
    """Return the molecules of ChEBI-20 with descriptions and splits, by CID.

    The folder holds `train.txt`, `validation.txt` and `test.txt` (or some of them):
    tab-separated CID, SMILES and description under a header line.
    """
    rows: list[Record] = []
    paths = []
    for split, names in CHEBI_SPLITS.items():
        path = next((folder / n for n in names if (folder / n).is_file()), None)
        if path is None:
            continue
        paths.append(path)
        for row, error in _rows(path, "tsv", ()):
            lower = {name.lower(): value for name, value in row.items()}
            name = str(lower.get("cid", "")).strip() or f"{split}{len(rows)}"
            if error or not {"smiles", "description"} <= set(lower):
                rows.append(Record(name, {}, split, error or "no SMILES column"))
                continue
            texts = (lower["description"],)
            molecules = (lower["smiles"].strip(),)
            rows.append(Record(name, {"molecule": molecules, "text": texts}, split))
    if not rows:
        raise InputError(
            f"{folder} holds none of ChEBI-20's train.txt, validation.txt, test.txt."
        )
    return _of_rows("ChEBI-20", folder, rows, paths)


def _of_rows(
    what: str, place: Path, rows: Sequence[Record], paths: Sequence[Path] = ()
) -> Source:
    """Return records held in memory as a source, each id once."""
    seen: dict[str, int] = {}
    unique = []
    for row in rows:
        count = seen[row.id] = seen.get(row.id, 0) + 1
        again = row._replace(id=f"{row.id}~{count}") if count > 1 else row
        unique.append(again)

    def records() -> Iterator[Record]:
        yield from unique

    digest = digest_files(paths or [place])
    return Source(what, str(place), digest, records, len(unique))
