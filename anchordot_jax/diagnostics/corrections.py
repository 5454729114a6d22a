"""Corrections of the gap after the fact (UOT-Gap, Sections 3.3 and 5.5).

Each takes unit rows and returns unit rows. None is a way to align two spaces: they are
measured to tell the descent of the objective from better retrieval.
"""

import numpy as np


def mean_shift(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both sides with their own mean subtracted, scaled to unit norm again."""
    return _unit(x - x.mean(axis=0)), _unit(y - y.mean(axis=0))


def procrustes(
    x: np.ndarray, y: np.ndarray, fit_x: np.ndarray, fit_y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return x rotated onto y, both centred by the means of the rows of the fit.

    The rotation is the orthogonal R with the least |fit_x R - fit_y| over the given
    pairs. The published table fits it on the pairs that it then scores; with other
    pairs here it is a method, with the same ones an upper bound of one.

    Args:
        x: unit rows.
        y: unit rows.
        fit_x: rows that R is fitted on; row i belongs to row i of `fit_y`.
        fit_y: their partners.
    """
    mean_x, mean_y = fit_x.mean(axis=0), fit_y.mean(axis=0)
    centred_x, centred_y = _unit(fit_x - mean_x), _unit(fit_y - mean_y)
    left, _, right = np.linalg.svd(
        centred_x.astype(np.float64).T @ centred_y.astype(np.float64)
    )
    rotation = left @ right
    return _unit(_unit(x - mean_x) @ rotation), _unit(y - mean_y)


def barycentric(x: np.ndarray, barycentres: np.ndarray, alpha: float) -> np.ndarray:
    """Return x moved by alpha along the tangent part of its barycentre (Theorem 4.5).

    x_i(alpha) = x_i + alpha P_i b_i, scaled to unit norm, with P_i = I - x_i x_i^T and
    b_i the plan's mean of y for row i. The objective falls at the rate
    sum_i r_i |P_i b_i|^2 at alpha = 0; see `descent_rate`.
    """
    return _unit(x + alpha * _tangent(x, barycentres))


def descent_rate(x: np.ndarray, barycentres: np.ndarray, row_sums: np.ndarray) -> float:
    """Return sum_i r_i |P_i b_i|^2, minus the objective's slope at alpha = 0."""
    squares = (_tangent(x, barycentres).astype(np.float64) ** 2).sum(axis=1)
    return float(row_sums @ squares)


def _tangent(x: np.ndarray, barycentres: np.ndarray) -> np.ndarray:
    along = np.einsum("ij,ij->i", x, barycentres)
    tangent: np.ndarray = barycentres - along[:, None] * x
    return tangent


def _unit(rows: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms > 0, norms, 1), np.float32)
