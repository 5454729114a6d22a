"""Anchors to profiles to exact low-dimensional coordinates (Section 3.2).

A profile is an item's vector of similarities to the N anchors of its own side. The
cosine of two profiles of different sides depends on them only through
r = min(rank A_x, rank A_y) numbers a row, so the N-dimensional profile is never built
for a pool.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import threadpoolctl
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from anchordot_jax.arrays import AnyArray

# "Eigenvalues of M are clipped below at 1e-6 times their mean" (Appendix B.1).
EIGENVALUE_CLIP = 1e-6


class AnchorBasis(NamedTuple):
    """Thin SVD A = U S V^T of one side's N unit-norm anchors, float64 on the host.

    Directions whose singular value is zero to rounding are left out, so k is the
    numerical rank of A: at most min(N, d).
    """

    left: np.ndarray
    """U, `[N, k]`."""
    singular_values: np.ndarray
    """S, `[k]`, decreasing."""
    right: np.ndarray
    """V, `[d, k]`."""
    mean: np.ndarray
    """Subtracted from every row before it is normalised, `[d]`; zero as published."""


class CoordinateMaps(NamedTuple):
    """Linear maps from embeddings to coordinates whose inner product is the cosine."""

    x: Float[Array, "dx kx"]
    """V_x diag(w_x): scaled right singular vectors of the x anchors."""
    y: Float[Array, "dy ky"]
    """V_y diag(w_y)."""
    bridge: Float[Array, "kx ky"]
    """U_x^T U_y: how the two sides' anchor directions overlap."""
    mean_x: Float[Array, " dx"]
    mean_y: Float[Array, " dy"]


def normalize(x: Float[AnyArray, "n d"]) -> Float[Array, "n d"]:
    """Return the rows scaled to unit Euclidean norm; a zero row stays zero."""
    rows = jnp.asarray(x)
    norm = jnp.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / jnp.where(norm > 0, norm, 1)


def fit_basis(anchors: ArrayLike, *, center: bool = False) -> AnchorBasis:
    """Return the thin SVD of one side's anchors, in float64.

    Args:
        anchors: `[N, d]`, one row an anchor; rows are normalised here.
        center: subtract the anchors' mean before normalising (not in the paper).
    """
    rows = np.asarray(anchors, dtype=np.float64)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    mean = rows.mean(axis=0) if center else np.zeros(rows.shape[1])
    if center:
        rows = rows - mean
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows / np.where(norms > 0, norms, 1)
    # A threaded SVD of a matrix this small gains nothing on a free machine and waits
    # for its own threads, a hundred times as long, on a busy one.
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        left, values, right_t = np.linalg.svd(rows, full_matrices=False)
    floor = values[0] * max(rows.shape) * np.finfo(np.float64).eps
    rank = max(1, int(np.count_nonzero(values > floor)))
    return AnchorBasis(left[:, :rank], values[:rank], right_t[:rank].T, mean)


def spectral_weights(basis: AnchorBasis, gamma: float) -> np.ndarray:
    """Return w = S max(S^2/N, tau)^(-gamma/2), `[k]`: the profile's gain a direction.

    With M = A^T A / N clipped below at tau (Appendix B.1), A M^(-gamma/2) = U diag(w)
    V^T exactly: anchors span V, so the clipped null space of M never contributes.
    Without clipping this is N^(gamma/2) S^(1-gamma).
    """
    n_anchors, dim = len(basis.left), len(basis.right)
    eigenvalues = basis.singular_values**2 / n_anchors
    tau = EIGENVALUE_CLIP * eigenvalues.sum() / dim
    gain: np.ndarray = basis.singular_values * np.maximum(eigenvalues, tau) ** (
        -gamma / 2
    )
    return gain


def profile(
    x: Float[AnyArray, "n d"], basis: AnchorBasis, gamma: float
) -> Float[Array, "n N"]:
    """Return the anchor-relative profiles phi(x) = A M^(-gamma/2) x (Eq. 5).

    Computed as U diag(w) V^T x, see `spectral_weights`. Rows are normalised (and
    centred, where the basis is) first; the profiles themselves are not normalised.
    """
    scaled = jnp.asarray(basis.right * spectral_weights(basis, gamma), jnp.float32)
    rows = _prepare(x, jnp.asarray(basis.mean, jnp.float32))
    left = jnp.asarray(basis.left, jnp.float32)
    return _matmul(_matmul(rows, scaled), left.T)


def coordinate_maps(
    basis_x: AnchorBasis, basis_y: AnchorBasis, gamma: float
) -> CoordinateMaps:
    """Return the maps of `coordinates` for one gamma; both bases share the anchors."""
    return CoordinateMaps(
        x=_rescaled(basis_x, gamma),
        y=_rescaled(basis_y, gamma),
        bridge=jnp.asarray(basis_x.left.T @ basis_y.left, jnp.float32),
        mean_x=jnp.asarray(basis_x.mean, jnp.float32),
        mean_y=jnp.asarray(basis_y.mean, jnp.float32),
    )


@jax.jit
def coordinates(
    x: Float[AnyArray, "n dx"], y: Float[AnyArray, "m dy"], maps: CoordinateMaps
) -> tuple[Float[Array, "n r"], Float[Array, "m r"]]:
    """Return coordinates with z_x . z_y = cos(phi_x(x), phi_y(y)) exactly.

    With p = diag(w) V^T x: |phi| = |p| since U is orthonormal, and
    phi_x . phi_y = p_x^T (U_x^T U_y) p_y. The bridge is multiplied into the side of
    larger rank, so that r = min(rank A_x, rank A_y).
    """
    return coordinates_x(x, maps), coordinates_y(y, maps)


@jax.jit
def coordinates_x(
    x: Float[AnyArray, "n dx"], maps: CoordinateMaps
) -> Float[Array, "n r"]:
    """Return the x side of `coordinates`, which any part of the rows has alone."""
    p = normalize(_matmul(_prepare(x, maps.mean_x), maps.x))
    return p if _x_is_shorter(maps) else _matmul(p, maps.bridge)


@jax.jit
def coordinates_y(
    y: Float[AnyArray, "m dy"], maps: CoordinateMaps
) -> Float[Array, "m r"]:
    """Return the y side of `coordinates`."""
    p = normalize(_matmul(_prepare(y, maps.mean_y), maps.y))
    return _matmul(p, maps.bridge.T) if _x_is_shorter(maps) else p


def _x_is_shorter(maps: CoordinateMaps) -> bool:
    return maps.bridge.shape[0] <= maps.bridge.shape[1]


def _rescaled(basis: AnchorBasis, gamma: float) -> Float[Array, "d k"]:
    # A common factor leaves the cosine as it is; the largest gain becomes 1 so that
    # float32 never over- or underflows.
    weights = spectral_weights(basis, gamma)
    return jnp.asarray(basis.right * (weights / weights.max()), jnp.float32)


def _prepare(
    x: Float[AnyArray, "n d"], mean: Float[Array, " d"]
) -> Float[Array, "n d"]:
    return normalize(normalize(jnp.asarray(x, jnp.float32)) - mean[None, :])


def _matmul(x: Float[Array, "a b"], y: Float[Array, "b c"]) -> Float[Array, "a c"]:
    return jnp.matmul(x, y, precision=jax.lax.Precision.HIGHEST)
