"""From the files of a fit and a split of their rows to the arrays that a fit sees."""

from pathlib import Path

import numpy as np

from anchordot_jax import data
from anchordot_jax.data import EmbeddingSource, Split
from anchordot_jax.data.stored_pool import StoredPool, can_be_streamed, open_pool
from anchordot_jax.errors import InputError
from anchordot_jax.fit_inputs import FitData, Pool, pool_bytes
from anchordot_jax.runs.sources import Sources


def read_fit_data(
    sources: Sources,
    split: Split,
    *,
    memory: int | None = None,
    strict: bool = False,
) -> FitData:
    """Return the checked arrays of a fit; its test rows are checked too.

    Args:
        sources: the files.
        split: their rows. A pool with a file of its own has none there.
        memory: bytes that both pools may take as float32; if they take more, they stay
            in their files. None: they are read whatever they take.
        strict: whether an archive, of which a pool can only be read whole, is refused
            where the pools take more. Else it is read.

    Raises:
        InputError: a file that cannot be read, or rows that cannot be used, by their
            numbers.
    """
    x, y = data.open_embeddings(sources.x), data.open_embeddings(sources.y)
    for source, rows in zip((x, y), split.test_pairs.T, strict=True):
        if len(rows):
            _read(source, rows)
    given_x = _pool(x, split.pool_x, sources.pool_x)
    given_y = _pool(y, split.pool_y, sources.pool_y)
    size = pool_bytes(StoredPool(*given_x), StoredPool(*given_y))
    streamed = memory is not None and size > memory
    if streamed and strict:
        for source, _ in (given_x, given_y):
            _check_can_be_streamed(source, size, memory)
    return FitData(
        anchors_x=_read(x, split.anchors[:, 0]),
        anchors_y=_read(y, split.anchors[:, 1]),
        pool_x=_read_or_open(*given_x, streamed=streamed),
        pool_y=_read_or_open(*given_y, streamed=streamed),
        a=_weights(*given_x, sources.weights_x),
        b=_weights(*given_y, sources.weights_y),
    )


def size_of_pools(sources: Sources, split: Split) -> int:
    """Return the bytes that both pools take as float32; no row is read.

    Args:
        sources: the files.
        split: their rows. A pool with a file of its own has none there.
    """
    x, y = data.open_embeddings(sources.x), data.open_embeddings(sources.y)
    return pool_bytes(
        StoredPool(*_pool(x, split.pool_x, sources.pool_x)),
        StoredPool(*_pool(y, split.pool_y, sources.pool_y)),
    )


def _pool(
    source: EmbeddingSource, own: np.ndarray, separate: str | None
) -> tuple[EmbeddingSource, np.ndarray | None]:
    """Return a pool's file and its rows there; None: all of them."""
    if separate is not None:
        return data.open_embeddings(separate), None
    return source, own


def _check_can_be_streamed(
    source: EmbeddingSource, size: int, memory: int | None
) -> None:
    if not can_be_streamed(source):
        raise InputError(
            f"Both pools take {size} bytes as float32, more than the {memory} of "
            f"distillation.pool_memory, and {source.where} cannot be streamed: a .npz "
            f"archive is only read whole; save the array as .npy or HDF5, or raise "
            f"distillation.pool_memory."
        )


def _read_or_open(
    source: EmbeddingSource, rows: np.ndarray | None, *, streamed: bool
) -> Pool:
    """Return a pool as an array, or as rows that stay in their file where they can."""
    if streamed and can_be_streamed(source):
        return open_pool(source, rows)
    return _read(source, rows)


def _weights(
    source: EmbeddingSource, rows: np.ndarray | None, weights: str | None
) -> np.ndarray | None:
    """Return the weights of a pool's rows, where there is a file of them."""
    if weights is None:
        return None
    values = data.read_weights(Path(weights), source.shape[0])
    return values if rows is None else values[rows]


def _read(source: EmbeddingSource, rows: np.ndarray | None) -> np.ndarray:
    """Return some rows of a file; bad ones are named by their row number there."""
    array = source.read(rows)
    data.check_embeddings(array, source.where, rows=rows)
    return array
