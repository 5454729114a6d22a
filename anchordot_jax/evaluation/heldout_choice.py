"""One standard error: a choice by few held-out anchors should not follow their noise.

Of the candidates that are no more than a standard error behind the best, the preferred
one is taken (Breiman, Friedman, Olshen and Stone, 1984).
"""

import math
from collections.abc import Sequence

import numpy as np


def errors_behind_best(logs: np.ndarray) -> np.ndarray:
    """Return the standard error of how far each candidate is behind the best, `[c]`.

    Of the paired difference to the candidate of smallest mean; zeros with one anchor.

    Args:
        logs: log ranks of the held-out anchors by candidate, `[c, h]`. One number an
            anchor: its two directions are not independent.
    """
    n = logs.shape[1]
    if n < 2:
        return np.zeros(len(logs))
    best = logs[logs.mean(axis=1).argmin()]
    errors: np.ndarray = (logs - best[None, :]).std(axis=1, ddof=1) / math.sqrt(n)
    return errors


def preferred_near_best(
    log_ranks: Sequence[float], errors: Sequence[float], costs: Sequence[float]
) -> int:
    """Return which candidate of least cost is within its standard error of the best.

    Args:
        log_ranks: the mean log rank of each candidate.
        errors: see `errors_behind_best`.
        costs: how little each is preferred; of equal ones the first is taken.
    """
    least = min(log_ranks)
    near = [i for i, own in enumerate(log_ranks) if own - least <= errors[i]]
    return min(near, key=lambda i: costs[i])
