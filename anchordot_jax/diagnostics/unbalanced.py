"""Unbalanced entropic transport between two sets of unit rows (UOT-Gap, Section 3.1).

    min_pi  <C, pi> + eps KL(pi | ab^T) + rho_x KL(pi 1 | a) + rho_y KL(pi^T 1 | b)

with the cosine cost C = 1 - x y^T and the generalised
KL(p | q) = sum p log(p/q) - p + q. The iterations are OTT's Sinkhorn, on the
geometries of `soft_geometry`. The plan is pi_ij = exp((f_i + g_j - C_ij)/eps), as in
`coupling`, so that its blocks and targets serve here too.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from ott.problems.linear import linear_problem
from ott.solvers.linear import sinkhorn

from anchordot_jax import coupling, geometry
from anchordot_jax.arrays import AnyArray
from anchordot_jax.config import CouplingConfig
from anchordot_jax.diagnostics.settings import UnbalancedConfig
from anchordot_jax.diagnostics.soft_geometry import (
    SoftKernelGeometry,
    SoftProfileGeometry,
)


class Unbalanced(NamedTuple):
    """Dual solution of an unbalanced problem, with the evidence that it is one."""

    f: Float[Array, " n"]
    """Potential of x; a exp(-(f - eps log a)/rho_x) are the plan's row sums."""
    g: Float[Array, " m"]
    """Potential of y."""
    a: Float[Array, " n"]
    """Weights of x."""
    b: Float[Array, " m"]
    """Weights of y."""
    epsilon: Float[Array, ""]
    rho_x: Float[Array, ""]
    rho_y: Float[Array, ""]
    error: Float[Array, ""]
    """How far the iterations since the check before the last moved the potentials: the
    larger of their weighted mean absolute changes, in units of the cost."""
    n_iterations: Int[Array, ""]
    converged: Bool[Array, ""]
    """Whether the error fell below the threshold."""


class _Given(NamedTuple):
    """Everything a solve depends on but its shapes and how it is organised."""

    x: Array
    y: Array
    a: Array
    b: Array
    epsilon: Array
    rho_x: Array
    rho_y: Array
    threshold: Array
    max_checks: Array


class _Loop(NamedTuple):
    f: Array
    g: Array
    error: Array
    checks: Array
    finite: Array


class _Soft(NamedTuple):
    """Both marginals' exponents tau, and 1/rho; rho may be infinite."""

    tau_x: Array
    tau_y: Array
    inverse_x: Array
    inverse_y: Array


def solve_unbalanced(
    x: Float[AnyArray, "n d"],
    y: Float[AnyArray, "m d"],
    *,
    a: Float[AnyArray, " n"] | None = None,
    b: Float[AnyArray, " m"] | None = None,
    config: UnbalancedConfig | None = None,
) -> Unbalanced:
    """Return the potentials of the unbalanced optimum for unit rows x and y.

    By products with the stored plan where `config.cost_memory` admits n x m, else tile
    by tile. At each check the constant that the potentials share is set to its optimum
    in closed form (Séjourné et al., AISTATS 2022), without which a large rho takes
    rho/eps times as many iterations.

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
            _given(x, y, a, b, config),
            check_every=config.check_every,
            stored=4 * len(x) * len(y) <= memory,
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

    One program, mapped over the settings; k plans are in memory together. All of them
    iterate until the slowest has converged.

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
            _given(x, y, None, None, config),
            jnp.asarray(epsilons, jnp.float32),
            jnp.asarray(rhos, jnp.float32),
            check_every=config.check_every,
        )
    return solved


def _given(
    x: AnyArray,
    y: AnyArray,
    a: AnyArray | None,
    b: AnyArray | None,
    config: UnbalancedConfig,
) -> _Given:
    """Return the problem as float32 arrays, so that no value of it is compiled in."""
    n, m = len(x), len(y)
    a = np.full(n, 1 / n) if a is None else a
    b = np.full(m, 1 / m) if b is None else b
    numbers = (*(x, y, a, b), config.epsilon, *config.rhos, config.threshold)
    arrays = [jnp.asarray(number, jnp.float32) for number in numbers]
    checks = max(1, config.max_iterations // config.check_every)
    return _Given._make([*arrays, jnp.asarray(checks, jnp.int32)])


@functools.partial(jax.jit, static_argnames=("check_every", "stored"))
def _solve(given: _Given, *, check_every: int, stored: bool) -> Unbalanced:
    return _iterate(given, check_every=check_every, stored=stored, guarded=True)


@functools.partial(jax.jit, static_argnames="check_every")
def _solve_mapped(
    given: _Given, epsilons: Array, rhos: Array, *, check_every: int
) -> Unbalanced:
    def one(epsilon: Array, rho: Array) -> Unbalanced:
        own = given._replace(epsilon=epsilon, rho_x=rho, rho_y=rho)
        # Mapped, a guard would do both of its branches.
        return _iterate(own, check_every=check_every, stored=True, guarded=False)

    return jax.vmap(one)(epsilons, rhos)


def _iterate(
    given: _Given, *, check_every: int, stored: bool, guarded: bool
) -> Unbalanced:
    """Iterate until the potentials stand still; traceable and mappable."""
    x, y, a, b, epsilon, rho_x, rho_y, threshold, max_checks = given
    soft = _Soft(
        tau_x=1 / (1 + epsilon / rho_x),
        tau_y=1 / (1 + epsilon / rho_y),
        inverse_x=1 / rho_x,
        inverse_y=1 / rho_y,
    )
    cost = geometry.cost_block(x, y) if stored else None
    geom = SoftProfileGeometry(
        x, y, epsilon=epsilon, cost=cost, tau_x=soft.tau_x, tau_y=soft.tau_y
    )
    problem = linear_problem.LinearProblem(geom, a=a, b=b)

    def unfinished(loop: _Loop) -> Array:
        return (loop.error >= threshold) & (loop.checks < max_checks) & loop.finite

    def advance(loop: _Loop) -> _Loop:
        before_f, before_g = _shift(problem, soft, loop.f, loop.g, least=10 * threshold)
        if cost is None:
            f, g = _log_block(problem, before_f, before_g, check_every)
        else:
            f, g = _kernel_block(
                problem, soft, cost, before_f, before_g, check_every, guarded=guarded
            )
        error = jnp.maximum(
            jnp.sum(a * jnp.abs(f - before_f)), jnp.sum(b * jnp.abs(g - before_g))
        )
        finite = jnp.isfinite(error)
        return _Loop(
            f=jnp.where(finite, f, loop.f),
            g=jnp.where(finite, g, loop.g),
            error=jnp.where(finite, error, loop.error),
            checks=loop.checks + 1,
            finite=finite,
        )

    # One iteration in the log domain: the plan's sums are then near the marginals, so
    # that a stored one is a kernel that does not underflow.
    f, g = _log_block(problem, epsilon * jnp.log(a), epsilon * jnp.log(b), 1)
    start = _Loop(
        f=f,
        g=g,
        error=jnp.asarray(jnp.inf, jnp.float32),
        checks=jnp.asarray(0, jnp.int32),
        finite=jnp.asarray(True),
    )
    end = jax.lax.while_loop(unfinished, advance, start)
    return Unbalanced(
        f=end.f,
        g=end.g,
        a=a,
        b=b,
        epsilon=epsilon,
        rho_x=rho_x,
        rho_y=rho_y,
        error=end.error,
        n_iterations=end.checks * check_every,
        converged=end.error < threshold,
    )


def _shift(
    problem: linear_problem.LinearProblem,
    soft: _Soft,
    f: Array,
    g: Array,
    *,
    least: Array,
) -> tuple[Array, Array]:
    """Return f + t and g - t for the t that the dual is largest at.

    The plan does not change; t solves A exp(-t/rho_x) = B exp(t/rho_y) where A and B
    are the masses that the potentials of the two sides stand for. A shift below
    `least` is left to the iterations: float32 has them disagree with it by that much,
    and the two would move the potentials back and forth for ever.
    """
    epsilon = problem.geom.epsilon
    mass_x = _log_mass(problem.a, f, epsilon, soft.inverse_x)
    mass_y = _log_mass(problem.b, g, epsilon, soft.inverse_y)
    softness = soft.inverse_x + soft.inverse_y
    some = softness > 0
    shift = (mass_x - mass_y) / jnp.where(some, softness, 1)
    shift = jnp.where(some & (jnp.abs(shift) >= least), shift, 0)
    return f + shift, g - shift


def _log_mass(
    weights: Array, potential: Array, epsilon: Array, inverse: Array
) -> Array:
    """Return log sum a exp(-f'/rho) for weights of sum 1, with f' = f - eps log a.

    For a large rho it is near 0, and its rounding error would be multiplied by rho.
    """
    logs = jnp.log(weights)
    exponents = -inverse * (potential - epsilon * logs)
    small = jnp.max(jnp.abs(exponents)) < 1
    near = jnp.where(small, exponents, 0)
    return jnp.where(
        small,
        jnp.log1p(jnp.sum(weights * jnp.expm1(near))),
        jax.nn.logsumexp(logs + exponents),
    )


def _log_block(
    problem: linear_problem.LinearProblem, f: Array, g: Array, count: int
) -> tuple[Array, Array]:
    """Return the potentials after some of OTT's iterations in the log domain."""
    solver = sinkhorn.Sinkhorn(
        inner_iterations=count, min_iterations=count, max_iterations=count
    )
    out = solver(problem, init=(f, g))
    return out.f, out.g


def _kernel_block(
    problem: linear_problem.LinearProblem,
    soft: _Soft,
    cost: Array,
    f: Array,
    g: Array,
    count: int,
    *,
    guarded: bool,
) -> tuple[Array, Array]:
    """Return what `_log_block` does, by products with the current plan.

    With P = exp((f + g - C)/eps) and the new potentials f + eps log u, g + eps log v,
    the update is u = a exp(-(1 - tau) f/eps) / (P v)^tau. Where a sum of P leaves
    float32's comfortable range the iterations are done in the log domain, if guarded.
    """
    a, b, epsilon = problem.a, problem.b, problem.geom.epsilon
    plan = jnp.exp((f[:, None] + g[None, :] - cost) / epsilon)

    def products() -> tuple[Array, Array]:
        kernel = SoftKernelGeometry(plan, epsilon, soft.tau_x, soft.tau_y)
        absorbed = linear_problem.LinearProblem(
            kernel,
            a=a * jnp.exp(-(1 - soft.tau_x) * f / epsilon),
            b=b * jnp.exp(-(1 - soft.tau_y) * g / epsilon),
        )
        solver = sinkhorn.Sinkhorn(
            lse_mode=False,
            inner_iterations=count,
            min_iterations=count,
            max_iterations=count,
        )
        out = solver(absorbed, init=(jnp.ones_like(f), jnp.ones_like(g)))
        return f + out.f, g + out.g

    if not guarded:
        return products()
    low, high = geometry.SAFE_SUM
    rows, columns = jnp.sum(plan, axis=1), jnp.sum(plan, axis=0)
    safe = jnp.all((rows > low) & (rows < high))
    safe &= jnp.all((columns > low) & (columns < high))
    moved: tuple[Array, Array] = jax.lax.cond(
        safe, products, lambda: _log_block(problem, f, g, count)
    )
    return moved
