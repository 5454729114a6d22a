"""Unbalanced entropic transport between two sets of unit rows (UOT-Gap, Section 3.1).

The problem of `unbalanced_sinkhorn` for the cosine cost C = 1 - x y^T, solved until its
potentials stand still to the last digit. The plan is that of `coupling`'s convention,
pi_ij = exp((f_i + g_j - C_ij)/eps), so that its blocks and targets serve here too.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from anchordot_jax import coupling
from anchordot_jax.arrays import AnyArray
from anchordot_jax.config import CouplingConfig
from anchordot_jax.diagnostics.settings import UnbalancedConfig
from anchordot_jax.transport.half_steps import costs, stored_rows
from anchordot_jax.transport.unbalanced_sinkhorn import Given, Unbalanced, iterate


def solve_unbalanced(
    x: Float[AnyArray, "n d"],
    y: Float[AnyArray, "m d"],
    *,
    a: Float[AnyArray, " n"] | None = None,
    b: Float[AnyArray, " m"] | None = None,
    config: UnbalancedConfig | None = None,
) -> Unbalanced:
    """Return the potentials of the unbalanced optimum for unit rows x and y.

    By products with the stored plan as far as `config.cost_memory` admits, tile by tile
    for the other rows.

    Args:
        x: unit rows of one side.
        y: unit rows of the other side.
        a: positive weights of x that sum to 1; uniform by default.
        b: positive weights of y.
        config: eps, rho, threshold, iterations, memory for the cost.
    """
    config = config or UnbalancedConfig()
    memory = coupling.cost_memory(CouplingConfig(cost_memory=config.cost_memory))
    # OTT broadcasts between ranks on purpose.
    with jax.numpy_rank_promotion("allow"):
        solved: Unbalanced = _solve(
            jnp.asarray(x, jnp.float32),
            jnp.asarray(y, jnp.float32),
            _given(len(x), len(y), a, b, config),
            check_every=config.check_every,
            stored=stored_rows(len(x), len(y), memory),
        )
    return solved


def solve_many(
    x: Float[AnyArray, "n d"],
    y: Float[AnyArray, "m d"],
    epsilons: Float[AnyArray, " k"],
    rhos: Float[AnyArray, " k"],
    *,
    config: UnbalancedConfig | None = None,
) -> Unbalanced:
    """Return the optima of several (eps, rho) at once, stacked along the first axis.

    One program, mapped over the settings; k costs and plans are in memory together,
    whatever `cost_memory` says. All of them iterate until the slowest has converged.

    Args:
        x: unit rows of one side, uniform weights.
        y: unit rows of the other side.
        epsilons: eps of each problem.
        rhos: rho of each problem, for both marginals.
        config: threshold and iterations; its eps and rho are not used.
    """
    config = config or UnbalancedConfig()
    with jax.numpy_rank_promotion("allow"):
        solved: Unbalanced = _solve_mapped(
            jnp.asarray(x, jnp.float32),
            jnp.asarray(y, jnp.float32),
            _given(len(x), len(y), None, None, config),
            jnp.asarray(epsilons, jnp.float32),
            jnp.asarray(rhos, jnp.float32),
            check_every=config.check_every,
        )
    return solved


def _given(
    n: int,
    m: int,
    a: AnyArray | None,
    b: AnyArray | None,
    config: UnbalancedConfig,
) -> Given:
    """Return the problem as float32 arrays, so that no value of it is compiled in."""
    a = np.full(n, 1 / n) if a is None else a
    b = np.full(m, 1 / m) if b is None else b
    numbers = (a, b, config.epsilon, *config.rhos, config.threshold)
    arrays = [jnp.asarray(number, jnp.float32) for number in numbers]
    checks = max(1, config.max_iterations // config.check_every)
    return Given._make([*arrays, jnp.asarray(checks, jnp.int32)])


@functools.partial(jax.jit, static_argnames=("check_every", "stored"))
def _solve(
    x: Array, y: Array, given: Given, *, check_every: int, stored: int
) -> Unbalanced:
    cost = costs(x, y, given.epsilon, stored=stored)
    return iterate(given, cost, check_every=check_every)


@functools.partial(jax.jit, static_argnames="check_every")
def _solve_mapped(
    x: Array,
    y: Array,
    given: Given,
    epsilons: Array,
    rhos: Array,
    *,
    check_every: int,
) -> Unbalanced:
    def one(epsilon: Array, rho: Array) -> Unbalanced:
        own = given._replace(epsilon=epsilon, rho_x=rho, rho_y=rho)
        cost = costs(x, y, epsilon, stored=len(x))
        return iterate(own, cost, check_every=check_every, guarded=False)

    return jax.vmap(one)(epsilons, rhos)
