"""X^T P Y, the cross-covariance of softly matched rows, without forming the plan P."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax import coupling, geometry
from anchordot_jax.arrays import AnyArray
from anchordot_jax.recipes.canonical import HIGHEST


def plan_cross(
    solved: coupling.Coupling,
    u: Float[AnyArray, "n k"],
    v: Float[AnyArray, "m k"],
    x: Float[AnyArray, "n rx"],
    y: Float[AnyArray, "m ry"],
) -> Float[Array, "rx ry"]:
    """Return X^T P Y, the plan P being made in tiles of some rows and dropped.

    Args:
        solved: the potentials of P.
        u: coordinates that the cost is made of.
        v: the same of the y side.
        x: rows of X.
        y: rows of Y.
    """
    one, other = (solved.f, u, x), (solved.g, v, y)
    # P Y is contracted over the narrower side's columns.
    if x.shape[1] < y.shape[1]:
        transposed: Array = _plan_cross(*other, *one, solved.epsilon)
        return transposed.T
    cross: Array = _plan_cross(*one, *other, solved.epsilon)
    return cross


@jax.jit
def _plan_cross(
    f: Array, u: Array, x: Array, g: Array, v: Array, y: Array, epsilon: Array
) -> Array:
    n = len(u)
    tile = min(n, geometry.tile_rows(len(v)))
    padding = -n % tile

    def blocks(rows: Array, fill: float) -> Array:
        widths = ((0, padding),) + ((0, 0),) * (rows.ndim - 1)
        padded = jnp.pad(rows, widths, constant_values=fill)
        return padded.reshape(-1, tile, *rows.shape[1:])

    def add(total: Array, part: tuple[Array, Array, Array]) -> tuple[Array, None]:
        f, u, x = part
        matched = jnp.matmul(
            coupling.plan_block(u, v, f, g, epsilon), y, precision=HIGHEST
        )
        return total + jnp.matmul(x.T, matched, precision=HIGHEST), None

    parts = (blocks(f, -jnp.inf), blocks(u, 0.0), blocks(x, 0.0))
    start = jnp.zeros((x.shape[1], y.shape[1]), jnp.float32)
    total: Array = jax.lax.scan(add, start, parts)[0]
    return total
