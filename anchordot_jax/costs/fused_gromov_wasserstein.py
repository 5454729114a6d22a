"""Entropic fused Gromov-Wasserstein: a plan that also keeps each side's geometry.

    min_P (1 - alpha) sum_ijkl (Cx_ik - Cy_jl)^2 P_ij P_kl + alpha <C, P> - epsilon H(P)

over plans with uniform marginals (Peyre et al., ICML 2016; Vayer et al., 2019;
AnchorDOT, Appendix C.3.3, whose alpha weighs the linear term: the opposite of POT's).
With alpha = 0 no pair is used. The problem is not convex: the plan that is found
depends on the start.

The iterations are OTT's projected mirror steps: linearise, solve with Sinkhorn, repeat.
OTT's linearisation lacks the factor 2 of the quadratic term's gradient, and its linear
term has a penalty instead of alpha, so that its penalty is alpha / (2 (1 - alpha)) and
its epsilon is epsilon / (2 (1 - alpha)). Here all terms are divided by epsilon first,
which leaves the plan as it is: structures scaled by sqrt(2 (1 - alpha) / epsilon), a
linear cost of alpha C / epsilon, and an epsilon of 1.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
from ott.geometry import geometry
from ott.initializers.quadratic import initializers
from ott.problems.quadratic import quadratic_problem
from ott.solvers.linear import sinkhorn
from ott.solvers.quadratic import gromov_wasserstein

from anchordot_jax import coupling
from anchordot_jax.arrays import AnyArray
from anchordot_jax.config import CouplingConfig
from anchordot_jax.errors import InputError

# OTT's defaults stop earlier, with plans that differ from POT's in the second digit.
MAX_ITERATIONS = 200
THRESHOLD = 1e-6


class FusedPlan(NamedTuple):
    """A plan with the evidence that the iterations have ended by themselves."""

    log_plan: Float[Array, "n m"]
    """log P; P sums to 1."""
    n_iterations: Int[Array, ""]
    """Linearisations that were solved."""
    converged: Bool[Array, ""]
    """Whether the objective settled and every Sinkhorn solve reached its tolerance."""


def fused_gromov_wasserstein(
    cost_x: Float[AnyArray, "n n"],
    cost_y: Float[AnyArray, "m m"],
    cost: Float[AnyArray, "n m"] | None,
    *,
    alpha: float,
    epsilon: float,
    init: Float[AnyArray, "n m"] | None = None,
    max_iterations: int = MAX_ITERATIONS,
    threshold: float = THRESHOLD,
    config: CouplingConfig | None = None,
) -> Float[Array, "n m"]:
    """Return the log plan `[n, m]`; `solve` also says how it was reached.

    Args:
        cost_x: distances within the x side, `[n, n]`, symmetric.
        cost_y: distances within the y side, `[m, m]`, symmetric.
        cost: linear cost `[n, m]`; None only with alpha = 0.
        alpha: weight of the linear term in [0, 1]: 1 is plain entropic transport, 0 is
            entropic Gromov-Wasserstein.
        epsilon: regularisation, in units of the objective above.
        init: plan to start from, `[n, m]`; the product of the marginals by default,
            which is a saddle for symmetric structures.
        max_iterations: most linearisations.
        threshold: relative change of the linearised objective at which to stop.
        config: tolerance and iterations of each Sinkhorn solve.

    Raises:
        InputError: shapes that do not match, alpha outside [0, 1], epsilon not > 0, or
            no linear cost where one is needed.
    """
    return solve(
        cost_x,
        cost_y,
        cost,
        alpha=alpha,
        epsilon=epsilon,
        init=init,
        max_iterations=max_iterations,
        threshold=threshold,
        config=config,
    ).log_plan


def solve(
    cost_x: Float[AnyArray, "n n"],
    cost_y: Float[AnyArray, "m m"],
    cost: Float[AnyArray, "n m"] | None,
    *,
    alpha: float,
    epsilon: float,
    init: Float[AnyArray, "n m"] | None = None,
    max_iterations: int = MAX_ITERATIONS,
    threshold: float = THRESHOLD,
    config: CouplingConfig | None = None,
) -> FusedPlan:
    """Return the log plan and whether it has converged; see the function above."""
    config = config or CouplingConfig()
    n, m = len(cost_x), len(cost_y)
    _check(cost_x, cost_y, cost, init, alpha, epsilon)
    if alpha == 1 and cost is not None:
        return _solve_linear(jnp.asarray(cost, jnp.float32), epsilon, config)
    linear = (
        jnp.zeros((n, m), jnp.float32)
        if cost is None
        else jnp.asarray(cost, jnp.float32)
    )
    product = jnp.full((n, m), 1 / (n * m), jnp.float32)
    scale = math.sqrt(2 * (1 - alpha) / epsilon)
    # OTT broadcasts between ranks on purpose.
    with jax.numpy_rank_promotion("allow"):
        found: FusedPlan = _solve(
            scale * jnp.asarray(cost_x, jnp.float32),
            scale * jnp.asarray(cost_y, jnp.float32),
            alpha / epsilon * linear,
            product if init is None else jnp.asarray(init, jnp.float32),
            max_iterations=max_iterations,
            threshold=threshold,
            config=config,
        )
    return found


def _solve_linear(cost: Array, epsilon: float, config: CouplingConfig) -> FusedPlan:
    solved = coupling.solve_cost(cost, epsilon, config=config)
    log_plan = coupling.log_plan(solved, cost)
    return FusedPlan(log_plan, jnp.asarray(1, jnp.int32), solved.converged)


@functools.partial(jax.jit, static_argnames=("max_iterations", "threshold", "config"))
def _solve(
    structure_x: Array,
    structure_y: Array,
    linear: Array,
    init: Array,
    *,
    max_iterations: int,
    threshold: float,
    config: CouplingConfig,
) -> FusedPlan:
    """Return the plan of the problem whose epsilon is 1."""
    problem = quadratic_problem.QuadraticProblem(
        geometry.Geometry(structure_x),
        geometry.Geometry(structure_y),
        geometry.Geometry(linear),
        fused_penalty=1.0,
    )
    check_every = min(config.check_every, config.max_iterations)
    solver = gromov_wasserstein.GromovWasserstein(
        sinkhorn.Sinkhorn(
            threshold=config.tolerance,
            inner_iterations=check_every,
            max_iterations=config.max_iterations // check_every * check_every,
        ),
        epsilon=1.0,
        initializer=initializers.QuadraticInitializer(init_coupling=init),
        warm_start=True,
        max_iterations=max_iterations,
        min_iterations=min(5, max_iterations - 1),
        threshold=threshold,
    )
    # TF32 has an error that is not small next to epsilon.
    with jax.default_matmul_precision("highest"):
        out = solver(problem)
    state = out.linear_state
    log_plan = state.f[:, None] + state.g[None, :] - state.geom.cost_matrix
    n_iterations = jnp.sum(~jnp.isnan(out.linear_convergence))
    return FusedPlan(log_plan, n_iterations, out.converged)


def _check(
    cost_x: AnyArray,
    cost_y: AnyArray,
    cost: AnyArray | None,
    init: AnyArray | None,
    alpha: float,
    epsilon: float,
) -> None:
    if not 0 <= alpha <= 1:
        raise InputError(f"alpha must be a number in [0, 1], got {alpha!r}.")
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InputError(f"epsilon must be a finite number > 0, got {epsilon!r}.")
    for name, structure in (("cost_x", cost_x), ("cost_y", cost_y)):
        if structure.ndim != 2 or structure.shape[0] != structure.shape[1]:
            raise InputError(f"{name} must be square, got shape {structure.shape}.")
    if cost is None and alpha > 0:
        raise InputError(
            f"alpha = {alpha:g} weighs a linear cost, but none was given; give one, "
            f"or set alpha to 0."
        )
    expected = (len(cost_x), len(cost_y))
    for name, array in (("cost", cost), ("init", init)):
        if array is not None and array.shape != expected:
            raise InputError(
                f"{name} must have shape {expected} as cost_x and cost_y have "
                f"{expected[0]} and {expected[1]} rows, got {array.shape}."
            )
