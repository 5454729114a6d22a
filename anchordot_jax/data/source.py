"""One embedding array in a file: its shape, its ids, and its rows on request.

A source holds no open file. It opens its file for each read, so it can be sent to other
processes and several can read one file at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.data.formats.base import Format, RowGroups, readable
from anchordot_jax.errors import InputError

Rows = slice | Sequence[int] | NDArray[np.integer[Any]] | None

# Rows are converted to float32 in pieces, so a read needs little beyond its result.
PIECE_BYTES = 16 << 20


@dataclass(frozen=True, eq=False)
class EmbeddingSource:
    """An embedding array `[n, d]` in a file, read on request.

    Attributes:
        path: The file.
        name: The array's name in the file; empty where the format has no names.
        shape: `(n, d)`.
        dtype: The stored type, e.g. `float16`; reads are always float32.
        ids: `[n]` of text or int64, or None where the file holds none.
        format: How to read the file.
    """

    path: Path
    name: str
    shape: tuple[int, int]
    dtype: str
    ids: NDArray[np.str_] | NDArray[np.int64] | None = field(repr=False)
    format: Format = field(repr=False)

    @property
    def where(self) -> str:
        """The array as users name it: `FILE` or `FILE::name`."""
        return where(self.path, self.name)

    def row_name(self, row: int) -> Any:
        """Return a row's id where the file has ids, else its number."""
        return row if self.ids is None else self.ids[row].item()

    def read(self, rows: Rows = None) -> NDArray[np.float32]:
        """Return rows as float32 `[k, d]`, in the order asked for.

        Args:
            rows: Row numbers in any order, also repeated; a slice; or None for all.

        Raises:
            InputError: A row number is out of range, or the file cannot be read.
        """
        numbers = row_numbers(rows, self.shape[0], self.where)
        unique, inverse = np.unique(numbers, return_inverse=True)
        filled = np.empty((len(unique), self.shape[1]), np.float32)
        start = 0
        for piece in self._pieces(_split(unique, self._piece_rows())):
            filled[start : start + len(piece)] = piece
            start += len(piece)
        return filled if np.array_equal(unique, numbers) else filled[inverse]

    def iter_blocks(
        self, batch: int, rows: Rows = None
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield (rows before the block, float32 block), from one pass over the file.

        Args:
            batch: Rows of a block; the last can have fewer.
            rows: Ascending row numbers without duplicates; a slice; or None for all.

        Raises:
            InputError: A row number is out of range or out of order, or the file cannot
                be read.
        """
        if batch < 1:
            raise InputError(f"batch must be at least 1; got {batch}.")
        numbers = row_numbers(rows, self.shape[0], self.where)
        if (np.diff(numbers) <= 0).any():
            raise InputError(
                f"Rows of {self.where} that are gone through once must ascend without "
                "duplicates; sort them with numpy.unique(rows)."
            )
        groups = _split(numbers, batch)
        start = 0
        for piece in self._pieces(groups):
            yield start, piece
            start += len(piece)

    def _piece_rows(self) -> int:
        """Return how many rows make a piece of `PIECE_BYTES` in float32."""
        return max(1, PIECE_BYTES // (4 * self.shape[1]))

    def _pieces(self, groups: RowGroups) -> Iterator[NDArray[np.float32]]:
        """Yield each group's rows as float32; too large values become infinite."""
        with readable(self.where, self.format.kind):
            pieces = self.format.scan(self.path, self.name, groups)
            for rows, piece in zip(groups, pieces, strict=True):
                if piece.shape != (len(rows), self.shape[1]):
                    raise InputError(
                        f"{self.where} changed while in use: it had the shape "
                        f"{self.shape} when opened; open it again."
                    )
                yield _to_float32(piece)


def _to_float32(piece: NDArray[Any]) -> NDArray[np.float32]:
    """Return values as float32 without a warning for those that become infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(piece, dtype=np.float32)


def where(path: Path, name: str) -> str:
    """Return an array as users name it: `FILE` or `FILE::name`."""
    return f"{path}::{name}" if name else str(path)


def row_numbers(rows: Rows, n: int, where: str) -> NDArray[np.int64]:
    """Return the row numbers that `rows` asks for, `[k]`.

    Raises:
        InputError: `rows` is not a list of whole numbers from 0 to n - 1.
    """
    if rows is None:
        return np.arange(n)
    if isinstance(rows, slice):
        return np.arange(n)[rows]
    numbers = np.asarray(rows)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise InputError(
            f"Rows of {where} are asked for by a 1-D list of row numbers; got "
            f"{numbers.dtype} of shape {numbers.shape} (for a mask, use "
            "numpy.flatnonzero(mask))."
        )
    outside = numbers[(numbers < 0) | (numbers >= n)] if numbers.size else numbers
    if outside.size:
        raise InputError(
            f"Row {outside[0]} is not in {where}, which has {n} rows (0 to {n - 1}; "
            "rows count from 0)."
        )
    return numbers.astype(np.int64)


def _split(rows: NDArray[np.int64], most: int) -> list[NDArray[np.int64]]:
    """Return `rows` cut into runs of at most `most`."""
    return [rows[start : start + most] for start in range(0, len(rows), most)]
