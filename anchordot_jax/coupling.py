"""One global entropic optimal-transport problem over two pools (Section 3.3).

The plan pi_ij = exp((f_i + g_j - C_ij)/epsilon) is known everywhere from its two
potentials; only they are kept. The iterations are OTT's; this module adds the safeguard
of the over-relaxation and the exact blocks of the plan that the students learn from.

With a rho the marginals are soft: rows whose match costs too much keep less than their
share of mass (`unbalanced_sinkhorn`). Beyond the paper, for pools of two distributions.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int
from ott.problems.linear import linear_problem

from anchordot_jax import geometry
from anchordot_jax.arrays import AnyArray
from anchordot_jax.config import CouplingConfig
from anchordot_jax.parallel.exchange import take_rows
from anchordot_jax.parallel.mesh import replicate, shard_rows
from anchordot_jax.transport import unbalanced_sinkhorn
from anchordot_jax.transport.sinkhorn_blocks import kernel_iterations, log_iterations

Progress = Callable[[int, float], None]
"""Called with the Sinkhorn iteration and the marginal error at each check."""

CPU_COST_MEMORY = 1 << 30

# Over-relaxation ends when the error grows by more than this from check to check; a
# smaller rise is float32 noise.
GROWTH = 1.05


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
    """Over-relaxed iterations, after a plain one that starts them; plain ones for soft
    marginals."""
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


class _Loop(NamedTuple):
    f: Float[Array, " n"]
    g: Float[Array, " m"]
    omega: Float[Array, ""]
    error: Float[Array, ""]
    checks: Int[Array, ""]
    diverged: Bool[Array, ""]
    errors: Float[Array, " checks"]


def solve_coupling(
    x: Float[AnyArray, "n r"],
    y: Float[AnyArray, "m r"],
    epsilon: Float[AnyArray, ""] | float,
    *,
    a: Float[AnyArray, " n"] | None = None,
    b: Float[AnyArray, " m"] | None = None,
    init: tuple[Float[AnyArray, " n"], Float[AnyArray, " m"]] | None = None,
    rho: Float[AnyArray, ""] | float | None = None,
    config: CouplingConfig | None = None,
    progress: Progress | None = None,
    mesh: Mesh | None = None,
) -> Coupling:
    """Return the potentials of min <pi, C> - epsilon H(pi) with marginals a, b (Eq. 7).

    Sinkhorn with over-relaxed updates f <- (1 - omega) f + omega f_new: in the log
    domain where the cost is streamed, by products with the plan, absorbed anew at each
    check, where it is stored. If the marginal error grows from one check to the next,
    omega falls back to 1 (plain Sinkhorn, which always converges) for the rest of the
    solve.

    With a rho, of min <pi, C> + epsilon KL(pi | ab^T) + rho KL(pi 1 | a)
    + rho KL(pi^T 1 | b), whose limit for a large rho is the former; by plain updates.

    Args:
        x: coordinates of the x pool (`profiles.coordinates`).
        y: coordinates of the y pool; n != m is usual.
        epsilon: regularisation, see `geometry.sampled_median_cost`.
        a: marginal of the x pool, summing to 1; uniform by default. Zeros are allowed.
        b: marginal of the y pool.
        init: potentials to start from; zeros by default.
        rho: weight of the marginals' variation, in units of the cost; None: none.
        config: tolerance, iterations, over-relaxation, memory for the cost.
        progress: called at every check of the marginal error.
        mesh: devices to spread the rows of both pools over; the cost is streamed, and
            the potentials come back on every device. Where `mesh.shard_rows` has
            filled the pools up already, a and b must be given, of the rows meant.
    """
    config = config or CouplingConfig()
    if mesh is not None:
        return _solve_spread(x, y, epsilon, a, b, init, rho, config, progress, mesh)
    return _solve_checked(x, y, epsilon, a, b, init, rho, config, progress, None)


def _solve_spread(
    x: AnyArray,
    y: AnyArray,
    epsilon: AnyArray | float,
    a: AnyArray | None,
    b: AnyArray | None,
    init: tuple[AnyArray, AnyArray] | None,
    rho: AnyArray | float | None,
    config: CouplingConfig,
    progress: Progress | None,
    mesh: Mesh,
) -> Coupling:
    """Spread rows, marginals and start over the mesh, solve, and cut off the filling.

    The filling has no weight, so that its potentials are minus infinity.
    """
    n, m = len(x if a is None else a), len(y if b is None else b)
    a = np.full(n, 1 / n, np.float32) if a is None else np.asarray(a, np.float32)
    b = np.full(m, 1 / m, np.float32) if b is None else np.asarray(b, np.float32)
    f, g = init or (np.zeros(n, np.float32), np.zeros(m, np.float32))
    solved = _solve_checked(
        shard_rows(x, mesh),
        shard_rows(y, mesh),
        replicate(jnp.asarray(epsilon, jnp.float32), mesh),
        shard_rows(a, mesh),
        shard_rows(b, mesh),
        (shard_rows(f, mesh), shard_rows(g, mesh)),
        None if rho is None else replicate(jnp.asarray(rho, jnp.float32), mesh),
        dataclasses.replace(config, cost_memory=0),
        progress,
        None,
        mesh,
    )
    f, g = _on_every_device(solved.f, solved.g, n, m, mesh)
    if solved.log_mass_x is None or solved.log_mass_y is None:
        return solved._replace(f=f, g=g)
    masses = _on_every_device(solved.log_mass_x, solved.log_mass_y, n, m, mesh)
    return solved._replace(f=f, g=g, log_mass_x=masses[0], log_mass_y=masses[1])


@functools.partial(jax.jit, static_argnames=("n", "m", "mesh"))
def _on_every_device(
    f: Array, g: Array, n: int, m: int, mesh: Mesh
) -> tuple[Array, Array]:
    """Return the first n and m potentials, or masses, on all devices."""
    rows, columns = jnp.arange(n), jnp.arange(m)
    whole_f, whole_g = take_rows(f[:, None], rows, g[:, None], columns, mesh=mesh)
    return whole_f[:, 0], whole_g[:, 0]


def _solve_checked(
    x: AnyArray,
    y: AnyArray,
    epsilon: AnyArray | float,
    a: AnyArray | None,
    b: AnyArray | None,
    init: tuple[AnyArray, AnyArray] | None,
    rho: AnyArray | float | None,
    config: CouplingConfig,
    progress: Progress | None,
    cost: Array | None,
    mesh: Mesh | None = None,
) -> Coupling:
    """Fill in the defaults and solve."""
    n, m = len(x), len(y)
    a = jnp.full(n, 1 / n, jnp.float32) if a is None else jnp.asarray(a, jnp.float32)
    b = jnp.full(m, 1 / m, jnp.float32) if b is None else jnp.asarray(b, jnp.float32)
    f, g = init or (jnp.zeros(n, jnp.float32), jnp.zeros(m, jnp.float32))
    given = (
        x,
        y,
        cost,
        a,
        b,
        jnp.asarray(epsilon, jnp.float32),
        jnp.asarray(f, jnp.float32),
        jnp.asarray(g, jnp.float32),
    )
    check_every = min(config.check_every, config.max_iterations)
    stored = cost is None and 4 * n * m <= cost_memory(config)
    tolerance = jnp.asarray(config.tolerance, jnp.float32)
    solved: Coupling
    # OTT broadcasts between ranks on purpose.
    with jax.numpy_rank_promotion("allow"):
        if rho is not None:
            solved = _solve_soft(
                *given,
                jnp.asarray(rho, jnp.float32),
                tolerance,
                jnp.asarray(max(1, config.max_iterations // check_every), jnp.int32),
                check_every=check_every,
                stored=stored,
                progress=progress,
                mesh=mesh,
            )
            return solved
        solved = _solve(
            *given,
            jnp.asarray(config.overrelaxation, jnp.float32),
            tolerance,
            check_every=check_every,
            max_iterations=config.max_iterations,
            stored=stored,
            progress=progress,
            mesh=mesh,
        )
    return solved


def solve_cost(
    cost: Float[AnyArray, "n m"],
    epsilon: Float[AnyArray, ""] | float,
    *,
    a: Float[AnyArray, " n"] | None = None,
    b: Float[AnyArray, " m"] | None = None,
    init: tuple[Float[AnyArray, " n"], Float[AnyArray, " m"]] | None = None,
    rho: Float[AnyArray, ""] | float | None = None,
    config: CouplingConfig | None = None,
    progress: Progress | None = None,
) -> Coupling:
    """Return the potentials for a cost given whole, as `solve_coupling` does.

    For costs that are no inner product of coordinates, such as those of `costs`.
    """
    n, m = cost.shape
    return _solve_checked(
        jnp.zeros((n, 1), jnp.float32),
        jnp.zeros((m, 1), jnp.float32),
        epsilon,
        a,
        b,
        init,
        rho,
        config or CouplingConfig(),
        progress,
        jnp.asarray(cost, jnp.float32),
    )


def log_plan(solved: Coupling, cost: Float[AnyArray, "n m"]) -> Float[Array, "n m"]:
    """Return log pi_ij = (f_i + g_j - C_ij)/epsilon for a cost given whole."""
    return (solved.f[:, None] + solved.g[None, :] - cost) / solved.epsilon


def cost_memory(config: CouplingConfig) -> int:
    """Return the bytes that the cost may take on this backend."""
    if config.cost_memory is not None:
        return config.cost_memory
    return CPU_COST_MEMORY if jax.default_backend() == "cpu" else 0


@functools.partial(
    jax.jit,
    static_argnames=("check_every", "max_iterations", "stored", "progress", "mesh"),
)
def _solve(
    x: Array,
    y: Array,
    cost: Array | None,
    a: Array,
    b: Array,
    epsilon: Array,
    f: Array,
    g: Array,
    omega: Array,
    tolerance: Array,
    *,
    check_every: int,
    max_iterations: int,
    stored: bool,
    progress: Progress | None,
    mesh: Mesh | None,
) -> Coupling:
    cost = geometry.cost_block(x, y) if stored else cost
    geom = geometry.ProfileGeometry(x, y, epsilon=epsilon, cost=cost, mesh=mesh)
    problem = linear_problem.LinearProblem(geom, a=a, b=b)
    max_checks = max(1, max_iterations // check_every)

    def unfinished(loop: _Loop) -> Array:
        running = (loop.error >= tolerance) & (loop.checks < max_checks)
        return running & ~loop.diverged

    def advance(loop: _Loop) -> _Loop:
        if cost is None:
            f, g, error = log_iterations(
                problem, loop.f, loop.g, omega=loop.omega, count=check_every
            )
        else:
            f, g, error = kernel_iterations(
                problem, cost, loop.f, loop.g, omega=loop.omega, count=check_every
            )
        finite = jnp.isfinite(error)
        if progress is not None:
            jax.debug.callback(
                progress,
                (loop.checks + 1) * check_every,
                error,
                # JAX orders the calls of one device only.
                ordered=mesh is None,
            )
        return _Loop(
            f=jnp.where(finite, f, loop.f),
            g=jnp.where(finite, g, loop.g),
            omega=jnp.where(error < GROWTH * loop.error, loop.omega, 1.0),
            error=jnp.where(finite, error, loop.error),
            checks=loop.checks + 1,
            diverged=~finite & (loop.omega == 1.0),
            errors=loop.errors.at[loop.checks].set(error),
        )

    # One plain iteration in the log domain: the plan's sums are then near the
    # marginals, so that a stored one is a kernel that does not underflow, and
    # over-relaxation does not overshoot from potentials that are far off.
    f, g, _ = log_iterations(problem, f, g, omega=jnp.ones_like(omega), count=1)
    start = _Loop(
        f=f,
        g=g,
        omega=omega,
        error=jnp.asarray(jnp.inf, jnp.float32),
        checks=jnp.asarray(0, jnp.int32),
        diverged=jnp.asarray(False),
        errors=jnp.full(max_checks, jnp.nan, jnp.float32),
    )
    end = jax.lax.while_loop(unfinished, advance, start)
    return Coupling(
        f=end.f,
        g=end.g,
        epsilon=epsilon,
        marginal_error=end.error,
        n_iterations=end.checks * check_every,
        converged=end.error < tolerance,
        errors=end.errors,
    )


@functools.partial(
    jax.jit, static_argnames=("check_every", "stored", "progress", "mesh")
)
def _solve_soft(
    x: Array,
    y: Array,
    cost: Array | None,
    a: Array,
    b: Array,
    epsilon: Array,
    f: Array,
    g: Array,
    rho: Array,
    tolerance: Array,
    max_checks: Array,
    *,
    check_every: int,
    stored: bool,
    progress: Progress | None,
    mesh: Mesh | None,
) -> Coupling:
    solved = unbalanced_sinkhorn.iterate(
        unbalanced_sinkhorn.Given(
            x, y, a, b, epsilon, rho, rho, tolerance * epsilon, max_checks
        ),
        geometry.cost_block(x, y) if stored else cost,
        check_every=check_every,
        init=(f, g),
        progress=progress,
        mesh=mesh,
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


def plan_block(
    x: Float[AnyArray, "b r"],
    y: Float[AnyArray, "c r"],
    f: Float[AnyArray, " b"],
    g: Float[AnyArray, " c"],
    epsilon: Float[AnyArray, ""] | float,
) -> Float[Array, "b c"]:
    """Return the exact plan restricted to some rows and columns (Eq. 9)."""
    cost = geometry.cost_block(x, y)
    return jnp.exp((f[:, None] + g[None, :] - cost) / epsilon)


def block_targets(
    x: Float[AnyArray, "b r"],
    y: Float[AnyArray, "c r"],
    f: Float[AnyArray, " b"],
    g: Float[AnyArray, " c"],
    epsilon: Float[AnyArray, ""] | float,
) -> tuple[Float[Array, "b c"], Float[Array, "b c"]]:
    """Return the plan's block normalised by row, and by column (Eq. 10).

    In the log domain, where nothing underflows: the row target is
    softmax_j((g_j - C_ij)/epsilon), in which f_i cancels, and the column target is
    softmax_i((f_i - C_ij)/epsilon).
    """
    cost = geometry.cost_block(x, y)
    by_row = jax.nn.softmax((g[None, :] - cost) / epsilon, axis=1)
    by_column = jax.nn.softmax((f[:, None] - cost) / epsilon, axis=0)
    return by_row, by_column
