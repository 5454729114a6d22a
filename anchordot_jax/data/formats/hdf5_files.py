"""HDF5 files: scattered rows read by the chunks that hold them.

h5py's own selection of a list of rows decompresses a chunk once for each row taken from
it. Reading a contiguous span over the touched chunks and picking the rows from it
decompresses each chunk once.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from anchordot_jax.data.formats.base import ArrayInfo, Format, RowGroups, type_name

SPAN_BYTES = 16 << 20
# Without chunks, reading over a gap this long costs no more than another call.
GAP_BYTES = 64 << 10


def _open(path: Path) -> h5py.File:
    """Return the file opened for reading, also where file locks are not supported."""
    return h5py.File(path, "r", locking="best-effort")


def _listing(path: Path) -> dict[str, ArrayInfo]:
    """Return the datasets of a file by their path from the root."""
    found: dict[str, ArrayInfo] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = ArrayInfo(tuple(item.shape or ()), _type_of(item))

    with _open(path) as file:
        file.visititems(visit)
    return found


def _type_of(dataset: h5py.Dataset) -> str:
    """Return the stored type; h5py raises for types that NumPy lacks."""
    try:
        name = type_name(dataset.dtype)
    except (TypeError, ValueError):
        return "an unknown type"
    return "values of variable length" if name == "object" else name


def _scan(path: Path, name: str, groups: RowGroups) -> Iterator[NDArray[Any]]:
    """Yield the rows of each group."""
    with _open(path) as file:
        dataset = file[name]
        for rows in groups:
            yield _pick(dataset, rows)


def _pick(dataset: h5py.Dataset, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return sorted rows of a dataset, span by span."""
    picked = np.empty((len(rows), *dataset.shape[1:]), dataset.dtype)
    for part in _spans(dataset, rows):
        first, last = rows[part][0], rows[part][-1]
        picked[part] = dataset[first : last + 1][rows[part] - first]
    return picked


def _spans(dataset: h5py.Dataset, rows: NDArray[np.int64]) -> Iterator[slice]:
    """Yield the parts of `rows` to be read as one span each.

    A span breaks where chunks lie between that hold no wanted row, and on a chunk's
    edge once it has grown to `SPAN_BYTES`.
    """
    row_bytes = max(1, dataset.dtype.itemsize * int(np.prod(dataset.shape[1:])))
    chunk = dataset.chunks[0] if dataset.chunks else max(1, GAP_BYTES // row_bytes)
    chunks_a_span = max(1, SPAN_BYTES // (chunk * row_bytes))
    chunk_of = rows // chunk
    skips = np.diff(chunk_of) > 1
    full = np.diff(chunk_of // chunks_a_span) > 0
    edges = [0, *(np.flatnonzero(skips | full) + 1).tolist(), len(rows)]
    for start, stop in itertools.pairwise(edges):
        if stop > start:
            yield slice(start, stop)


HDF5 = Format("an HDF5 file", _listing, _scan)
