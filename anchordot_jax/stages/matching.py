"""The second stage: both pools' coordinates, and the plan between them."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from anchordot_jax import (
    coupling,
    distillation,
    geometry,
    profiles,
    row_masses,
    selection,
)
from anchordot_jax.data.stored_pool import blocks
from anchordot_jax.fit_inputs import Pool
from anchordot_jax.listeners import sinkhorn_reporter
from anchordot_jax.parallel.mesh import everywhere, place_rows
from anchordot_jax.runs import stage
from anchordot_jax.runs.run_folder import RunFolder
from anchordot_jax.stages.task import Task


def couple(
    task: Task, chosen: selection.Selection
) -> tuple[distillation.Pools, coupling.Coupling]:
    """Return the pools with their plan: coordinates once, then the potentials.

    Where the pools are streamed, their x and y have no columns.
    """
    data, config, mesh = task.data, task.config, task.mesh
    maps = profiles.coordinate_maps(
        profiles.fit_basis(task.anchors.x, center=config.center),
        profiles.fit_basis(task.anchors.y, center=config.center),
        chosen.gamma,
    )
    if task.streamed:
        x = coordinates_by_blocks(data.pool_x, profiles.coordinates_x, maps)
        y = coordinates_by_blocks(data.pool_y, profiles.coordinates_y, maps)
        pool_x, pool_y = x[:, :0], y[:, :0]
    else:
        whole = data.whole_pools("A fit with resident pools")
        pool_x, pool_y = (place_rows(rows, mesh) for rows in whole)
        x, y = profiles.coordinates(pool_x, pool_y, everywhere(maps, mesh))

    def solve() -> coupling.Coupling:
        counts = len(data.pool_x), len(data.pool_y)
        median = geometry.sampled_median_cost(
            x, y, key=everywhere(task.keys.median, mesh), counts=counts, mesh=mesh
        )
        solved = coupling.solve_coupling(
            x,
            y,
            chosen.eta * median,
            a=row_masses.marginal(data.a, counts[0]),
            b=row_masses.marginal(data.b, counts[1]),
            rho=None if chosen.rho is None else chosen.rho * median,
            config=config.coupling,
            progress=sinkhorn_reporter(task.listener),
            mesh=mesh,
        )
        jax.block_until_ready(solved)
        return solved

    solved = stage.once(
        task.run,
        solve,
        load=RunFolder.load_coupling,
        save=RunFolder.save_coupling,
        name="the plan",
    )
    if not bool(solved.converged):
        task.listener.warn(
            f"The transport did not converge: marginal error "
            f"{float(solved.marginal_error):.2g} after {int(solved.n_iterations)} "
            f"iterations, tolerance {config.coupling.tolerance:.2g}; try a larger eta "
            f"or more coupling.max_iterations."
        )
    potentials = (solved.f, solved.g, solved.epsilon)
    weights = row_masses.row_weights(solved)
    potentials, weights = everywhere((potentials, weights), mesh)
    pools = distillation.Pools(pool_x, pool_y, x, y, *potentials)
    return pools._replace(weights_x=weights[0], weights_y=weights[1]), solved


def coordinates_by_blocks(
    pool: Pool,
    side: Callable[[np.ndarray, profiles.CoordinateMaps], Array],
    maps: profiles.CoordinateMaps,
) -> Float[Array, "n r"]:
    """Return one side's coordinates of a pool that is gone through block by block.

    Args:
        pool: its rows, `[n, d]`.
        side: `profiles.coordinates_x` or `coordinates_y`.
        maps: of both sides.
    """
    found = jnp.zeros((len(pool), min(maps.bridge.shape)), jnp.float32)
    for start, block in blocks(pool):
        found = _with_rows(found, side(block, maps), jnp.asarray(start, jnp.int32))
        # Else blocks queue up on the device as fast as they are read.
        found.block_until_ready()
    return found


@functools.partial(jax.jit, donate_argnames=("array",))
def _with_rows(array: Array, rows: Array, start: Array) -> Array:
    return jax.lax.dynamic_update_slice(array, rows, (start, jnp.zeros_like(start)))
