"""CCA of two sides known by their principal axes, coordinates weighted by correlation.

The expensive part, one eigendecomposition a side, does not depend on the ridge nor on
the cross-covariance: `axes_of_moments` or `axes_of_rows` once, then `canonical_weights`
for every pair of ridges and every way of pairing.
"""

import functools
from contextlib import AbstractContextManager
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import threadpoolctl
from jaxtyping import Array, Float

from anchordot_jax import profiles
from anchordot_jax.arrays import AnyArray
from anchordot_jax.errors import InputError

# Rows whose products are summed in float32; the sums of blocks are float64.
BLOCK = 8192

# Variances and correlations below these shares of the largest are rounding errors.
VARIANCE_FLOOR = 1e-9
CORRELATION_FLOOR = 1e-6

HIGHEST = jax.lax.Precision.HIGHEST


class Moments(NamedTuple):
    """How many rows there are, where, and how they scatter, float64."""

    n_rows: float
    mean: np.ndarray
    """`[d]`."""
    scatter: np.ndarray
    """Sum of (x - mean)(x - mean)^T, `[d, d]`."""


class Axes(NamedTuple):
    """Principal axes of one side's rows, float64; those without variance left out."""

    mean: np.ndarray
    """`[d]`."""
    variances: np.ndarray
    """`[r]`, decreasing."""
    vectors: np.ndarray
    """`[d, r]`, orthonormal columns."""
    unit: float
    """Mean variance of a column, trace / d: what ridges are multiples of."""


class Weights(NamedTuple):
    """Canonical coordinates times their correlations, in coordinates of the axes."""

    x: np.ndarray
    """`[rx, k]`."""
    y: np.ndarray
    """`[ry, k]`."""
    correlations: np.ndarray
    """`[k]`, decreasing."""
    mean_x: np.ndarray
    """Subtracted from the coordinates first, `[rx]`; zero where they are the axes'."""
    mean_y: np.ndarray
    """`[ry]`."""


def moments(rows: AnyArray, weights: np.ndarray | None = None) -> Moments:
    """Return the moments of some rows, read block by block.

    Args:
        rows: `[n, d]`.
        weights: of the rows, `[n]`; scaled so that they sum to n. Uniform by default.
    """
    n, d = rows.shape
    share = np.full(n, 1 / n) if weights is None else weights / weights.sum()
    share = np.asarray(share, np.float64)
    starts = range(0, n, BLOCK)
    mean = np.zeros(d)
    for start in starts:
        part = slice(start, start + BLOCK)
        mean += share[part] @ np.asarray(rows[part], np.float64)
    scatter = np.zeros((d, d))
    for start in starts:
        part = slice(start, start + BLOCK)
        scale = np.sqrt(n * share[part])[:, None]
        centred = scale * (np.asarray(rows[part], np.float64) - mean[None, :])
        scatter += np.asarray(_gram(np.asarray(centred, np.float32)), np.float64)
    return Moments(n, mean, scatter)


def pooled(one: Moments, other: Moments) -> Moments:
    """Return the moments of the rows of both (Chan, Golub and LeVeque, 1979)."""
    n_rows = one.n_rows + other.n_rows
    shift = other.mean - one.mean
    between = one.n_rows * other.n_rows / n_rows * np.outer(shift, shift)
    return Moments(
        n_rows,
        one.mean + other.n_rows / n_rows * shift,
        one.scatter + other.scatter + between,
    )


def axes_of_moments(known: Moments, side: str = "x") -> Axes:
    """Return the principal axes of rows known by their moments.

    Raises:
        InputError: all rows are the same.
    """
    covariance = known.scatter / known.n_rows
    with single_thread():
        variances, vectors = np.linalg.eigh(covariance)
    noise = _rounding(known.mean)
    return _axes(known.mean, variances, vectors, len(covariance), side, noise)


def axes_of_rows(rows: AnyArray, dim: int | None = None, side: str = "x") -> Axes:
    """Return the principal axes of few rows, from the smaller of their Gram matrices.

    Args:
        rows: `[N, d]`.
        dim: dimension that the mean variance is taken over; d by default.
        side: named in the error.

    Raises:
        InputError: all rows are the same.
    """
    values = np.asarray(rows, np.float64)
    n, d = values.shape
    mean = values.mean(axis=0)
    centred = (values - mean[None, :]) / np.sqrt(n)
    noise = _rounding(mean)
    with single_thread():
        if d <= n:
            variances, vectors = np.linalg.eigh(centred.T @ centred)
            return _axes(mean, variances, vectors, dim or d, side, noise)
        variances, left = np.linalg.eigh(centred @ centred.T)
        kept = variances > max(VARIANCE_FLOOR * variances[-1], noise)
        vectors = centred.T @ (left[:, kept] / np.sqrt(variances[kept])[None, :])
        return _axes(mean, variances[kept], vectors, dim or d, side, noise)


def canonical_weights(
    x: Axes,
    y: Axes,
    cross: np.ndarray,
    *,
    ridge: float,
    balance: float = 1.0,
    power: float = 1.0,
) -> Weights:
    """Return the correlation-weighted canonical coordinates for one pair of ridges.

    With covariances C plus ridge * unit, K = Cxx^(-1/2) Cxy Cyy^(-1/2) = U D V^T, these
    are Cxx^(-1/2) U D and Cyy^(-1/2) V D = Cyy^(-1/2) K^T U, from one eigenvalue
    problem, K K^T = U D^2 U^T, of the side with fewer axes. Another power p gives D^p;
    below 1 the later coordinates count more (Gong et al., 2014, take 4).

    Args:
        x: axes of the x side.
        y: axes of the y side.
        cross: cross-covariance in coordinates of the axes, `[rx, ry]`.
        ridge: times balance (x) or by balance (y) added to all variances, in units of
            the side's mean variance.
        balance: square root of the ratio of x's ridge to y's.
        power: of the correlations; 0 leaves all coordinates equal.

    Raises:
        InputError: the sides do not vary together at all.
    """
    if len(x.variances) > len(y.variances):
        swapped = canonical_weights(
            y, x, cross.T, ridge=ridge, balance=1 / balance, power=power
        )
        return Weights(
            swapped.y, swapped.x, swapped.correlations, swapped.mean_y, swapped.mean_x
        )
    gain_x = 1 / np.sqrt(x.variances + ridge * balance * x.unit)
    gain_y = 1 / np.sqrt(y.variances + ridge / balance * y.unit)
    whitened = gain_x[:, None] * np.asarray(cross, np.float64) * gain_y[None, :]
    with single_thread():
        squares, vectors = np.linalg.eigh(whitened @ whitened.T)
        correlations = np.sqrt(np.maximum(squares[::-1], 0))
        k = int(np.sum(correlations > CORRELATION_FLOOR * correlations[0]))
        if k == 0:
            raise InputError(
                "The two sides of the anchors do not vary together at all; give "
                "anchors that differ."
            )
        left = vectors[:, ::-1][:, :k]
        factor = correlations[None, :k] ** (power - 1)
        return Weights(
            gain_x[:, None] * left * correlations[None, :k] * factor,
            gain_y[:, None] * (whitened.T @ left) * factor,
            correlations[:k],
            np.zeros(len(gain_x)),
            np.zeros(len(gain_y)),
        )


@jax.jit
def embed(
    rows: Float[AnyArray, "n r"],
    mean: Float[AnyArray, " r"],
    weights: Float[AnyArray, "r k"],
) -> Float[Array, "n k"]:
    """Return unit((rows - mean) weights); a zero row stays zero."""
    centred = jnp.asarray(rows) - mean[None, :]
    return profiles.normalize(jnp.matmul(centred, weights, precision=HIGHEST))


def single_thread() -> AbstractContextManager[object]:
    """Return the context of one thread for small factorisations.

    A threaded one gains little on a free machine and waits for its own threads on a
    busy one, as in `profiles.fit_basis`.
    """
    limit: AbstractContextManager[object] = _libraries().limit(
        limits=1, user_api="blas"
    )
    return limit


@functools.cache
def _libraries() -> threadpoolctl.ThreadpoolController:
    """Return the libraries' controller: looking for them takes longer than an SVD."""
    return threadpoolctl.ThreadpoolController()


@jax.jit
def _gram(rows: Float[AnyArray, "n d"]) -> Float[Array, "d d"]:
    return jnp.matmul(rows.T, rows, precision=HIGHEST)


def _rounding(mean: np.ndarray) -> float:
    """Return the variance that rounding to float32 gives to equal rows."""
    return float(np.finfo(np.float32).eps ** 2 * np.sum(mean**2))


def _axes(
    mean: np.ndarray,
    variances: np.ndarray,
    vectors: np.ndarray,
    dim: int,
    side: str,
    noise: float,
) -> Axes:
    """Return the axes in decreasing order of those variances that are none of error."""
    largest = variances[-1] if len(variances) else 0.0
    kept = variances > max(VARIANCE_FLOOR * largest, noise)
    if not kept.any():
        raise InputError(
            f"All rows of side {side} are the same after their LayerNorm, so nothing "
            f"can vary with the other side; give anchors that differ."
        )
    unit = float(variances[kept].sum() / dim)
    return Axes(mean, variances[kept][::-1], vectors[:, kept][:, ::-1], unit)
