"""Two point clouds without pairs, made comparable up to a rotation.

What the methods that use no pairs at all share: each pool is scaled to unit norm,
centred by its own mean, reduced to its principal components where the sides differ in
dimension, and scaled to unit norm again. A rotation of one cloud then is a model: the
linear map unit((unit(x) - mean) kernel) repeats these steps on any row, since the
scaling in the middle of unit, centre, unit, rotate changes no direction.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import threadpoolctl
from sklearn.decomposition import PCA

from anchordot_jax.baselines.protocol import Anchors, Pools, make_model
from anchordot_jax.errors import InputError
from anchordot_jax.maps.linear import linear_side
from anchordot_jax.model import AlignedModel


class Cloud(NamedTuple):
    """One pool's rows in the coordinates in which the rotation is sought, float64."""

    rows: np.ndarray
    """`[n, k]`, unit((unit(x) - mean) kernel)."""
    mean: np.ndarray
    """Mean of the unit-norm rows, `[d]`."""
    kernel: np.ndarray
    """Principal axes `[d, k]`, or the identity."""


def unit(rows: np.ndarray) -> np.ndarray:
    """Return the rows `[n, d]` scaled to unit norm, float64; a zero row stays zero."""
    rows = np.asarray(rows, np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: np.ndarray = rows / np.where(norms > 0, norms, 1)
    return scaled


def centred_cloud(pool: np.ndarray) -> Cloud:
    """Return a pool `[n, d]` scaled, centred and scaled again, with all dimensions."""
    rows = unit(pool)
    mean = rows.mean(axis=0)
    return Cloud(unit(rows - mean), mean, np.eye(rows.shape[1]))


def principal_cloud(pool: np.ndarray, dim: int) -> Cloud:
    """Return a pool's coordinates on its first `dim` principal axes, scaled.

    The axes' signs are fixed by the data, not by the basis it is given in: each
    coordinate's sum of cubes is made positive. The coordinates of a rotated cloud thus
    are those of the cloud itself, as long as no two variances are equal.
    """
    rows = unit(pool)
    # See `profiles.fit_basis` for why one thread.
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        fitted = PCA(n_components=dim, svd_solver="covariance_eigh").fit(rows)
        axes = fitted.components_.T
        coordinates = (rows - fitted.mean_) @ axes
    signs = np.where((coordinates**3).sum(axis=0) < 0, -1.0, 1.0)
    return Cloud(unit(coordinates * signs), fitted.mean_, axes * signs)


def common_dim(pools: Pools, at_most: int | None = None) -> int:
    """Return the largest dimension that both centred pools have, or less if asked.

    Raises:
        InputError: a pool has fewer than two rows.
    """
    for side, pool in zip("xy", pools, strict=True):
        if len(pool) < 2:
            raise InputError(
                f"Aligning without pairs needs pools of at least 2 rows, got "
                f"{len(pool)} in {side}; give the items of each side as its pool."
            )
    least = min(min(int(pool.shape[1]), len(pool) - 1) for pool in pools)
    return least if at_most is None else min(least, at_most)


def same_dimension(pools: Pools, dim: int | None = None) -> tuple[Cloud, Cloud]:
    """Return both pools as clouds of one dimension.

    As they are (centred) if the sides have as many columns and no `dim` is asked for;
    else on each side's first principal axes, `dim` or as many as both sides have.

    Raises:
        InputError: a pool has fewer than two rows.
    """
    common = common_dim(pools, dim)
    if dim is None and pools.x.shape[1] == pools.y.shape[1]:
        return centred_cloud(pools.x), centred_cloud(pools.y)
    return principal_cloud(pools.x, common), principal_cloud(pools.y, common)


def procrustes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the orthogonal `[k, k]` matrix W that minimises |x W - y| (Schoenemann).

    With x^T y = U S V^T, W = U V^T: a reflection is allowed. Float64.

    Args:
        x: `[n, k]`; row i belongs to row i of y.
        y: `[n, k]`.
    """
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        rotation, _ = scipy.linalg.orthogonal_procrustes(
            np.asarray(x, np.float64), np.asarray(y, np.float64)
        )
    found: np.ndarray = rotation
    return found


def rotated_model(
    method: str,
    clouds: tuple[Cloud, Cloud],
    rotation: np.ndarray,
    *,
    anchors: Anchors,
    pools: Pools,
    settings: Any,
    **facts: Any,
) -> AlignedModel:
    """Return the linear maps that compare x's coordinates times W with y's.

    Args:
        method: the method's name.
        clouds: the clouds of x and y, with their means and kernels.
        rotation: W, `[k, k]`.
        anchors: only their dimensions and their number are noted.
        pools: the pools that the clouds were made of.
        settings: the method's settings.
        facts: further JSON values to keep with the model.
    """
    cloud_x, cloud_y = clouds
    params = {
        "x": linear_side(cloud_x.kernel @ rotation, mean=cloud_x.mean),
        "y": linear_side(cloud_y.kernel, mean=cloud_y.mean),
    }
    return make_model(
        method,
        params,
        anchors=anchors,
        pools=pools,
        settings=settings,
        kind="linear",
        dim=len(rotation),
        pairs_used=0,
        **facts,
    )
