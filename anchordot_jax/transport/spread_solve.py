"""A transport problem whose rows are spread over several devices."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from anchordot_jax.arrays import AnyArray
from anchordot_jax.config import CouplingConfig
from anchordot_jax.parallel.exchange import take_rows
from anchordot_jax.parallel.mesh import replicate, shard_rows
from anchordot_jax.transport import warm_start
from anchordot_jax.transport.balanced_sinkhorn import Progress
from anchordot_jax.transport.coupling_solve import Coupling, Problem, solve


def solve_spread(
    x: AnyArray,
    y: AnyArray,
    epsilon: AnyArray | float,
    a: AnyArray | None,
    b: AnyArray | None,
    init: tuple[AnyArray, AnyArray] | None,
    rho: AnyArray | float | None,
    config: CouplingConfig,
    *,
    progress: Progress | None,
    mesh: Mesh,
) -> Coupling:
    """Spread rows, marginals and start over the mesh, solve, and cut off the filling.

    The filling has no weight, so that its potentials are minus infinity. The arguments
    are those of `coupling.solve_coupling`.
    """
    n, m = len(x if a is None else a), len(y if b is None else b)
    a = np.full(n, 1 / n, np.float32) if a is None else np.asarray(a, np.float32)
    b = np.full(m, 1 / m, np.float32) if b is None else np.asarray(b, np.float32)
    problem = Problem(
        x=shard_rows(x, mesh),
        y=shard_rows(y, mesh),
        cost=None,
        a=shard_rows(a, mesh),
        b=shard_rows(b, mesh),
        epsilon=replicate(jnp.asarray(epsilon, jnp.float32), mesh),
        rho=None if rho is None else replicate(jnp.asarray(rho, jnp.float32), mesh),
    )
    if init is None:
        (f, g), before = warm_start.start(problem, config, mesh=mesh)
    else:
        (f, g), before = (shard_rows(side, mesh) for side in init), 0
    solved = solve(problem, (f, g), config, progress=progress, mesh=mesh)
    f, g = _on_every_device(solved.f, solved.g, n, m, mesh)
    solved = solved._replace(f=f, g=g, n_iterations=solved.n_iterations + before)
    if solved.log_mass_x is None or solved.log_mass_y is None:
        return solved
    masses = _on_every_device(solved.log_mass_x, solved.log_mass_y, n, m, mesh)
    return solved._replace(log_mass_x=masses[0], log_mass_y=masses[1])


@functools.partial(jax.jit, static_argnames=("n", "m", "mesh"))
def _on_every_device(
    f: Array, g: Array, n: int, m: int, mesh: Mesh
) -> tuple[Array, Array]:
    """Return the first n and m potentials, or masses, on all devices."""
    rows, columns = jnp.arange(n), jnp.arange(m)
    whole_f, whole_g = take_rows(f[:, None], rows, g[:, None], columns, mesh=mesh)
    return whole_f[:, 0], whole_g[:, 0]
