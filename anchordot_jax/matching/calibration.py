"""From a match's confidence to how often such matches are right.

Matches of known truth are cut into bins of like confidence. A bin with k of n right has
the precision (k + 1/2)/(n + 1), so that a few lucky ones are not taken for certain;
the bins' precisions are then made monotone (pool adjacent violators, Ayer et al.,
1955), and between bins the precision is linear in the logarithm of the confidence.
"""

from typing import NamedTuple

import numpy as np

from anchordot_jax.errors import InputError

BIN = 20
"""Least number of known matches in a bin, unless there are fewer altogether."""

LEAST = 1e-30


class Calibration(NamedTuple):
    """Precision at some confidences; both increase."""

    log_confidence: np.ndarray
    """`[bins]`."""
    precision: np.ndarray
    """`[bins]`, in (0, 1)."""
    n_known: int
    """Matches of known truth that it was fitted to."""

    def __call__(self, confidence: np.ndarray) -> np.ndarray:
        """Return the expected precision of matches of some confidences."""
        logs = np.log(np.maximum(confidence, LEAST))
        return np.asarray(np.interp(logs, self.log_confidence, self.precision))


def calibrate(confidence: np.ndarray, right: np.ndarray) -> Calibration:
    """Return the calibration that matches of known truth give.

    Args:
        confidence: `[k]`, in [0, 1].
        right: whether each match is right `[k]`.

    Raises:
        InputError: no matches, or vectors of unequal length.
    """
    from sklearn.isotonic import isotonic_regression

    confidence, right = np.asarray(confidence), np.asarray(right)
    if confidence.ndim != 1 or confidence.shape != right.shape or not len(right):
        raise InputError(
            f"confidence and right must be vectors of one length, got shapes "
            f"{confidence.shape} and {right.shape}."
        )
    order = np.argsort(confidence, kind="stable")
    bins = np.array_split(order, max(1, len(order) // BIN))
    logs = np.log(np.maximum(confidence, LEAST))
    centres = np.array([logs[own].mean() for own in bins])
    sizes = np.array([len(own) for own in bins], np.float64)
    hits = np.array([right[own].sum() for own in bins], np.float64)
    precision = isotonic_regression((hits + 0.5) / (sizes + 1), sample_weight=sizes)
    return Calibration(centres, np.asarray(precision), len(right))
