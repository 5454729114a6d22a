"""KLOT: the divergence between a teacher's and a student's transport plan (SOTAlign).

Both plans come from an affinity matrix by entropic optimal transport,
P = argmax <P, K> + epsilon H(P) with uniform marginals, and
KLOT(K || K*) = KL(P* || P). Roschmann et al. 2026 (arXiv:2602.23353), Theorem 5.1: its
gradient to K is (P - P*) / epsilon, without a backward pass through Sinkhorn.

The plan is exp(K / epsilon + u + v); u and v are the log-domain potentials, already
divided by epsilon, and the total mass is 1.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax.arrays import AnyArray

# A scaled kernel's smallest sum: a row or column that lost all its mass gets a large
# factor instead of a division by zero.
TINY = 1e-30

# After so many iterations the potentials move so little that what is left of them fits
# a float32 factor.
LOG_DOMAIN_ITERATIONS = 10


class Potentials(NamedTuple):
    """What makes a plan of an affinity: P = exp(K / epsilon + u + v)."""

    u: Float[Array, " n"]
    v: Float[Array, " m"]


class Teacher(NamedTuple):
    """A teacher's plan P* with the numbers of it that KLOT needs."""

    plan: Float[Array, "n m"]
    rows: Float[Array, " n"]
    """Sums of the rows."""
    columns: Float[Array, " m"]
    """Sums of the columns."""
    log_plan: Float[Array, ""]
    """sum P* log P*, minus the entropy."""


def sinkhorn_potentials(
    affinity: Float[AnyArray, "n m"],
    epsilon: float,
    n_iterations: int,
    *,
    symmetric: bool = True,
) -> Potentials:
    """Return the potentials after a fixed number of log-domain Sinkhorn iterations.

    From zero, u <- -log n - LSE_j(K_ij / epsilon + v_j), then v in the same way. As in
    the authors' code no test stops it early.

    Args:
        affinity: K `[n, m]`, larger is closer.
        epsilon: regularisation.
        n_iterations: pairs of half steps.
        symmetric: afterwards replace each potential by the mean of itself and of one
            more half step from the other; then neither marginal is exact.
    """
    scaled = jnp.asarray(affinity) / epsilon
    n, m = scaled.shape

    def iteration(_: int, potentials: Potentials) -> Potentials:
        u = _half_step(scaled + potentials.v[None, :], axis=1)
        return Potentials(u, _half_step(scaled + u[:, None], axis=0))

    zeros = Potentials(jnp.zeros(n, scaled.dtype), jnp.zeros(m, scaled.dtype))
    potentials: Potentials = jax.lax.fori_loop(0, n_iterations, iteration, zeros)
    if not symmetric:
        return potentials
    u = _half_step(scaled + potentials.v[None, :], axis=1)
    v = _half_step(scaled + potentials.u[:, None], axis=0)
    return Potentials((potentials.u + u) / 2, (potentials.v + v) / 2)


def log_plan(
    affinity: Float[AnyArray, "n m"], epsilon: float, potentials: Potentials
) -> Float[Array, "n m"]:
    """Return K / epsilon + u + v, the logarithm of the plan."""
    return (
        jnp.asarray(affinity) / epsilon + potentials.u[:, None] + potentials.v[None, :]
    )


def sinkhorn_plan(
    affinity: Float[AnyArray, "n m"],
    epsilon: float,
    n_iterations: int,
    *,
    symmetric: bool = True,
) -> Float[Array, "n m"]:
    """Return the plan of `sinkhorn_potentials`, total mass 1 at convergence."""
    potentials = sinkhorn_potentials(
        affinity, epsilon, n_iterations, symmetric=symmetric
    )
    return jnp.exp(log_plan(affinity, epsilon, potentials))


def teacher_plan(
    affinity: Float[AnyArray, "n m"], epsilon: float, n_iterations: int
) -> Teacher:
    """Return the teacher's plan by the same definition, with its sums."""
    potentials = sinkhorn_potentials(affinity, epsilon, n_iterations)
    return _with_sums(log_plan(affinity, epsilon, potentials))


@functools.partial(jax.jit, static_argnums=(1, 2))
def fast_teacher_plan(
    affinity: Float[AnyArray, "n m"], epsilon: float, n_iterations: int
) -> Teacher:
    """Return what `teacher_plan` does, the later iterations in kernel form.

    The iterates are the same but for rounding, in a third of the time.
    """
    first = min(n_iterations, LOG_DOMAIN_ITERATIONS)
    if first == n_iterations:
        return teacher_plan(affinity, epsilon, n_iterations)
    near = sinkhorn_potentials(affinity, epsilon, first, symmetric=False)
    _, potentials = warm_plan(affinity, epsilon, near.v, n_iterations - first)
    return _with_sums(log_plan(affinity, epsilon, potentials))


def klot(
    affinity: Float[AnyArray, "n m"],
    teacher_affinity: Float[AnyArray, "n m"],
    *,
    epsilon: float = 0.05,
    epsilon_teacher: float = 0.01,
    n_iterations: int = 100,
    n_iterations_teacher: int = 100,
) -> Float[Array, ""]:
    """Return KL(P* || P) = sum P* (log P* - log P); no gradient reaches the teacher.

    Its gradient to the affinity is (P - P*) / epsilon.

    Args:
        affinity: the students' K `[n, m]`, cosines.
        teacher_affinity: K* `[n, m]`, cosines.
        epsilon: regularisation of the students' plan.
        epsilon_teacher: regularisation of the teacher's plan.
        n_iterations: Sinkhorn iterations of the students' plan, from zero.
        n_iterations_teacher: Sinkhorn iterations of the teacher's plan.
    """
    fixed = jax.lax.stop_gradient(jnp.asarray(teacher_affinity))
    teacher = teacher_plan(fixed, epsilon_teacher, n_iterations_teacher)
    held = jax.lax.stop_gradient(jnp.asarray(affinity))
    potentials = sinkhorn_potentials(held, epsilon, n_iterations)
    plan = jnp.exp(log_plan(held, epsilon, potentials))
    return divergence(jnp.asarray(affinity), teacher, plan, potentials, epsilon)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def divergence(
    affinity: Float[Array, "n m"],
    teacher: Teacher,
    plan: Float[Array, "n m"],
    potentials: Potentials,
    epsilon: float,
) -> Float[Array, ""]:
    """Return KL(P* || P) of a solved student plan; gradient (P - P*) / epsilon to K.

    The other arguments are constants: no gradient flows to them. With log P = K/epsilon
    + u + v, sum P* log P needs no matrix but K and P*.
    """
    del plan
    crossed = (
        jnp.vdot(teacher.plan, affinity) / epsilon
        + jnp.vdot(teacher.rows, potentials.u)
        + jnp.vdot(teacher.columns, potentials.v)
    )
    return teacher.log_plan - crossed


def _divergence_forward(
    affinity: Array,
    teacher: Teacher,
    plan: Array,
    potentials: Potentials,
    epsilon: float,
) -> tuple[Array, tuple[Array, Teacher, Potentials]]:
    value = divergence(affinity, teacher, plan, potentials, epsilon)
    return value, (plan, teacher, potentials)


def _divergence_backward(
    epsilon: float, kept: tuple[Array, Teacher, Potentials], cotangent: Array
) -> tuple[Array, Teacher, Array, Potentials]:
    plan, teacher, potentials = kept
    gradient = (cotangent / epsilon) * (plan - teacher.plan)
    nothing = jax.tree.map(jnp.zeros_like, (teacher, plan, potentials))
    return gradient, *nothing


divergence.defvjp(_divergence_forward, _divergence_backward)


def warm_plan(
    affinity: Float[AnyArray, "n m"],
    epsilon: float,
    v: Float[AnyArray, " m"],
    n_iterations: int,
) -> tuple[Float[Array, "n m"], Potentials]:
    """Return the plan and its potentials after a few iterations from a known v.

    The iterations and the last averaged half step are those of `sinkhorn_potentials`,
    in kernel form: v is absorbed into exp(K / epsilon + v - row maximum), so that every
    entry is in [0, 1] and every row holds a 1, and a half step is one product of that
    matrix and a vector. From v = 0 the two agree to rounding; from the potentials of
    the previous training step a few iterations are enough.

    Args:
        affinity: K `[n, m]`.
        epsilon: regularisation.
        v: column potentials to start from.
        n_iterations: pairs of half steps, at least 1.
    """
    shifted = jnp.asarray(affinity) / epsilon + jnp.asarray(v)[None, :]
    top = jnp.max(shifted, axis=1)
    kernel = jnp.exp(shifted - top[:, None])
    n, m = kernel.shape

    def iteration(_: int, factors: tuple[Array, Array]) -> tuple[Array, Array]:
        a = 1 / (n * jnp.maximum(kernel @ factors[1], TINY))
        return a, 1 / (m * jnp.maximum(a @ kernel, TINY))

    start = (jnp.ones(n, kernel.dtype), jnp.ones(m, kernel.dtype))
    a, b = jax.lax.fori_loop(0, n_iterations, iteration, start)
    # b is already the half step from a: only a moves, to a geometric mean.
    a = jnp.sqrt(a / (n * jnp.maximum(kernel @ b, TINY)))
    plan = kernel * a[:, None] * b[None, :]
    return plan, Potentials(jnp.log(a) - top, jnp.log(b) + jnp.asarray(v))


def _half_step(exponents: Float[Array, "n m"], axis: int) -> Float[Array, " k"]:
    """Return -log k - LSE over the axis, k the number of sums: uniform marginals."""
    sums = jax.nn.logsumexp(exponents, axis=axis)
    return -sums - jnp.log(jnp.asarray(len(sums), sums.dtype))


def _with_sums(log_p: Float[Array, "n m"]) -> Teacher:
    plan = jnp.exp(log_p)
    return Teacher(plan, plan.sum(axis=1), plan.sum(axis=0), jnp.sum(plan * log_p))
