"""Both sides of a fit in coordinates of their principal axes.

Rows are seen through a LayerNorm without gain and bias, so that a linear map of them is
exactly a student. The axes are those of anchors and pool together: no ridge and no
pairing changes them, so one eigendecomposition a side serves every CCA.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from anchordot_jax import row_masses
from anchordot_jax.arrays import AnyArray
from anchordot_jax.recipes import canonical
from anchordot_jax.training import affinity


class Side(NamedTuple):
    """One side's rows in coordinates of their principal axes, float32."""

    axes: canonical.Axes
    """Of anchors and pool together."""
    anchors: np.ndarray
    """`[N, r]`."""
    pool: Float[Array, "n r"]


class Sides(NamedTuple):
    """Both sides, and the marginals of the transport between their pools."""

    x: Side
    y: Side
    a: Float[AnyArray, " n"] | None = None
    b: Float[AnyArray, " m"] | None = None


def prepare(
    anchors_x: AnyArray,
    anchors_y: AnyArray,
    pool_x: AnyArray,
    pool_y: AnyArray,
    *,
    a: np.ndarray | None = None,
    b: np.ndarray | None = None,
) -> Sides:
    """Return both sides in their principal axes: one eigendecomposition a side.

    Args:
        anchors_x: `[N, dx]`; row k belongs to row k of `anchors_y`.
        anchors_y: `[N, dy]`.
        pool_x: unpaired rows `[n, dx]`.
        pool_y: unpaired rows `[m, dy]`.
        a: weights of the x pool, `[n]`; uniform by default.
        b: weights of the y pool, `[m]`.

    Raises:
        InputError: all rows of a side are the same.
    """
    return Sides(
        _side(anchors_x, pool_x, a, "x"),
        _side(anchors_y, pool_y, b, "y"),
        None if a is None else row_masses.marginal(a, len(pool_x)),
        None if b is None else row_masses.marginal(b, len(pool_y)),
    )


def _side(
    anchors: AnyArray, pool: AnyArray, weights: np.ndarray | None, name: str
) -> Side:
    rows, unpaired = features(anchors), features(pool)
    known = canonical.pooled(
        canonical.moments(rows), canonical.moments(unpaired, weights)
    )
    axes = canonical.axes_of_moments(known, name)
    return Side(axes, np.asarray(project(rows, axes)), project(unpaired, axes))


@jax.jit
def features(rows: Float[AnyArray, "n d"]) -> Float[Array, "n d"]:
    """Return LN(x / |x|), the LayerNorm without gain and bias."""
    return affinity.standardized(jnp.asarray(rows))[:, :-1]


def project(rows: AnyArray, axes: canonical.Axes) -> Float[Array, "n r"]:
    """Return rows of features in coordinates of the axes."""
    vectors = jnp.asarray(axes.vectors, jnp.float32)
    mean = jnp.asarray(axes.mean, jnp.float32)
    projected: Array = _project(jnp.asarray(rows), mean, vectors)
    return projected


@jax.jit
def _project(rows: Array, mean: Array, vectors: Array) -> Array:
    return jnp.matmul(rows - mean[None, :], vectors, precision=canonical.HIGHEST)
