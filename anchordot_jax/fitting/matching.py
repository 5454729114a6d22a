"""The second stage: both pools' coordinates, and the plan between them."""

from anchordot_jax import (
    coupling,
    distillation,
    geometry,
    profiles,
    row_masses,
    selection,
)
from anchordot_jax.fitting.task import Task
from anchordot_jax.listeners import sinkhorn_reporter
from anchordot_jax.parallel.mesh import everywhere, place_rows


def couple(
    task: Task, chosen: selection.Selection
) -> tuple[distillation.Pools, coupling.Coupling]:
    """Return the pools with their plan: coordinates once, then the potentials."""
    data, config, run, mesh = task.data, task.config, task.run, task.mesh
    maps = profiles.coordinate_maps(
        profiles.fit_basis(task.anchors.x, center=config.center),
        profiles.fit_basis(task.anchors.y, center=config.center),
        chosen.gamma,
    )
    pool_x, pool_y = (place_rows(rows, mesh) for rows in (data.pool_x, data.pool_y))
    x, y = profiles.coordinates(pool_x, pool_y, everywhere(maps, mesh))
    solved = run.load_coupling() if run is not None else None
    if solved is None:
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
        solved.f.block_until_ready()
        if run is not None:
            run.save_coupling(solved)
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
