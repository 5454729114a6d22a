"""Cosines of all x with all y students' outputs, by the shorter contraction.

A student is linear after its LayerNorm's standardisation: f = unit(z W) with z the
standardised row and a 1, W the linear map with the LayerNorm's gain and bias folded in.
So the cosines (F W_y^T) z_y^T / |z_y W_y| contract over the d_y + 1 input columns where
F G^T contracts over the shared space's 1024: the same numbers, forward and backward,
from less arithmetic, since the standardised rows never change. Where it is shorter
still, norms come from the small Gram matrix W W^T.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax import profiles
from anchordot_jax.arrays import AnyArray
from anchordot_jax.students import LAYER_NORM_EPSILON, Params
from anchordot_jax.training.rounded_matmul import product

# Least norm that is divided by; its inverse square is a float32.
TINY = 1e-9


def standardized(rows: Float[AnyArray, "n d"]) -> Float[Array, "n e"]:
    """Return the LayerNorm of the unit-norm rows without gain and bias, and a 1.

    Args:
        rows: `[n, d]`, any scale.

    Returns:
        z `[n, d + 1]` with z W = Linear(LayerNorm(x / |x|)), W of `folded`.
    """
    unit = profiles.normalize(jnp.asarray(rows, jnp.float32))
    z = jax.nn.standardize(unit, axis=1, epsilon=LAYER_NORM_EPSILON)
    return jnp.concatenate([z, jnp.ones((len(z), 1), z.dtype)], axis=1)


def folded(side: Params) -> Float[Array, "e k"]:
    """Return one student as a matrix: gain times kernel, and the bias as last row."""
    gain, shift = side["norm"]["scale"], side["norm"]["bias"]
    kernel, bias = side["linear"]["kernel"], side["linear"]["bias"]
    return jnp.concatenate(
        [gain[:, None] * kernel, (shift @ kernel + bias)[None, :]], axis=0
    )


def outputs(side: Params, z: Float[AnyArray, "n e"]) -> Float[Array, "n k"]:
    """Return one student's unit outputs of its `standardized` rows."""
    return profiles.normalize(z @ folded(side))


def standardized_sides(x: AnyArray, y: AnyArray) -> tuple[Any, Any]:
    """Return both sides' rows as `outputs` takes them."""
    return standardized(x), standardized(y)


def cosines(
    params: dict[str, Any],
    z_x: Float[AnyArray, "n ex"],
    z_y: Float[AnyArray, "m ey"],
    *,
    matmul: str | None = None,
) -> Float[Array, "n m"]:
    """Return the cosines of both students' outputs, `[n, m]`.

    Args:
        params: the students' parameters.
        z_x: `standardized` x rows.
        z_y: `standardized` y rows.
        matmul: type that the factors of the products are rounded to. Norms from a Gram
            matrix stay float32, where rounding could leave nothing of a small one.
    """
    z_x, z_y = jnp.asarray(z_x), jnp.asarray(z_y)
    if z_x.shape[1] < z_y.shape[1]:
        return _cosines(folded(params["y"]), z_y, folded(params["x"]), z_x, matmul).T
    return _cosines(folded(params["x"]), z_x, folded(params["y"]), z_y, matmul)


def _cosines(
    long: Array, z_long: Array, short: Array, z_short: Array, matmul: str | None
) -> Array:
    """Return the cosines with the contraction over the second side's columns."""
    if _gram_is_cheaper(z_long, long):
        bridge = product(long, short.T, matmul)
        projected, norms = product(z_long, bridge, matmul), _norms(z_long, long)
    else:
        mapped = product(z_long, long, matmul)
        projected = product(mapped, short.T, matmul)
        norms = _length(mapped * mapped)
    similarities = product(projected / norms[:, None], z_short.T, matmul)
    return similarities / _norms(z_short, short)[None, :]


def _norms(z: Array, matrix: Array) -> Array:
    """Return |z W| of every row."""
    if _gram_is_cheaper(z, matrix):
        return _length((z @ (matrix @ matrix.T)) * z)
    mapped = z @ matrix
    return _length(mapped * mapped)


def _length(squares: Array) -> Array:
    """Return the root of each row's sum; the gradient at 0 is 0."""
    return jnp.sqrt(jnp.maximum(jnp.sum(squares, axis=1), TINY**2))


def _gram_is_cheaper(z: Array, matrix: Array) -> bool:
    """Return whether W W^T, and the rows times it, take less than the rows times W."""
    (n, e), k = z.shape, matrix.shape[1]
    return e * (n + k) < n * k
