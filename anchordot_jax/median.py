"""The median by counting instead of sorting."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from anchordot_jax.arrays import AnyArray


def median(values: Float[AnyArray, "..."]) -> Float[Array, ""]:
    """Return the median, as `jnp.median` does, by counting instead of sorting.

    The bits of a float32, read as an integer, have the floats' order. 32 counts of the
    entries below a pivot find the integer of the middle one, bit by bit, some twenty
    times sooner on a CPU than a sort. NaN if any entry is.
    """
    flat = jnp.ravel(jnp.asarray(values, jnp.float32))
    bits = jax.lax.bitcast_convert_type(flat, jnp.int32)
    # Negative floats have the reverse order of their bits.
    order = jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    rank = (flat.size - 1) // 2

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low & high) + ((low ^ high) >> 1)
        enough = jnp.sum(order <= middle) > rank
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    ends = np.iinfo(np.int32)
    bounds = (jnp.asarray(ends.min, jnp.int32), jnp.asarray(ends.max, jnp.int32))
    found, _ = jax.lax.fori_loop(0, 32, halve, bounds)
    lower = jax.lax.bitcast_convert_type(
        jnp.where(found < 0, found ^ 0x7FFFFFFF, found), jnp.float32
    )
    # Of an even number the two middle ones are averaged.
    above = jnp.min(flat, where=order > found, initial=jnp.inf)
    alone = (flat.size % 2 == 1) | (jnp.sum(order <= found) > rank + 1)
    middle = jnp.where(alone, lower, (lower + above) / 2)
    return jnp.where(jnp.any(jnp.isnan(flat)), jnp.nan, middle)
