"""The bridge cost: the shortest way from an item to an item through one anchor.

    C_ij = min_k d(x_i, a_k) + d(b_k, y_j)

for anchors a_k and b_k that are a pair: what AnchorDOT's Appendix C.3.1 says of
Gholamzadeh and Sajid's inter-modal bridges. A constant added to all distances of an
item adds it to the item's row or column of C and leaves the plan as it is; with a
single anchor the plan is the product of the marginals.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax.arrays import AnyArray
from anchordot_jax.costs.tiles import over_anchors


def bridge_cost(
    distances_x: Float[AnyArray, "n N"],
    distances_y: Float[AnyArray, "m N"],
    *,
    own_mean: bool = False,
    tile: int | None = None,
) -> Float[Array, "n m"]:
    """Return C_ij = min_k dX_ik + dY_jk, `[n, m]`; never n m N numbers at once.

    Args:
        distances_x: of the x items to the x anchors, `[n, N]`.
        distances_y: of the y items to the y anchors, `[m, N]`, the anchors in the same
            order.
        own_mean: divide each side's distances by their mean first, so that neither
            side's scale decides alone.
        tile: rows of the cost held at once; chosen by their length if None.

    Raises:
        InputError: the sides have another number of anchors, or none.
    """
    x = jnp.asarray(distances_x, jnp.float32)
    y = jnp.asarray(distances_y, jnp.float32)
    if own_mean:
        x, y = _by_mean(x), _by_mean(y)
    return over_anchors(
        x, y, jnp.minimum, start=float("inf"), padding=float("inf"), tile=tile
    )


def _by_mean(distances: Array) -> Array:
    mean = jnp.mean(distances)
    return distances / jnp.where(mean > 0, mean, 1)
