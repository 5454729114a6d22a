"""From the files of a fit and a split of their rows to the arrays that a fit sees."""

from pathlib import Path

import numpy as np

from anchordot_jax import data
from anchordot_jax.data import EmbeddingSource, Split
from anchordot_jax.data.stored_pool import StoredPool, open_pool
from anchordot_jax.fit_inputs import FitData, pool_bytes
from anchordot_jax.runs.sources import Sources


def read_fit_data(
    sources: Sources, split: Split, *, memory: int | None = None
) -> FitData:
    """Return the checked arrays of a fit; its test rows are checked too.

    Args:
        sources: the files.
        split: their rows. A pool with a file of its own has none there.
        memory: bytes that both pools may take as float32; if they take more, they stay
            in their files. None: they are read whatever they take.

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
    read = _read if memory is None or size <= memory else open_pool
    return FitData(
        anchors_x=_read(x, split.anchors[:, 0]),
        anchors_y=_read(y, split.anchors[:, 1]),
        pool_x=read(*given_x),
        pool_y=read(*given_y),
        a=_weights(*given_x, sources.weights_x),
        b=_weights(*given_y, sources.weights_y),
    )


def _pool(
    source: EmbeddingSource, own: np.ndarray, separate: str | None
) -> tuple[EmbeddingSource, np.ndarray | None]:
    """Return a pool's file and its rows there; None: all of them."""
    if separate is not None:
        return data.open_embeddings(separate), None
    return source, own


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
