"""The finished HDF5 file of one side: written in one go, and atomically.

Datasets: `embeddings` (float16, gzip, chunked by rows), `ids`, `record` (the entry of
the source each row comes from), `split` where the source has splits, and for the side
with several rows a record `<other>_index`, the other side's row (-1: it has none). The
attributes say what made them. SOTAlign's feature files are the dataset `embeddings`
alone in the same type and compression: its readers open these files, and ours open its.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from anchordot_jax import files
from anchordot_jax.encoders.journal import Journal, Row
from anchordot_jax.errors import InputError

CHUNK_ROWS = 256
GZIP_LEVEL = 4
SCHEMA = 1


class Side(NamedTuple):
    """The rows of a finished file."""

    path: Path
    kind: str
    rows: Sequence[Row]
    dim: int
    attributes: Mapping[str, Any]


def fingerprint(settings: Mapping[str, Any]) -> str:
    """Return a digest of what decides the rows."""
    text = json.dumps(dict(settings), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_side(path: Path, journal: Journal, other: Side | None) -> None:
    """Write a journal's rows as the finished file."""
    rows = [row for batch in journal.read() for row in batch.rows]
    with files.replacing(path) as temporary, h5py.File(temporary, "w") as file:
        embeddings = file.create_dataset(
            "embeddings",
            shape=(journal.rows, journal.dim),
            dtype=journal.dtype,
            chunks=(min(CHUNK_ROWS, journal.rows), journal.dim),
            compression="gzip",
            compression_opts=GZIP_LEVEL,
        )
        start = 0
        for block in journal.blocks(CHUNK_ROWS):
            embeddings[start : start + len(block)] = block
            start += len(block)
        _write_text(file, "ids", [row.id for row in rows])
        _write_text(file, "record", [row.record for row in rows])
        if any(row.split for row in rows):
            _write_text(file, "split", [row.split for row in rows])
        if other is not None:
            index = _index(rows, other.rows)
            file.create_dataset(f"{other.kind}_index", data=index, compression="gzip")
        file.attrs["schema"] = SCHEMA
        file.attrs["fingerprint"] = fingerprint(journal.settings)
        for name, value in sorted(journal.settings.items()):
            file.attrs[name] = value if value is not None else ""
        file.attrs["refused"] = journal.refused


def read_side(path: Path) -> Side:
    """Return the rows of a finished file.

    Raises:
        InputError: the file is damaged or was not made by an extraction.
    """
    try:
        with h5py.File(path, "r") as file:
            attributes = {
                name: value.item() if isinstance(value, np.generic) else value
                for name, value in file.attrs.items()
            }
            ids = file["ids"].asstr()[:]
            records = file["record"].asstr()[:]
            splits = file["split"].asstr()[:] if "split" in file else [""] * len(ids)
            dim = int(file["embeddings"].shape[1])
    except (OSError, KeyError, ValueError) as error:
        raise InputError(
            f"{path} is in the way: it was not made by anchordot extract, or is "
            f"damaged ({error}); choose another --out or pass --restart."
        ) from None
    rows = [Row(*map(str, row)) for row in zip(ids, records, splits, strict=True)]
    return Side(path, str(attributes.get("kind", "")), rows, dim, attributes)


def add_index(side: Side, settings: Mapping[str, Any], other: Side) -> None:
    """Add the other side's rows to a finished file that was made without them."""
    with files.replacing(side.path) as temporary:
        shutil.copyfile(side.path, temporary)
        with h5py.File(temporary, "a") as file:
            index = _index(side.rows, other.rows)
            file.create_dataset(f"{other.kind}_index", data=index, compression="gzip")
            file.attrs["other_side"] = settings["other_side"]
            file.attrs["fingerprint"] = fingerprint(settings)


def _write_text(file: h5py.File, name: str, values: Sequence[str]) -> None:
    # A name that is not UTF-8 on disk is kept with its bytes shown.
    encoded = [v.encode("utf-8", "backslashreplace").decode() for v in values]
    file.create_dataset(
        name,
        data=np.array(encoded, dtype=object),
        dtype=h5py.string_dtype(),
        compression="gzip",
    )


def _index(rows: Sequence[Row], others: Sequence[Row]) -> NDArray[np.int64]:
    """Return for each row the first row of the other side from the same record."""
    first: dict[str, int] = {}
    for number, row in enumerate(others):
        first.setdefault(row.record, number)
    return np.array([first.get(row.record, -1) for row in rows], np.int64)
