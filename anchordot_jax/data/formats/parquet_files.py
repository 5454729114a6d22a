"""Parquet files: an embedding column is a list column with rows of one length.

Only the column asked for is decoded, and only in the row groups that hold wanted rows.
pyarrow is optional, so it is imported where it is used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.data.formats.base import ArrayInfo, Format, RowGroups
from anchordot_jax.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

BATCH_ROWS = 4096


@contextmanager
def _open(path: Path) -> Iterator["ParquetFile"]:
    """Return a context with the opened file, or say how to get pyarrow."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise InputError(
            f"Reading {path} needs pyarrow: pip install 'anchordot-jax[data]'."
        ) from error
    try:
        with ParquetFile(path) as file:
            yield file
    except ArrowException as error:
        raise ValueError(str(error)) from error


def _listing(path: Path) -> dict[str, ArrayInfo]:
    """Return the columns of a file; a list column's width is that of its first row."""
    with _open(path) as file:
        return {field.name: _describe(file, field) for field in file.schema_arrow}


def _describe(file: "ParquetFile", field: "pa.Field") -> ArrayInfo:
    """Return the shape and type of one column."""
    import pyarrow.types as kinds

    shape: tuple[int, ...] = (file.metadata.num_rows,)
    kind, first = field.type, None
    while kinds.is_list(kind) or kinds.is_large_list(kind) or _is_fixed(kind):
        if _is_fixed(kind):
            width = kind.list_size
        else:
            first = _first_row(file, field.name) if first is None else first
            width = len(first)
        first = first[0] if first else None
        shape, kind = (*shape, width), kind.value_type
    names = {"halffloat": "float16", "float": "float32", "double": "float64"}
    return ArrayInfo(shape, names.get(str(kind), str(kind)))


def _is_fixed(kind: "pa.DataType") -> bool:
    """Return whether a column type is a list of fixed size."""
    import pyarrow.types as kinds

    return bool(kinds.is_fixed_size_list(kind))


def _first_row(file: "ParquetFile", column: str) -> list[Any]:
    """Return the first row of a list column, or an empty list without rows."""
    for batch in file.iter_batches(batch_size=1, columns=[column]):
        return batch.column(0).to_pylist()[0] or []
    return []


def _scan(path: Path, name: str, groups: RowGroups) -> Iterator[NDArray[Any]]:
    """Yield the rows of each group from one pass over the touched row groups."""
    wanted = np.concatenate([np.empty(0, np.int64), *groups])
    with _open(path) as file:
        widths = _describe(file, file.schema_arrow.field(name)).shape[1:]
        batches = _batches(file, name, wanted)
        start, block = 0, np.empty((0, 0))
        for rows in groups:
            parts = []
            done = 0
            while done < len(rows):
                if rows[done] >= start + len(block):
                    start, column = next(batches)
                    block = _values(column, widths, f"{path}::{name}", start)
                    continue
                upto = int(np.searchsorted(rows, start + len(block)))
                parts.append(block[rows[done:upto] - start])
                done = upto
            yield np.concatenate(parts)


def _batches(
    file: "ParquetFile", column: str, wanted: NDArray[np.int64]
) -> Iterator[tuple[int, "pa.Array"]]:
    """Yield (number of the first row, rows) over the row groups with wanted rows."""
    stop = 0
    for group in range(file.num_row_groups):
        start, stop = stop, stop + file.metadata.row_group(group).num_rows
        low, high = np.searchsorted(wanted, [start, stop])
        if low == high:
            continue
        for batch in file.iter_batches(BATCH_ROWS, [group], [column]):
            yield start, batch.column(0)
            start += len(batch)


def _values(
    column: "pa.Array", widths: tuple[int, ...], where: str, first_row: int
) -> NDArray[Any]:
    """Return a column's values as `[rows]`, or a list column's as `[rows, width]`.

    Raises:
        InputError: A row is missing or of another length.
    """
    if not widths:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    width = widths[0]
    lengths = np.asarray(column.value_lengths().fill_null(0))
    odd = np.flatnonzero((lengths != width) | np.asarray(column.is_null()))
    if len(odd):
        raise InputError(
            f"Row {first_row + odd[0]} of {where} has {lengths[odd[0]]} values but the "
            f"first row has {width}; every embedding needs the same length."
        )
    values = column.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(values).reshape(len(column), width)


PARQUET = Format("a Parquet file", _listing, _scan)
