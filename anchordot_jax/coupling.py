"""One global entropic optimal-transport problem over two pools (Section 3.3).

The plan pi_ij = exp((f_i + g_j - C_ij)/epsilon) is known everywhere from its two
potentials; only they are kept. `transport` solves for them; here are the problem, and
the exact blocks of the plan that the students learn from.

With a rho the marginals are soft: rows whose match costs too much keep less than their
share of mass (`unbalanced_sinkhorn`). Beyond the paper, for pools of two distributions.
"""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float

from anchordot_jax import geometry
from anchordot_jax.arrays import AnyArray
from anchordot_jax.config import CouplingConfig
from anchordot_jax.transport import warm_start
from anchordot_jax.transport.balanced_sinkhorn import Progress
from anchordot_jax.transport.coupling_solve import (
    Coupling,
    Problem,
    cost_memory,
    solve,
)
from anchordot_jax.transport.spread_solve import solve_spread

__all__ = [
    "Coupling",
    "Progress",
    "block_targets",
    "cost_memory",
    "log_plan",
    "plan_block",
    "solve_cost",
    "solve_coupling",
]


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

    Sinkhorn with over-relaxed updates f <- (1 - omega) f + omega f_new, or with
    Anderson acceleration: in the log domain where the cost is streamed, by products
    with the plan, absorbed anew at each check, where it is stored. If the marginal
    error grows from one check to the next, plain Sinkhorn, which always converges,
    takes over for the rest of the solve.

    With a rho, of min <pi, C> + epsilon KL(pi | ab^T) + rho KL(pi 1 | a)
    + rho KL(pi^T 1 | b), whose limit for a large rho is the former; by plain updates.

    Args:
        x: coordinates of the x pool (`profiles.coordinates`).
        y: coordinates of the y pool; n != m is usual.
        epsilon: regularisation, see `geometry.sampled_median_cost`.
        a: marginal of the x pool, summing to 1; uniform by default. Zeros are allowed.
        b: marginal of the y pool.
        init: potentials to start from; what `config.warm_start` says by default.
        rho: weight of the marginals' variation, in units of the cost; None: none.
        config: tolerance, iterations, acceleration, warm start, memory for the cost.
        progress: called at every check of the marginal error.
        mesh: devices to spread the rows of both pools over; the cost is streamed, and
            the potentials come back on every device. Where `mesh.shard_rows` has
            filled the pools up already, a and b must be given, of the rows meant.

    Raises:
        InputError: settings that do not go together: Anderson acceleration and a rho,
            a start from a subsample and a mesh.
    """
    config = config or CouplingConfig()
    if mesh is not None:
        return solve_spread(
            x, y, epsilon, a, b, init, rho, config, progress=progress, mesh=mesh
        )
    return _solve(
        jnp.asarray(x, jnp.float32),
        jnp.asarray(y, jnp.float32),
        None,
        epsilon,
        a,
        b,
        init,
        rho,
        config,
        progress,
    )


def _solve(
    x: Array,
    y: Array,
    cost: Array | None,
    epsilon: AnyArray | float,
    a: AnyArray | None,
    b: AnyArray | None,
    init: tuple[AnyArray, AnyArray] | None,
    rho: AnyArray | float | None,
    config: CouplingConfig,
    progress: Progress | None,
) -> Coupling:
    """Fill in the defaults, find a start, and solve."""
    n, m = len(x), len(y)
    problem = Problem(
        x=x,
        y=y,
        cost=cost,
        a=jnp.asarray(jnp.full(n, 1 / n) if a is None else a, jnp.float32),
        b=jnp.asarray(jnp.full(m, 1 / m) if b is None else b, jnp.float32),
        epsilon=jnp.asarray(epsilon, jnp.float32),
        rho=None if rho is None else jnp.asarray(rho, jnp.float32),
    )
    start, before = (init, 0) if init else warm_start.start(problem, config)
    f, g = (jnp.asarray(potential, jnp.float32) for potential in start)
    solved = solve(problem, (f, g), config, progress=progress)
    return solved._replace(n_iterations=before + solved.n_iterations)


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
    return _solve(
        jnp.zeros((n, 1), jnp.float32),
        jnp.zeros((m, 1), jnp.float32),
        jnp.asarray(cost, jnp.float32),
        epsilon,
        a,
        b,
        init,
        rho,
        config or CouplingConfig(),
        progress,
    )


def log_plan(solved: Coupling, cost: Float[AnyArray, "n m"]) -> Float[Array, "n m"]:
    """Return log pi_ij = (f_i + g_j - C_ij)/epsilon for a cost given whole."""
    return (solved.f[:, None] + solved.g[None, :] - cost) / solved.epsilon


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
