"""Canonical correlation analysis of paired rows, with a ridge a side (Hotelling 1936).

The expensive part, one thin SVD a side, does not depend on the ridges: `factorize`
once, then `cca_from_factors` for every pair of ridges.
"""

from typing import NamedTuple

import numpy as np
import threadpoolctl
from numpy.typing import ArrayLike

from anchordot_jax.errors import InputError

EIGENVALUE_FLOOR = 1e-6


class CCA(NamedTuple):
    """Canonical coordinates (x - mean) kernel of both sides, float64."""

    mean_x: np.ndarray
    """`[dx]`."""
    mean_y: np.ndarray
    """`[dy]`."""
    kernel_x: np.ndarray
    """`[dx, k]`."""
    kernel_y: np.ndarray
    """`[dy, k]`."""
    correlations: np.ndarray
    """Canonical correlations, `[k]`, decreasing; a ridge makes them smaller."""


class Side(NamedTuple):
    """Thin SVD of one side's centred rows, U diag(S) V^T, rank r."""

    mean: np.ndarray
    """`[d]`."""
    left: np.ndarray
    """U, `[N, r]`."""
    singular_values: np.ndarray
    """S, `[r]`, decreasing, all above rounding error."""
    right: np.ndarray
    """V, `[d, r]`."""


class Factors(NamedTuple):
    """What every ridge shares."""

    x: Side
    y: Side
    overlap: np.ndarray
    """U_x^T U_y, `[rx, ry]`."""


def fit_cca(
    x: ArrayLike,
    y: ArrayLike,
    *,
    ridge_x: float,
    ridge_y: float,
    relative: bool = False,
    floor: float = EIGENVALUE_FLOOR,
    dims: int | None = None,
) -> CCA:
    """Return the regularised canonical coordinates of paired rows.

    With means over the pairs, S_xx = X^T X / N + ridge_x I and S_xy = X^T Y / N, both
    of centred rows, let U diag(rho) V^T be the SVD of S_xx^(-1/2) S_xy S_yy^(-1/2).
    The kernels are S_xx^(-1/2) U and S_yy^(-1/2) V, the correlations rho.

    Directions in which the pairs of a side do not vary have no covariance with the
    other side. They are left out, so N < d is safe and k <= min(rank x, rank y).

    Args:
        x: `[N, dx]`; row k belongs to row k of y. Rows are taken as they are.
        y: `[N, dy]`.
        ridge_x: added to the eigenvalues of X^T X / N.
        ridge_y: the same of y.
        relative: take the ridges in units of the side's mean eigenvalue, trace / d.
        floor: least eigenvalue of S_xx and S_yy.
        dims: at most so many coordinates are kept, those of largest correlation.

    Raises:
        InputError: the rows are not paired, fewer than two or all the same, or a
            setting is out of range.
    """
    return cca_from_factors(
        factorize(x, y),
        ridge_x=ridge_x,
        ridge_y=ridge_y,
        relative=relative,
        floor=floor,
        dims=dims,
    )


def factorize(x: ArrayLike, y: ArrayLike) -> Factors:
    """Return the SVDs of both sides' centred rows, in float64.

    Args:
        x: `[N, dx]`; row k belongs to row k of y.
        y: `[N, dy]`.

    Raises:
        InputError: the rows are not paired, fewer than two or all the same.
    """
    rows_x, rows_y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if rows_x.ndim != 2 or rows_y.ndim != 2 or len(rows_x) != len(rows_y):
        raise InputError(
            f"CCA needs as many rows in x as in y, got arrays of shape "
            f"{rows_x.shape} and {rows_y.shape}; give the paired rows of both sides."
        )
    if len(rows_x) < 2:
        raise InputError(
            f"CCA needs at least 2 pairs, got {len(rows_x)}; give more anchors."
        )
    # One thread: see `profiles.fit_basis`.
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        side_x, side_y = _factorize_side(rows_x, "x"), _factorize_side(rows_y, "y")
        return Factors(side_x, side_y, side_x.left.T @ side_y.left)


def cca_from_factors(
    factors: Factors,
    *,
    ridge_x: float,
    ridge_y: float,
    relative: bool = False,
    floor: float = EIGENVALUE_FLOOR,
    dims: int | None = None,
) -> CCA:
    """Return what `fit_cca` does, from the shared factors; one small SVD.

    Raises:
        InputError: a setting is out of range.
    """
    check_not_negative(ridge_x=ridge_x, ridge_y=ridge_y, floor=floor)
    if dims is not None and dims < 1:
        raise InputError(f"dims must be at least 1, got {dims}.")
    x, y, overlap = factors
    deviations_x = _regularised_deviations(x, ridge_x, relative, floor)
    deviations_y = _regularised_deviations(y, ridge_y, relative, floor)
    gains_x = x.singular_values / deviations_x
    gains_y = y.singular_values / deviations_y
    whitened = gains_x[:, None] * overlap * gains_y[None, :] / len(x.left)
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        left, correlations, right_t = np.linalg.svd(whitened, full_matrices=False)
        return CCA(
            mean_x=x.mean,
            mean_y=y.mean,
            kernel_x=(x.right / deviations_x[None, :]) @ left[:, :dims],
            kernel_y=(y.right / deviations_y[None, :]) @ right_t[:dims].T,
            correlations=correlations[:dims],
        )


def check_not_negative(**settings: float) -> None:
    """Raise InputError unless the settings are finite numbers of at least 0."""
    for name, value in settings.items():
        if not (np.isfinite(value) and value >= 0):
            raise InputError(f"{name} must be a finite number >= 0, got {value!r}.")


def _factorize_side(rows: np.ndarray, name: str) -> Side:
    mean = rows.mean(axis=0)
    left, values, right_t = np.linalg.svd(rows - mean[None, :], full_matrices=False)
    scale = np.sqrt(len(rows)) * np.linalg.norm(mean) + values[0]
    noise = scale * max(rows.shape) * np.finfo(np.float64).eps
    rank = int(np.count_nonzero(values > noise))
    if rank == 0:
        raise InputError(
            f"All anchors of side {name} are the same row, so nothing can vary with "
            f"the other side; give anchors that differ."
        )
    return Side(mean, left[:, :rank], values[:rank], right_t[:rank].T)


def _regularised_deviations(
    side: Side, ridge: float, relative: bool, floor: float
) -> np.ndarray:
    """Return the square roots of the regularised covariance's eigenvalues, `[r]`."""
    eigenvalues = side.singular_values**2 / len(side.left)
    unit = eigenvalues.sum() / len(side.right) if relative else 1.0
    deviations: np.ndarray = np.sqrt(np.maximum(eigenvalues + ridge * unit, floor))
    return deviations
