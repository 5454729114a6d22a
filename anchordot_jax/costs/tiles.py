"""Costs that sum or minimise over the anchors, tile by tile.

Such a cost has n m N terms and no matrix product. A tile of rows is kept while a loop
goes through the anchors, so that beside the cost itself only a tile is ever held.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax.arrays import AnyArray
from anchordot_jax.errors import InputError

Step = Callable[[Array, Array], Array]
"""(total so far `[b, m]`, sums x_ik + y_jk of one anchor k `[b, m]`) -> next total."""

# Anchors taken in one go through a tile: the compiler fuses them into one loop, which
# reads and writes the total once.
ANCHORS_AT_ONCE = 16

# Entries of a tile: near a CPU's cache, or enough to keep an accelerator busy.
CPU_TILE = 1 << 17
ACCELERATOR_TILE = 1 << 24


def over_anchors(
    x: Float[AnyArray, "n N"],
    y: Float[AnyArray, "m N"],
    step: Step,
    *,
    start: float,
    padding: float,
    tile: int | None = None,
) -> Float[Array, "n m"]:
    """Return what `step` makes of x_ik + y_jk, anchor after anchor, for all i, j.

    Args:
        x: one number an item and anchor, `[n, N]`.
        y: `[m, N]`.
        step: a function of module level; it is compiled once.
        start: the total before the first anchor.
        padding: value of anchors added for the last block, which `step` must ignore.
        tile: rows of the cost held at once; chosen by their number of columns if None.

    Raises:
        InputError: the sides have another number of anchors, or none.
    """
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or x.shape[1] == 0:
        raise InputError(
            f"Both sides need one column for each of the same anchors, got shapes "
            f"{x.shape} and {y.shape}."
        )
    cost: Array = _over_anchors(
        jnp.asarray(x, jnp.float32),
        jnp.asarray(y, jnp.float32),
        step=step,
        start=start,
        padding=padding,
        tile=min(len(x), tile or tile_rows(len(y))),
    )
    return cost


def tile_rows(n_columns: int) -> int:
    """Return how many rows of the cost to hold at once."""
    on_cpu = jax.default_backend() == "cpu"
    return max(8, (CPU_TILE if on_cpu else ACCELERATOR_TILE) // n_columns)


@functools.partial(jax.jit, static_argnames=("step", "start", "padding", "tile"))
def _over_anchors(
    x: Array, y: Array, *, step: Step, start: float, padding: float, tile: int
) -> Array:
    (n, n_anchors), m = x.shape, len(y)
    blocks = math.ceil(n_anchors / ANCHORS_AT_ONCE)
    added = blocks * ANCHORS_AT_ONCE - n_anchors
    more_rows = math.ceil(n / tile) * tile - n
    x = jnp.pad(x, ((0, more_rows), (0, added)), constant_values=padding)
    y = jnp.pad(y, ((0, 0), (0, added)), constant_values=padding)
    by_anchor = y.T.reshape(blocks, ANCHORS_AT_ONCE, m)

    def one_tile(rows: Array) -> Array:
        columns = rows.T.reshape(blocks, ANCHORS_AT_ONCE, tile)

        def one_block(block: Array, total: Array) -> Array:
            for k in range(ANCHORS_AT_ONCE):
                own, other = columns[block, k], by_anchor[block, k]
                total = step(total, own[:, None] + other[None, :])
            return total

        first = jnp.full((tile, m), start)
        total: Array = jax.lax.fori_loop(0, blocks, one_block, first)
        return total

    totals: Array = jax.lax.map(one_tile, x.reshape(-1, tile, x.shape[1]))
    return totals.reshape(-1, m)[:n]
