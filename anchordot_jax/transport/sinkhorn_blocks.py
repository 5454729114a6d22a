"""Some Sinkhorn iterations in a row: over-relaxed, by Anderson acceleration, or soft.

The iterations start with the half-step of g. What `relaxed_iterations` hands on holds
the sums that the last potentials have with the cost: the plan's marginals, and so the
error, are then known, and the column sums are those that the next half-step of g begins
with. No pass over the cost is made for evidence alone.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from ott.solvers.linear import acceleration

from anchordot_jax.transport.half_steps import HalfSteps, plan_sums, updated


class Marginals(NamedTuple):
    """Weights of both sides, and the regularisation."""

    a: Float[Array, " n"]
    b: Float[Array, " m"]
    epsilon: Float[Array, ""]


class Iterate(NamedTuple):
    """Potentials and what they sum to: see `half_steps`."""

    f: Float[Array, " n"]
    g: Float[Array, " m"]
    log_rows: Float[Array, " n"]
    """eps log sum_j exp((g_j - C_ij)/eps)."""
    log_columns: Float[Array, " m"]
    """eps log sum_i exp((f_i - C_ij)/eps)."""


class History(NamedTuple):
    """The last potentials f that iterations began with, and those they led to."""

    before: Float[Array, "n k"]
    after: Float[Array, "n k"]
    recorded: Int[Array, ""]
    """Iterations recorded so far, of which the last k are kept."""

    @classmethod
    def empty(cls, n: int, memory: int) -> "History":
        """Return a history of nothing."""
        nothing = jnp.zeros((n, memory), jnp.float32)
        return cls(nothing, nothing, jnp.asarray(0, jnp.int32))

    def push(self, before: Array, after: Array) -> "History":
        """Return the history with one more iteration, without the oldest."""
        return History(
            before=jnp.concatenate([self.before[:, 1:], before[:, None]], axis=1),
            after=jnp.concatenate([self.after[:, 1:], after[:, None]], axis=1),
            recorded=self.recorded + 1,
        )


def column_error(marginals: Marginals, iterate: Iterate) -> Float[Array, ""]:
    """Return the L1 distance of the plan's column sums from b, at this very iterate."""
    sums = plan_sums(iterate.g, iterate.log_columns, marginals.epsilon)
    return jnp.sum(jnp.abs(sums - marginals.b))


def first_iterate(
    half_steps: HalfSteps, marginals: Marginals, f: Array, g: Array
) -> Iterate:
    """Return the iterate after one plain iteration: three half-steps' passes."""
    a, b, epsilon = marginals
    g = updated(b, half_steps.columns(f, g), epsilon)
    log_rows = half_steps.rows(f, g)
    f = updated(a, log_rows, epsilon)
    return Iterate(f, g, log_rows, half_steps.columns(f, g))


def relaxed_iterations(
    half_steps: HalfSteps,
    marginals: Marginals,
    iterate: Iterate,
    history: History | None,
    *,
    omega: Array,
    accelerated: Array,
    count: int,
) -> tuple[Iterate, History | None]:
    """Return the iterate after some iterations, 2 `count` passes over the cost.

    Args:
        half_steps: sums over the cost.
        marginals: weights of both sides.
        iterate: potentials before, with their sums.
        history: of earlier iterations; None: no Anderson acceleration.
        omega: step length of f <- (1 - omega) f + omega f_new.
        accelerated: whether to extrapolate from the history.
        count: iterations. The last one ends with its plain potentials, whose error is
            then that of the plan.
    """
    a, b, epsilon = marginals
    relax = acceleration.Momentum()

    def iteration(
        i: Array, carry: tuple[Iterate, History | None]
    ) -> tuple[Iterate, History | None]:
        before, history = carry
        g = relax(omega, before.g, updated(b, before.log_columns, epsilon))
        log_rows = half_steps.rows(before.f, g)
        f = relax(omega, before.f, updated(a, log_rows, epsilon))
        if history is not None:
            history = history.push(before.f, f)
            f = jnp.where(accelerated & (i < count - 1), _extrapolated(history, f), f)
        return Iterate(f, g, log_rows, half_steps.columns(f, g)), history

    moved: tuple[Iterate, History | None] = jax.lax.fori_loop(
        0, count, iteration, (iterate, history)
    )
    return moved


# OTT's own ridge, 1e-2, averages nearly equal steps and then lags behind plain
# iterations at a small epsilon.
ANDERSON_RIDGE = 1e-4


def _extrapolated(history: History, f: Array) -> Array:
    """Return OTT's Anderson extrapolation of a full history; f while it fills."""
    memory = history.before.shape[1]
    accelerate = acceleration.AndersonAcceleration(
        memory=memory, ridge_identity=ANDERSON_RIDGE
    )
    found = accelerate.extrapolation(history.before, history.after)
    return jnp.where(history.recorded >= memory, found, f)


class Soft(NamedTuple):
    """Both marginals' exponents tau = rho/(rho + eps), and 1/rho; rho may be infinite.

    A softened half-step is eps log a - tau log_sum (Chizat et al., Math. Comp. 87,
    2018): in terms of the potential f - eps log a of the plan's density against ab^T
    it is -tau eps log sum_j b_j exp((g'_j - C_ij)/eps). OTT has a tau of its own. It is
    a static number, so that every rho would be compiled anew and none could be mapped
    over, and it multiplies eps log a too, which solves for the measure 1.
    """

    tau_x: Array
    tau_y: Array
    inverse_x: Array
    inverse_y: Array

    @classmethod
    def of(cls, epsilon: Array, rho_x: Array, rho_y: Array) -> "Soft":
        """Return the exponents of a problem."""
        return cls(
            tau_x=1 / (1 + epsilon / rho_x),
            tau_y=1 / (1 + epsilon / rho_y),
            inverse_x=1 / rho_x,
            inverse_y=1 / rho_y,
        )


def soft_iterations(
    half_steps: HalfSteps,
    marginals: Marginals,
    soft: Soft,
    f: Array,
    g: Array,
    *,
    count: int,
) -> tuple[Array, Array]:
    """Return the potentials after some plain iterations for soft marginals."""
    a, b, epsilon = marginals

    def iteration(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        f, g = carry
        g = updated(b, soft.tau_y * half_steps.columns(f, g), epsilon)
        return updated(a, soft.tau_x * half_steps.rows(f, g), epsilon), g

    moved: tuple[Array, Array] = jax.lax.fori_loop(0, count, iteration, (f, g))
    return moved
