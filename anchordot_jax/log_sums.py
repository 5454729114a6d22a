"""Sums of exponentials over a cost: computed tile by tile, or read.

XLA's CPU backend reduces rows of more than some ten thousand entries five to ten times
slower than shorter ones, so that a tile has a limit of columns too. The sums of a row's
tiles are merged as they come, each around the largest exponent so far.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax import tiles

HIGHEST = jax.lax.Precision.HIGHEST

# A sum of exponentials outside this range is computed again around its maximum.
SAFE_SUM = (1e-20, 1e30)

# Columns from which on a stored cost is read by tiles, and the rows and columns of one.
WIDE = 8192
READ_TILE = (512, 2048)

Sums = tuple[Array, Array]
"""The largest exponent so far, and the sum of exponentials around it."""


def computed(
    rows: Float[Array, "n r"],
    others: Float[Array, "m r"],
    h: Float[Array, " m"],
    eps: Array,
    vec: Float[Array, " m"] | None,
    *,
    tile: int | None = None,
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Return log |sum_j exp((h_j - C_ij)/eps) vec_j| of every row, and its sign.

    C = 1 - rows others^T is computed a tile at a time.

    Args:
        rows: coordinates of the side that has a sum a row.
        others: coordinates of the side that is summed over.
        h: the potential of the others.
        eps: regularisation.
        vec: weights, which may be negative; None: ones.
        tile: rows of a tile; None: see `tiles.tile_shape`.
    """
    m = len(others)
    height, width = tiles.tile_shape(m)

    def reduce_row(row: Array) -> Sums:
        def add(sums: Sums, start: Array | int, count: int) -> Sums:
            def part(side: Array) -> Array:
                return jax.lax.dynamic_slice_in_dim(side, start, count)

            similarity = jnp.matmul(part(others), row, precision=HIGHEST)
            z = (part(h) + similarity - 1) / eps
            return _merged(sums, z, None if vec is None else part(vec))

        top, total = _folded(add, _nothing((), rows.dtype), m, width)
        return _finite(top) + jnp.log(jnp.abs(total)), jnp.sign(total)

    log_sum, sign = jax.lax.map(reduce_row, rows, batch_size=tile or height)
    return log_sum, sign


def read(
    cost: Float[Array, "n m"], h: Array, own: Array, eps: Array, axis: int
) -> Array:
    """Return eps log sum exp((h - C)/eps) over one axis of a stored cost.

    Args:
        cost: C.
        h: the potential that is summed over.
        own: the other side's potential, which stabilises the sum only.
        eps: regularisation.
        axis: 1: a sum a row; 0: a sum a column.
    """
    if cost.shape[1] > WIDE and jax.default_backend() == "cpu":
        return _read_tiles(cost, h, eps, axis)
    return _read_whole(cost, h, own, eps, axis)


def _read_tiles(cost: Array, h: Array, eps: Array, axis: int) -> Array:
    scaled = h / eps
    order = 1 if axis == 1 else -1

    def of_block(own_start: Array | int, own_count: int) -> Array:
        def add(sums: Sums, start: Array | int, count: int) -> Sums:
            starts, sizes = [own_start, start][::order], [own_count, count][::order]
            block = jax.lax.dynamic_slice(cost, starts, sizes)
            part = jax.lax.dynamic_slice_in_dim(scaled, start, count)
            z = jnp.expand_dims(part, 1 - axis) - block * (1 / eps)
            return _merged(sums, z, None, axis=axis)

        sums = _nothing((own_count,), cost.dtype)
        top, total = _folded(add, sums, cost.shape[axis], READ_TILE[axis])
        return _finite(top) + jnp.log(total)

    return eps * _mapped(of_block, cost.shape[1 - axis], READ_TILE[1 - axis])


def _read_whole(cost: Array, h: Array, own: Array, eps: Array, axis: int) -> Array:
    """Read the cost once where the sums are in range around the other potential.

    Near a solution exp((own + h - C)/eps) sums to the marginal, so the current
    potential takes the place of the maximum and the cost is read once. Where that
    sum leaves float32's comfortable range, the maximum is looked up after all.
    """
    h = h[None, :] if axis == 1 else h[:, None]
    expand = 1 if axis == 1 else 0

    def total(shift: Array) -> Array:
        # Vectors are divided before they meet the cost: XLA would write the divisor,
        # and their sum, as arrays of its size.
        potentials = h / eps + jnp.expand_dims(shift / eps, expand)
        return jnp.sum(jnp.exp(potentials - cost * (1 / eps)), axis=axis)

    def around_maximum(_: Array) -> Array:
        top = _finite(jnp.max(h - cost, axis=axis))
        return top + eps * jnp.log(total(-top))

    def around_potential(sums: Array) -> Array:
        return eps * jnp.log(sums) - own

    # A row of no weight has no potential, and its sum is never used.
    known = jnp.isfinite(own)
    own = jnp.where(known, own, 0.0)
    sums = total(own)
    low, high = SAFE_SUM
    safe = jnp.all((sums > low) & (sums < high) | ~known)
    result: Array = jax.lax.cond(safe, around_potential, around_maximum, sums)
    return result


def _merged(sums: Sums, z: Array, vec: Array | None, *, axis: int = -1) -> Sums:
    """Return the sums with those of sum exp(z) vec over one axis."""
    before, total = sums
    top = jnp.maximum(before, jnp.max(z, axis=axis))
    shift = _finite(top)
    terms = jnp.exp(z - jnp.expand_dims(shift, axis))
    if vec is not None:
        terms = terms * vec
    return top, total * jnp.exp(before - shift) + jnp.sum(terms, axis=axis)


def _nothing(shape: tuple[int, ...], dtype: jnp.dtype) -> Sums:
    return jnp.full(shape, -jnp.inf, dtype), jnp.zeros(shape, dtype)


def _finite(top: Array) -> Array:
    """Return the maximum; 0 where there is none, since no row has any weight."""
    return jnp.where(jnp.isfinite(top), top, 0.0)


def _folded(
    add: Callable[[Sums, Array | int, int], Sums], sums: Sums, extent: int, block: int
) -> Sums:
    """Return the sums after blocks of an axis: whole ones in a loop, then the rest."""
    whole, rest = divmod(extent, block)
    if whole == 1:
        sums = add(sums, 0, block)
    elif whole:
        sums = jax.lax.fori_loop(
            0, whole, lambda i, sums: add(sums, i * block, block), sums
        )
    return add(sums, whole * block, rest) if rest else sums


def _mapped(
    of_block: Callable[[Array | int, int], Array], extent: int, block: int
) -> Array:
    """Return what a function makes of each block of an axis, one after another."""
    whole, rest = divmod(extent, block)
    parts = []
    if whole:
        starts = block * jnp.arange(whole)
        parts.append(jax.lax.map(lambda i: of_block(i, block), starts).ravel())
    if rest:
        parts.append(of_block(whole * block, rest))
    return jnp.concatenate(parts)
