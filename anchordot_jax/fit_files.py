"""From the files of a fit and a split of their rows to the arrays that a fit sees."""

from pathlib import Path

import numpy as np

from anchordot_jax import data
from anchordot_jax.data import EmbeddingSource, Split
from anchordot_jax.fit_inputs import FitData
from anchordot_jax.runs.sources import Sources


def read_fit_data(sources: Sources, split: Split) -> FitData:
    """Return the checked arrays of a fit; its test rows are checked too.

    Args:
        sources: the files.
        split: their rows. A pool with a file of its own has none there.

    Raises:
        InputError: a file that cannot be read, or rows that cannot be used, by their
            numbers.
    """
    x, y = data.open_embeddings(sources.x), data.open_embeddings(sources.y)
    for source, rows in zip((x, y), split.test_pairs.T, strict=True):
        if len(rows):
            _read(source, rows)
    pool_x, a = _pool(x, split.pool_x, sources.pool_x, sources.weights_x)
    pool_y, b = _pool(y, split.pool_y, sources.pool_y, sources.weights_y)
    return FitData(
        anchors_x=_read(x, split.anchors[:, 0]),
        anchors_y=_read(y, split.anchors[:, 1]),
        pool_x=pool_x,
        pool_y=pool_y,
        a=a,
        b=b,
    )


def _pool(
    source: EmbeddingSource,
    own: np.ndarray,
    separate: str | None,
    weights: str | None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return a pool's rows and weights."""
    rows: np.ndarray | None = own
    if separate is not None:
        source, rows = data.open_embeddings(separate), None
    pool = _read(source, rows)
    if weights is None:
        return pool, None
    values = data.read_weights(Path(weights), source.shape[0])
    return pool, values if rows is None else values[rows]


def _read(source: EmbeddingSource, rows: np.ndarray | None) -> np.ndarray:
    """Return some rows of a file; bad ones are named by their row number there."""
    array = source.read(rows)
    data.check_embeddings(array, source.where, rows=rows)
    return array
