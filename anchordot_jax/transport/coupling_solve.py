"""One transport problem with all its numbers given: compiled, solved, with evidence."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from anchordot_jax.config import CouplingConfig
from anchordot_jax.errors import InputError
from anchordot_jax.transport import balanced_sinkhorn, half_steps, unbalanced_sinkhorn
from anchordot_jax.transport.balanced_sinkhorn import Progress
from anchordot_jax.transport.sinkhorn_blocks import Marginals

CPU_COST_MEMORY = 1 << 30


class Coupling(NamedTuple):
    """Dual solution of the transport problem, with the evidence that it is one."""

    f: Float[Array, " n"]
    """Potential of the x pool."""
    g: Float[Array, " m"]
    """Potential of the y pool."""
    epsilon: Float[Array, ""]
    """Entropic regularisation, in units of the cost."""
    marginal_error: Float[Array, ""]
    """L1 distance between the plan's column sums and their target. Of soft marginals:
    how far the iterations since the check before moved the potentials, in units of
    epsilon, which is the L1 change of the sums."""
    n_iterations: Int[Array, ""]
    """Accelerated iterations (over-relaxed, or by Anderson), after a plain one that
    starts them; plain ones for soft marginals. Those of a ladder of larger epsilons
    are counted, those of a subsample are not."""
    converged: Bool[Array, ""]
    """Whether the marginal error fell below the tolerance."""
    errors: Float[Array, " checks"]
    """Marginal error at every check; NaN after the last one. Of soft marginals the last
    one only."""
    rho: Float[Array, ""] | None = None
    """Weight of the marginals' variation, in units of the cost; None: the plan has the
    marginals themselves, and what follows is None too."""
    mass: Float[Array, ""] | None = None
    """Total mass of the plan; 1 where no row gives any up."""
    log_mass_x: Float[Array, " n"] | None = None
    """log(r_i / a_i) of the plan's row sums r and the marginal a."""
    log_mass_y: Float[Array, " m"] | None = None
    """The same of its columns."""


class Problem(NamedTuple):
    """What is to be solved."""

    x: Float[Array, "n r"]
    """Coordinates of x; not looked at where the cost is given."""
    y: Float[Array, "m r"]
    cost: Float[Array, "n m"] | None
    """The cost whole, where it is no inner product of coordinates."""
    a: Float[Array, " n"]
    b: Float[Array, " m"]
    epsilon: Float[Array, ""]
    rho: Float[Array, ""] | None
    """Weight of the marginals' variation; None: the marginals are kept to."""

    @property
    def marginals(self) -> Marginals:
        """Return the weights with the regularisation."""
        return Marginals(self.a, self.b, self.epsilon)


def cost_memory(config: CouplingConfig) -> int:
    """Return the bytes that the cost may take on this backend."""
    if config.cost_memory is not None:
        return config.cost_memory
    return CPU_COST_MEMORY if jax.default_backend() == "cpu" else 0


def solve(
    problem: Problem,
    init: tuple[Array, Array],
    config: CouplingConfig,
    *,
    progress: Progress | None = None,
    mesh: Mesh | None = None,
) -> Coupling:
    """Return the potentials, starting from some.

    Args:
        problem: cost, marginals, regularisation.
        init: potentials to start from.
        config: tolerance, iterations, acceleration, memory for the cost.
        progress: called at every check of the marginal error.
        mesh: devices that the rows are spread over; then the cost is streamed.

    Raises:
        InputError: Anderson acceleration of soft marginals.
    """
    check_every = min(config.check_every, config.max_iterations)
    memory = 0 if mesh is not None else cost_memory(config)
    n, m = len(problem.x), len(problem.y)
    settings = {
        "check_every": check_every,
        "stored": half_steps.stored_rows(n, m, memory),
        "kernel": config.kernel,
        "progress": progress,
        "mesh": mesh,
    }
    tolerance = jnp.asarray(config.tolerance, jnp.float32)
    max_checks = max(1, config.max_iterations // check_every)
    solved: Coupling
    # OTT broadcasts between ranks on purpose.
    with jax.numpy_rank_promotion("allow"):
        if problem.rho is None:
            solved = _solve(
                problem,
                init,
                jnp.asarray(config.overrelaxation, jnp.float32),
                tolerance,
                anderson=config.anderson,
                max_checks=max_checks,
                **settings,
            )
            return solved
        if config.anderson is not None:
            raise InputError(
                f"coupling.anderson is {config.anderson}, but marginals that rho "
                f"softens are solved by plain iterations; leave out one of the two."
            )
        checks = jnp.asarray(max_checks, jnp.int32)
        solved = _solve_soft(problem, problem.rho, init, tolerance, checks, **settings)
    return solved


def _costs_of(
    problem: Problem, stored: int, kernel: str | None, mesh: Mesh | None
) -> half_steps.Costs:
    return half_steps.costs(
        problem.x,
        problem.y,
        problem.epsilon,
        stored=stored,
        given=problem.cost,
        kernel=kernel,
        mesh=mesh,
    )


@functools.partial(
    jax.jit,
    static_argnames=(
        "anderson",
        "check_every",
        "max_checks",
        "stored",
        "kernel",
        "progress",
        "mesh",
    ),
)
def _solve(
    problem: Problem,
    init: tuple[Array, Array],
    omega: Array,
    tolerance: Array,
    *,
    anderson: int | None,
    check_every: int,
    max_checks: int,
    stored: int,
    kernel: str | None,
    progress: Progress | None,
    mesh: Mesh | None,
) -> Coupling:
    found = balanced_sinkhorn.iterate(
        _costs_of(problem, stored, kernel, mesh),
        problem.marginals,
        init=init,
        omega=omega,
        tolerance=tolerance,
        anderson=anderson,
        check_every=check_every,
        max_checks=max_checks,
        progress=progress,
        ordered=mesh is None,
    )
    return Coupling(
        f=found.f,
        g=found.g,
        epsilon=problem.epsilon,
        marginal_error=found.error,
        n_iterations=found.checks * check_every,
        converged=found.error < tolerance,
        errors=found.errors,
    )


@functools.partial(
    jax.jit,
    static_argnames=("check_every", "stored", "kernel", "progress", "mesh"),
)
def _solve_soft(
    problem: Problem,
    rho: Array,
    init: tuple[Array, Array],
    tolerance: Array,
    max_checks: Array,
    *,
    check_every: int,
    stored: int,
    kernel: str | None,
    progress: Progress | None,
    mesh: Mesh | None,
) -> Coupling:
    a, b, epsilon = problem.marginals
    given = unbalanced_sinkhorn.Given(
        a, b, epsilon, rho, rho, tolerance * epsilon, max_checks
    )
    solved = unbalanced_sinkhorn.iterate(
        given,
        _costs_of(problem, stored, kernel, mesh),
        check_every=check_every,
        init=init,
        progress=progress,
        ordered=mesh is None,
    )
    error = solved.error / epsilon
    masses = [
        unbalanced_sinkhorn.log_mass(weights, potential, epsilon, 1 / rho)
        for weights, potential in ((a, solved.f), (b, solved.g))
    ]
    return Coupling(
        f=solved.f,
        g=solved.g,
        epsilon=epsilon,
        marginal_error=error,
        n_iterations=solved.n_iterations,
        converged=solved.converged,
        errors=error[None],
        rho=rho,
        mass=jnp.sum(a * jnp.exp(masses[0])),
        log_mass_x=masses[0],
        log_mass_y=masses[1],
    )
