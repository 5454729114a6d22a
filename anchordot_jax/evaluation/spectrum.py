"""Participation ratio: the number of dimensions a set of embeddings really uses.

For the eigenvalues lambda of the second-moment matrix M = X^T X / n,

    PR = (sum lambda)^2 / sum lambda^2 = trace(M)^2 / ||M||_F^2,

which is d for a flat spectrum and 1 when a single direction carries everything. The
right-hand side needs no eigenvalues, and it is the same for X^T X and X X^T, so the
smaller of the two is used.
"""

from collections.abc import Iterator

import numpy as np

from anchordot_jax.arrays import AnyArray
from anchordot_jax.errors import InputError
from anchordot_jax.matching.nearest import (
    BLOCK_BYTES,
    as_embeddings,
    check_count,
)


def participation_ratio(
    x: AnyArray, *, center: bool = False, block_bytes: int = BLOCK_BYTES
) -> float:
    """Return the participation ratio of the embeddings, in float64.

    Between 1 and min(n, d), or 0.0 when all embeddings are zero.

    Args:
        x: Embeddings [n, d].
        center: Subtract the mean embedding first, so that M is the covariance.
        block_bytes: Size of the float64 copy of a block.

    Raises:
        InputError: If x is not a finite matrix.
    """
    check_count("block_bytes", block_bytes)
    rows = as_embeddings(x, "x")
    mean = np.zeros(rows.shape[1])
    if center:
        mean = rows.mean(axis=0, dtype=np.float64)
    side = min(rows.shape)
    gram = np.zeros((side, side))
    for block in _tall_blocks(rows, mean, max(1, block_bytes // (8 * side))):
        gram += block.T @ block
    squares = float(np.square(gram).sum())
    return float(np.trace(gram)) ** 2 / squares if squares > 0 else 0.0


def participation_ratio_of_spectrum(eigenvalues: np.ndarray) -> float:
    """Return (sum lambda)^2 / sum lambda^2 of the given eigenvalues.

    Raises:
        InputError: If they are not finite, not >= 0, or all zero.
    """
    values = np.asarray(eigenvalues, np.float64)
    valid = bool(np.isfinite(values).all() and (values >= 0).all())
    if not valid or not values.any():
        raise InputError(
            "eigenvalues must be finite and >= 0 with one above 0; pass those of a "
            "positive semi-definite matrix."
        )
    return float(values.sum()) ** 2 / float(np.square(values).sum())


def _tall_blocks(x: np.ndarray, mean: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Yield blocks of x - mean, or of its transpose, whichever has fewer columns."""
    n, d = x.shape
    if n >= d:
        for start in range(0, n, size):
            yield x[start : start + size] - mean
    else:
        for start in range(0, d, size):
            part = slice(start, start + size)
            yield (x[:, part] - mean[part]).T
