"""Cosines of all x with all y students' outputs, by the shorter contraction.

A student is linear after its LayerNorm's standardisation: f = unit(z W) with z the
standardised row and a 1, W the linear map with the LayerNorm's gain and bias folded in.
So the cosines (F W_y^T) z_y^T / |z_y W_y| contract over the d_y + 1 input columns where
F G^T contracts over the shared space's 1024: the same numbers, forward and backward,
from less arithmetic, since the standardised rows never change.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax import profiles
from anchordot_jax.arrays import AnyArray
from anchordot_jax.students import LAYER_NORM_EPSILON, Params


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
    params: dict[str, Any], z_x: Float[AnyArray, "n ex"], z_y: Float[AnyArray, "m ey"]
) -> Float[Array, "n m"]:
    """Return the cosines of both students' outputs, `[n, m]`.

    Args:
        params: the students' parameters.
        z_x: `standardized` x rows.
        z_y: `standardized` y rows.
    """
    if z_x.shape[1] < z_y.shape[1]:
        return _cosines(folded(params["y"]), z_y, folded(params["x"]), z_x).T
    return _cosines(folded(params["x"]), z_x, folded(params["y"]), z_y)


def _cosines(long: Array, z_long: AnyArray, short: Array, z_short: AnyArray) -> Array:
    """Return the cosines with the contraction over the second side's columns."""
    unit = profiles.normalize(z_long @ long)
    norms = jnp.linalg.norm(z_short @ short, axis=1)
    similarities: Array = ((unit @ short.T) @ z_short.T) / norms[None, :]
    return similarities
