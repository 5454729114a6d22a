"""The two half-steps of Sinkhorn as log-sums: in the log domain, or by the plan.

Everything a solve reads of the cost is one of two sums: over the columns of every row,
eps log sum_j exp((g_j - C_ij)/eps), and over the rows of every column. A half-step is
eps log a less that sum, and with the potential of its own side the sum is the plan's
row sum, r_i = exp((f_i + log_sum_i)/eps): the evidence of a solve costs no pass of its
own.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float

from anchordot_jax import geometry, log_sums

LogSum = Callable[[Array, Array], Array]


class HalfSteps(NamedTuple):
    """What Sinkhorn reads of the cost."""

    rows: LogSum
    """(f, g) -> eps log sum_j exp((g_j - C_ij)/eps), `[n]`; f stabilises it only."""
    columns: LogSum
    """(f, g) -> eps log sum_i exp((f_i - C_ij)/eps), `[m]`; g stabilises it only."""


class Stored(NamedTuple):
    """The first rows of the cost, as many as its memory admits; all of them at best."""

    cost: Float[Array, "k m"]
    """C of the first k rows."""
    rest: geometry.ProfileGeometry | None
    """Geometry of the other rows, which are streamed; None: there are none."""


class Costs(NamedTuple):
    """A cost in the log domain, and what of it is stored."""

    logarithms: HalfSteps
    stored: Stored | None
    """None: all of it is streamed."""


def costs(
    x: Float[Array, "n r"],
    y: Float[Array, "m r"],
    epsilon: Array,
    *,
    stored: int = 0,
    given: Float[Array, "n m"] | None = None,
    kernel: str | None = None,
    mesh: Mesh | None = None,
) -> Costs:
    """Return 1 - x y^T, or a cost given whole, as Sinkhorn reads it.

    Args:
        x: coordinates of x.
        y: coordinates of y.
        epsilon: regularisation.
        stored: rows of the cost to store, see `stored_rows`.
        given: a cost that is no inner product of coordinates.
        kernel: of what is streamed, see `geometry.ProfileGeometry`.
        mesh: the devices that the rows are spread over; then nothing is stored.
    """
    kept = None
    if given is not None:
        kept = Stored(given, None)
    elif stored > 0:
        rest = None
        if stored < len(x):
            rest = geometry.ProfileGeometry(
                x[stored:], y, epsilon=epsilon, kernel=kernel
            )
        kept = Stored(geometry.cost_block(x[:stored], y), rest)
    whole = kept.cost if kept is not None and kept.rest is None else None
    geom = geometry.ProfileGeometry(
        x, y, epsilon=epsilon, cost=whole, mesh=mesh, kernel=kernel
    )
    return Costs(by_logarithms(geom), kept)


def by_logarithms(geom: geometry.ProfileGeometry) -> HalfSteps:
    """Return log-sum-exps over the cost, which is streamed or read."""

    def along(axis: int) -> LogSum:
        return lambda f, g: geom.apply_lse_kernel(f, g, geom.epsilon, axis=axis)[0]

    return HalfSteps(rows=along(1), columns=along(0))


def by_products(stored: Stored, epsilon: Array, f: Array, g: Array) -> HalfSteps:
    """Return products with the current plan, as far as its cost is stored.

    The potentials are absorbed into the kernel (Schmitzer, SIAM J. Sci. Comput. 41(3),
    2019): with P = exp((f + g - C)/epsilon) a half-step is one product with P, which
    reads it once, and no exponential of n x m. Rows that are not stored are streamed.

    Args:
        stored: the cost.
        epsilon: regularisation.
        f: potential of x, absorbed.
        g: potential of y, absorbed.
    """
    k = len(stored.cost)
    top = f[:k]
    plan = jnp.exp((top[:, None] + g[None, :] - stored.cost) / epsilon)
    kernel = geometry.KernelGeometry(kernel_matrix=plan, epsilon=epsilon)

    def rows(new_f: Array, new_g: Array) -> Array:
        sums = kernel.apply_kernel(_factor(new_g, g, epsilon), axis=1)
        log_sum = _unabsorbed(sums, top, epsilon)
        if stored.rest is None:
            return log_sum
        rest = by_logarithms(stored.rest).rows(new_f[k:], new_g)
        return jnp.concatenate([log_sum, rest])

    def columns(new_f: Array, new_g: Array) -> Array:
        sums = kernel.apply_kernel(_factor(new_f[:k], top, epsilon), axis=0)
        if stored.rest is not None:
            rest = by_logarithms(stored.rest).columns(new_f[k:], new_g)
            sums = sums + jnp.exp((rest + g) / epsilon)
        return _unabsorbed(sums, g, epsilon)

    return HalfSteps(rows, columns)


def in_range(weights: Array, potential: Array, log_sum: Array, epsilon: Array) -> Array:
    """Return whether the plan's sums are in float32's comfortable range.

    Rows of no weight have no plan.
    """
    low, high = log_sums.SAFE_SUM
    sums = plan_sums(potential, log_sum, epsilon)
    return jnp.all((sums > low) & (sums < high) | (weights == 0))


def plan_sums(potential: Array, log_sum: Array, epsilon: Array) -> Array:
    """Return the plan's sums over one side, exp((f + log_sum)/epsilon)."""
    return jnp.exp((potential + log_sum) / epsilon)


def updated(weights: Array, log_sum: Array, epsilon: Array) -> Array:
    """Return the half-step eps log a - log_sum; -inf where there is no weight."""
    # As OTT has it: a row of no plan has no sum, and its potential is its weight's.
    known = jnp.where(jnp.isfinite(log_sum), log_sum, 0)
    return epsilon * jnp.log(weights) - known


def _factor(potential: Array, absorbed: Array, epsilon: Array) -> Array:
    """Return exp of what a potential adds to the absorbed one, 0 where that is -inf."""
    factor = jnp.exp((potential - absorbed) / epsilon)
    return jnp.where(jnp.isfinite(absorbed), factor, 0)


def _unabsorbed(sums: Array, absorbed: Array, epsilon: Array) -> Array:
    """Return eps log of the kernel's sums, from the absorbed plan's."""
    return jnp.where(jnp.isfinite(absorbed), epsilon * jnp.log(sums) - absorbed, 0)


def stored_rows(n: int, m: int, memory: int) -> int:
    """Return how many rows of an n x m float32 cost a number of bytes can hold."""
    return min(n, memory // (4 * m))
