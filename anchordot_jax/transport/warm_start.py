"""Potentials to start from: of larger epsilons, or of some rows of both sides."""

import dataclasses

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float

from anchordot_jax import geometry
from anchordot_jax.config import CouplingConfig
from anchordot_jax.errors import InputError
from anchordot_jax.transport.coupling_solve import Problem, solve
from anchordot_jax.transport.half_steps import updated

LADDER = (8.0, 4.0, 2.0)
"""Regularisations that are solved before, in units of the one that is meant."""
ROUGH = 1e-2
"""Error that is enough for potentials to start from."""
SHARE = 4
"""One row in so many is in the subsample."""


def cold_start(problem: Problem) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
    """Return zeros."""
    # Spread over the devices as the weights are.
    return 0 * problem.a, 0 * problem.b


def start(
    problem: Problem, config: CouplingConfig, *, mesh: Mesh | None = None
) -> tuple[tuple[Array, Array], Array | int]:
    """Return potentials to start from, and the iterations over all rows they took.

    Args:
        problem: what is to be solved then.
        config: its `warm_start` says how.
        mesh: devices that the rows are spread over.

    Raises:
        InputError: a subsample of rows that are spread over devices.
    """
    if config.warm_start is None:
        return cold_start(problem), 0
    rough = dataclasses.replace(config, tolerance=max(ROUGH, config.tolerance))
    if config.warm_start == "epsilon":
        return _down_the_ladder(problem, rough, mesh)
    if mesh is not None:
        check_start(config)
    return _from_some_rows(problem, rough), 0


def check_start(config: CouplingConfig) -> None:
    """Raise InputError for a start that several devices do not know."""
    if config.warm_start == "subsample":
        raise InputError(
            "coupling.warm_start subsample is for one device; with several take "
            "epsilon, or leave it out."
        )


def _down_the_ladder(
    problem: Problem, config: CouplingConfig, mesh: Mesh | None
) -> tuple[tuple[Array, Array], Array | int]:
    """Return the potentials of ever smaller regularisations, each from the one before.

    The density's potential f - eps log a is what is kept from step to step.
    """
    a, b, epsilon = problem.marginals
    f, g = cold_start(problem)
    total: Array | int = 0
    steps = [k * epsilon for k in LADDER]
    for larger, smaller in zip(steps, [*steps[1:], epsilon], strict=True):
        solved = solve(problem._replace(epsilon=larger), (f, g), config, mesh=mesh)
        f = solved.f + (smaller - larger) * jnp.log(a)
        g = solved.g + (smaller - larger) * jnp.log(b)
        # -inf and +inf where a row has no weight.
        f, g = jnp.where(a > 0, f, -jnp.inf), jnp.where(b > 0, g, -jnp.inf)
        total = total + solved.n_iterations
    return (f, g), total


def _from_some_rows(problem: Problem, config: CouplingConfig) -> tuple[Array, Array]:
    """Return the potentials of a part of the rows, extended by a half-step to all.

    The sum over the part's rows, which weigh 1 together, takes the place of the sum
    over all (the c-transform of the part's potential).
    """
    x, y, cost, a, b, epsilon, rho = problem
    some_x = _some_rows(a, key=jax.random.key(0))
    some_y = _some_rows(b, key=jax.random.key(1))
    part = problem._replace(
        x=x[some_x],
        y=y[some_y],
        cost=None if cost is None else cost[some_x][:, some_y],
        a=a[some_x] / jnp.sum(a[some_x]),
        b=b[some_y] / jnp.sum(b[some_y]),
    )
    solved = solve(part, cold_start(part), config)
    tau = 1.0 if rho is None else 1 / (1 + epsilon / rho)
    sides = (
        (a, x, part.y, None if cost is None else cost[:, some_y], solved.g),
        (b, y, part.x, None if cost is None else cost[some_x].T, solved.f),
    )
    f, g = (
        updated(weights, tau * _log_sum(rows, others, given, h, epsilon), epsilon)
        for weights, rows, others, given, h in sides
    )
    return f, g


def _some_rows(weights: Array, *, key: Array) -> Array:
    """Return the numbers of some rows, drawn by weight without replacement."""
    count = max(1, len(weights) // SHARE)
    return jax.random.choice(key, len(weights), (count,), replace=False, p=weights)


@jax.jit
def _log_sum(
    rows: Array, others: Array, cost: Array | None, h: Array, epsilon: Array
) -> Array:
    geom = geometry.ProfileGeometry(rows, others, epsilon=epsilon, cost=cost)
    zeros = jnp.zeros(len(rows), jnp.float32)
    log_sum: Array = geom.apply_lse_kernel(zeros, h, epsilon, axis=1)[0]
    return log_sum
