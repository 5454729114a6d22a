"""A pool that stays in its file: its rows are read when they are asked for.

It is indexed by row numbers as an array is, so that what takes a few rows of a pool
takes either. Nothing of it is kept between two reads.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.data import validation
from anchordot_jax.data.formats.numpy_files import NPZ
from anchordot_jax.data.source import EmbeddingSource

BLOCK_BYTES = 16 << 20
"""Rows that are gone through once come in blocks of at most this, as float32."""


@dataclass(frozen=True, eq=False)
class StoredPool:
    """Some rows of an embedding file, float32 `[n, d]` once read."""

    source: EmbeddingSource
    rows: NDArray[np.int64] | None
    """Their numbers in the file, `[n]`, ascending; None: all of it."""

    @property
    def shape(self) -> tuple[int, int]:
        """`(n, d)`."""
        n = self.source.shape[0] if self.rows is None else len(self.rows)
        return n, self.source.shape[1]

    @property
    def dtype(self) -> np.dtype[np.float32]:
        """The type of what is read, whatever is stored."""
        return np.dtype(np.float32)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]

    def __getitem__(self, numbers: NDArray[np.integer[Any]]) -> NDArray[np.float32]:
        """Return some rows, by their numbers in the pool and in that order.

        Raises:
            InputError: the file cannot be read any more.
        """
        return self.source.read(numbers if self.rows is None else self.rows[numbers])


def can_be_streamed(source: EmbeddingSource) -> bool:
    """Return whether a few rows of the file are read without the rest of it."""
    return source.format is not NPZ


def open_pool(source: EmbeddingSource, rows: NDArray[np.int64] | None) -> StoredPool:
    """Return the pool once each of its rows was looked at, block by block.

    Raises:
        InputError: rows that cannot be used, by their numbers in the file.
    """
    pool = StoredPool(source, rows)
    for start, block in blocks(pool):
        numbers = np.arange(start, start + len(block))
        validation.check_embeddings(
            block, source.where, rows=numbers if rows is None else rows[numbers]
        )
    return pool


def blocks(
    pool: NDArray[np.float32] | StoredPool, rows: int | None = None
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield (first row, rows) over a whole pool, `rows` or 16 MiB at a time.

    A file is gone through once: opened anew for each block, its row groups would be
    unpacked as often as they have blocks.
    """
    n, d = pool.shape
    size = rows or max(1, BLOCK_BYTES // (4 * d))
    if isinstance(pool, StoredPool):
        yield from pool.source.iter_blocks(size, pool.rows)
        return
    for start in range(0, n, size):
        yield start, pool[start : start + size]
