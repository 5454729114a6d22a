"""Sinkhorn for given marginals: over-relaxed or Anderson-accelerated, safeguarded.

    min_pi  <C, pi> - epsilon H(pi)   with   pi 1 = a, pi^T 1 = b   (Eq. 7)

Every few iterations the loop looks at the column error, which the iterations leave
behind without a pass of its own. If the faster iterations make it grow, the last block
of them is thrown away, and plain ones, which always converge, take over.
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
    History,
    Iterate,
    Marginals,
    column_error,
    first_iterate,
    relaxed_iterations,
)

Progress = Callable[[int, float], None]
"""Called with the Sinkhorn iteration and the marginal error at each check."""

# Acceleration ends when the error grows by more than this from check to check; a
# smaller rise is float32 noise.
GROWTH = 1.05


class Balanced(NamedTuple):
    """Dual solution, with the evidence that it is one."""

    f: Float[Array, " n"]
    g: Float[Array, " m"]
    error: Float[Array, ""]
    """L1 distance between the plan's column sums and b."""
    checks: Int[Array, ""]
    errors: Float[Array, " checks"]
    """The error at every check; NaN after the last one."""


class _Loop(NamedTuple):
    iterate: Iterate
    history: History | None
    omega: Float[Array, ""]
    accelerated: Bool[Array, ""]
    error: Float[Array, ""]
    checks: Int[Array, ""]
    diverged: Bool[Array, ""]
    errors: Float[Array, " checks"]


def iterate(
    costs: Costs,
    marginals: Marginals,
    *,
    init: tuple[Array, Array],
    omega: Array,
    tolerance: Array,
    anderson: int | None,
    check_every: int,
    max_checks: int,
    progress: Progress | None,
    ordered: bool,
) -> Balanced:
    """Return the potentials once the column error is below the tolerance.

    Args:
        costs: the cost in the log domain, and what of it is stored.
        marginals: weights of both sides.
        init: potentials to start from.
        omega: step length of the over-relaxed updates.
        tolerance: column error that is enough.
        anderson: length of the history that Anderson acceleration uses; None: none.
        check_every: iterations between two looks at the error.
        max_checks: how often to look at most.
        progress: told of each check.
        ordered: whether the calls of progress come in order, which JAX can promise on
            one device only.
    """
    half_steps, stored = costs
    a, b, epsilon = marginals

    def unfinished(loop: _Loop) -> Array:
        running = (loop.error >= tolerance) & (loop.checks < max_checks)
        return running & ~loop.diverged

    def block(half: HalfSteps, loop: _Loop) -> tuple[Iterate, History | None]:
        return relaxed_iterations(
            half,
            marginals,
            loop.iterate,
            loop.history,
            omega=loop.omega,
            accelerated=loop.accelerated,
            count=check_every,
        )

    def moved(loop: _Loop) -> tuple[Iterate, History | None]:
        if stored is None:
            return block(half_steps, loop)
        f, g, log_rows, log_columns = loop.iterate
        safe = in_range(a, f, log_rows, epsilon)
        safe &= in_range(b, g, log_columns, epsilon)
        new: tuple[Iterate, History | None] = jax.lax.cond(
            safe,
            lambda loop: block(by_products(stored, epsilon, f, g), loop),
            lambda loop: block(half_steps, loop),
            loop,
        )
        return new

    def advance(loop: _Loop) -> _Loop:
        new, history = moved(loop)
        error = column_error(marginals, new)
        finite = jnp.isfinite(error)
        if progress is not None:
            jax.debug.callback(
                progress, (loop.checks + 1) * check_every, error, ordered=ordered
            )
        good = error < GROWTH * loop.error
        plain = (loop.omega == 1.0) & ~loop.accelerated
        # Plain iterations go on from where the faster ones were still on the way.
        kept = finite & (good | plain)
        return _Loop(
            iterate=jax.tree.map(
                lambda after, before: jnp.where(kept, after, before),
                new,
                loop.iterate,
            ),
            history=history,
            omega=jnp.where(good, loop.omega, 1.0),
            accelerated=loop.accelerated & good,
            error=jnp.where(kept, error, loop.error),
            checks=loop.checks + 1,
            diverged=~finite & plain,
            errors=loop.errors.at[loop.checks].set(error),
        )

    # One plain iteration in the log domain: the plan's sums are then near the
    # marginals, so that a stored one is a kernel that does not underflow, and
    # over-relaxation does not overshoot from potentials that are far off.
    start = _Loop(
        iterate=first_iterate(half_steps, marginals, *init),
        history=History.empty(len(a), anderson) if anderson else None,
        omega=omega,
        accelerated=jnp.asarray(anderson is not None),
        error=jnp.asarray(jnp.inf, jnp.float32),
        checks=jnp.asarray(0, jnp.int32),
        diverged=jnp.asarray(False),
        errors=jnp.full(max_checks, jnp.nan, jnp.float32),
    )
    end = jax.lax.while_loop(unfinished, advance, start)
    return Balanced(end.iterate.f, end.iterate.g, end.error, end.checks, end.errors)
