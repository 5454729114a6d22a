"""How far a mean over test queries would move with other queries: the bootstrap."""

from typing import NamedTuple

import numpy as np

from anchordot_jax.errors import InputError

DRAWS = 2000
BLOCK = 100


class Interval(NamedTuple):
    """A mean with the percentile interval of its bootstrap."""

    mean: float
    low: float
    high: float


def bootstrap_mean(
    values: np.ndarray, *, level: float = 0.95, draws: int = DRAWS, seed: int = 0
) -> Interval:
    """Return the mean of some values with its bootstrap interval.

    The values, one a query, are drawn again with replacement, and the interval holds
    the middle `level` of the means (Efron, 1979). It says how the figure would vary
    with other test queries, not with other anchors.

    Args:
        values: `[q]`, finite.
        level: share of the means inside, between 0 and 1.
        draws: number of resamplings.
        seed: of the resamplings.

    Raises:
        InputError: no values, or a setting out of range.
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise InputError(
            f"values must be a vector of finite numbers, got shape {values.shape}."
        )
    if not 0 < level < 1 or draws < 1:
        raise InputError(
            f"level must be between 0 and 1 and draws at least 1, got {level!r} and "
            f"{draws!r}."
        )
    rng = np.random.default_rng(seed)
    means = []
    for start in range(0, draws, BLOCK):
        size = (min(BLOCK, draws - start), len(values))
        means.append(values[rng.integers(0, len(values), size)].mean(axis=1))
    tail = (1 - level) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return Interval(float(values.mean()), float(low), float(high))
