"""Sinkhorn for soft marginals: the iterations of an unbalanced problem.

    min_pi  <C, pi> + eps KL(pi | ab^T) + rho_x KL(pi 1 | a) + rho_y KL(pi^T 1 | b)

with the generalised KL(p | q) = sum p log(p/q) - p + q (Chizat et al., Math. Comp. 87,
2018). The plan is pi_ij = exp((f_i + g_j - C_ij)/eps), as in `coupling`. At each check
the constant that the potentials share is set to its optimum in closed form (Séjourné et
al., AISTATS 2022), without which a large rho takes rho/eps times as many iterations.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from anchordot_jax.transport.half_steps import (
    Costs,
    HalfSteps,
    by_products,
    in_range,
)
from anchordot_jax.transport.sinkhorn_blocks import (
    Marginals,
    Soft,
    soft_iterations,
)

Progress = Callable[[int, float], None]
"""Called with the iteration and the error, in units of epsilon, at each check."""


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


class Given(NamedTuple):
    """Everything a solve depends on but the cost, and how it is organised."""

    a: Float[Array, " n"]
    """Weights of x, summing to 1. Rows of no weight have the potential -inf."""
    b: Float[Array, " m"]
    epsilon: Float[Array, ""]
    rho_x: Float[Array, ""]
    rho_y: Float[Array, ""]
    threshold: Float[Array, ""]
    max_checks: Int[Array, ""]


class _Loop(NamedTuple):
    f: Array
    g: Array
    error: Array
    checks: Array
    finite: Array


def iterate(
    given: Given,
    costs: Costs,
    *,
    check_every: int,
    guarded: bool = True,
    init: tuple[Array, Array] | None = None,
    progress: Progress | None = None,
    ordered: bool = True,
) -> Unbalanced:
    """Return the optimum, iterating until the potentials stand still.

    Traceable, and mappable where it is not guarded: a mapped guard would do both of
    its branches.

    Args:
        given: the problem.
        costs: the cost in the log domain, and what of it is stored.
        check_every: iterations between two looks at the error.
        guarded: whether to iterate in the log domain where a sum of the plan is out of
            float32's comfortable range.
        init: potentials to start from.
        progress: told of each check.
        ordered: see `balanced_sinkhorn.iterate`.
    """
    half_steps, stored = costs
    a, b, epsilon, rho_x, rho_y, threshold, max_checks = given
    soft = Soft.of(epsilon, rho_x, rho_y)
    marginals = Marginals(a, b, epsilon)

    def unfinished(loop: _Loop) -> Array:
        return (loop.error >= threshold) & (loop.checks < max_checks) & loop.finite

    def block(half: HalfSteps, f: Array, g: Array) -> tuple[Array, Array]:
        return soft_iterations(half, marginals, soft, f, g, count=check_every)

    def moved(f: Array, g: Array) -> tuple[Array, Array]:
        if stored is None:
            return block(half_steps, f, g)
        products = by_products(stored, epsilon, f, g)
        if not guarded:
            return block(products, f, g)
        safe = in_range(a, f, products.rows(f, g), epsilon)
        safe &= in_range(b, g, products.columns(f, g), epsilon)
        new: tuple[Array, Array] = jax.lax.cond(
            safe,
            lambda f, g: block(products, f, g),
            lambda f, g: block(half_steps, f, g),
            f,
            g,
        )
        return new

    def advance(loop: _Loop) -> _Loop:
        before_f, before_g = _shift(
            marginals, soft, loop.f, loop.g, least=10 * threshold
        )
        f, g = moved(before_f, before_g)
        error = jnp.maximum(_movement(a, f, before_f), _movement(b, g, before_g))
        finite = jnp.isfinite(error)
        if progress is not None:
            jax.debug.callback(
                progress,
                (loop.checks + 1) * check_every,
                error / epsilon,
                ordered=ordered,
            )
        return _Loop(
            f=jnp.where(finite, f, loop.f),
            g=jnp.where(finite, g, loop.g),
            error=jnp.where(finite, error, loop.error),
            checks=loop.checks + 1,
            finite=finite,
        )

    # One iteration in the log domain: the plan's sums are then near the marginals, so
    # that a stored one is a kernel that does not underflow.
    f, g = init or (epsilon * jnp.log(a), epsilon * jnp.log(b))
    f, g = soft_iterations(half_steps, marginals, soft, f, g, count=1)
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


def log_mass(
    weights: Float[Array, " n"],
    potential: Float[Array, " n"],
    epsilon: Float[Array, ""],
    inverse: Float[Array, ""],
) -> Float[Array, " n"]:
    """Return log(r_i / a_i) = -f'_i/rho of the plan's row sums r, f' = f - eps log a.

    This is the first-order condition of the optimum. -inf where a row has no weight.

    Args:
        weights: a.
        potential: f.
        epsilon: eps.
        inverse: 1/rho.
    """
    known = weights > 0
    return jnp.where(known, _exponents(weights, potential, epsilon, inverse), -jnp.inf)


def _exponents(
    weights: Array, potential: Array, epsilon: Array, inverse: Array
) -> Array:
    """Return -f'/rho; 0 where a row has no weight."""
    known = weights > 0
    logs = jnp.log(jnp.where(known, weights, 1))
    return -inverse * (jnp.where(known, potential, 0) - epsilon * logs)


def _movement(weights: Array, after: Array, before: Array) -> Array:
    """Return the weighted mean absolute change; a row of no weight has potential -inf.

    A potential that is not finite elsewhere makes it so too.
    """
    change = jnp.where(weights > 0, after - before, 0)
    return jnp.sum(weights * jnp.abs(change))


def _shift(
    marginals: Marginals,
    soft: Soft,
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
    a, b, epsilon = marginals
    mass_x = _log_total(a, f, epsilon, soft.inverse_x)
    mass_y = _log_total(b, g, epsilon, soft.inverse_y)
    softness = soft.inverse_x + soft.inverse_y
    some = softness > 0
    shift = (mass_x - mass_y) / jnp.where(some, softness, 1)
    shift = jnp.where(some & (jnp.abs(shift) >= least), shift, 0)
    return f + shift, g - shift


def _log_total(
    weights: Array, potential: Array, epsilon: Array, inverse: Array
) -> Array:
    """Return log sum a exp(-f'/rho) for weights of sum 1, with f' = f - eps log a.

    For a large rho it is near 0, and its rounding error would be multiplied by rho.
    """
    exponents = _exponents(weights, potential, epsilon, inverse)
    small = jnp.max(jnp.abs(exponents)) < 1
    near = jnp.where(small, exponents, 0)
    return jnp.where(
        small,
        jnp.log1p(jnp.sum(weights * jnp.expm1(near))),
        jax.nn.logsumexp(jnp.log(weights) + exponents),
    )
