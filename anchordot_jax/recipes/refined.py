"""The refined recipe's choice and start: a soft-matched CCA, then its own plan.

Beyond the paper. The closed form of `soft_cca` gives the students that the training
starts from; the plan that they learn from is solved anew on their own cosines.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, PRNGKeyArray

from anchordot_jax import coupling, distillation, profiles, row_masses, selection
from anchordot_jax.config import Config, CouplingConfig
from anchordot_jax.fit_inputs import FitData
from anchordot_jax.listeners import Interrupted, Listener, sinkhorn_reporter
from anchordot_jax.matching.bank import LEAST_SPREAD, cosine_spread
from anchordot_jax.parallel.mesh import everywhere, place_rows
from anchordot_jax.recipes import canonical, soft_cca, soft_selection, two_sides
from anchordot_jax.runs import stage
from anchordot_jax.runs.run_folder import RunFolder
from anchordot_jax.students import Params
from anchordot_jax.training import affinity


def select(
    data: FitData,
    config: Config,
    *,
    key: PRNGKeyArray,
    run: RunFolder | None,
    listener: Listener,
) -> tuple[two_sides.Sides | None, soft_selection.SoftSelection]:
    """Return the chosen settings, and the sides where they had to be prepared.

    Args:
        data: anchors and pools.
        config: every setting.
        key: see `soft_selection.select`.
        run: a choice found there is not made again; a new one is stored there.
        listener: told of the progress.

    Raises:
        InputError: rows that cannot be used.
        Interrupted: the listener asked to stop.
    """

    def report(done: int, total: int) -> None:
        listener.selecting(done, total)
        if listener.should_stop():
            raise Interrupted("Stopped while choosing the ridges and the sharpness.")

    sides = None

    def choose() -> soft_selection.SoftSelection:
        nonlocal sides
        sides = _prepare(data)
        return soft_selection.select(
            sides,
            config.soft_cca,
            coupling=transport(config),
            key=key,
            progress=report,
        )

    chosen = stage.once(
        run,
        choose,
        load=RunFolder.load_soft_selection,
        save=RunFolder.save_selection,
        name="the selection",
    )
    return sides, chosen


def couple(
    data: FitData,
    sides: two_sides.Sides | None,
    chosen: soft_selection.SoftSelection,
    config: Config,
    *,
    run: RunFolder | None,
    listener: Listener,
    mesh: Mesh | None = None,
) -> tuple[distillation.Pools, coupling.Coupling, Params]:
    """Return the pools with the students' own plan, and the students to start from.

    Args:
        data: anchors and pools.
        sides: see `select`; None: prepared here if need be.
        chosen: ridges and sharpness.
        config: every setting.
        run: students and plan found there are not made again.
        listener: told of the progress.
        mesh: devices to spread the pools over, once their plan is known.

    Raises:
        InputError: rows that cannot be used.
    """
    start = stage.once(
        run,
        lambda: _start(data, sides, chosen, config, listener),
        load=RunFolder.load_start,
        save=RunFolder.save_start,
        name="the start",
    )
    x, y = (jnp.asarray(rows) for rows in data.whole_pools("The refined recipe"))
    u, v = student_outputs(start["x"], x), student_outputs(start["y"], y)

    def solve() -> coupling.Coupling:
        solved = coupling.solve_coupling(
            u,
            v,
            max(cosine_spread(u, v), LEAST_SPREAD) / chosen.sharpness,
            a=row_masses.marginal(data.a, len(x)),
            b=row_masses.marginal(data.b, len(y)),
            config=transport(config),
            progress=sinkhorn_reporter(listener),
        )
        jax.block_until_ready(solved)
        return solved

    solved = stage.once(
        run,
        solve,
        load=RunFolder.load_coupling,
        save=RunFolder.save_coupling,
        name="the plan",
    )
    _warn(solved, config, listener)
    pools = distillation.Pools(
        *(place_rows(rows, mesh) for rows in (x, y, u, v)),
        *everywhere((solved.f, solved.g, solved.epsilon), mesh),
    )
    return pools, solved, start


def _start(
    data: FitData,
    sides: two_sides.Sides | None,
    chosen: soft_selection.SoftSelection,
    config: Config,
    listener: Listener,
) -> Params:
    """Return the closed form's students."""
    sides = _prepare(data) if sides is None else sides
    found = soft_cca.solve(
        sides,
        chosen.settings,
        config=transport(config),
        progress=sinkhorn_reporter(listener),
    )
    _warn(found.coupling, config, listener)
    return soft_cca.student_params(
        sides, found.weights, temperature=config.refined.temperature
    )


def transport(config: Config) -> CouplingConfig:
    """Return the transport's settings with this recipe's tolerance."""
    return dataclasses.replace(config.coupling, tolerance=config.soft_cca.tolerance)


@jax.jit
def student_outputs(side: Params, rows: Array) -> Array:
    """Return a student's unit outputs at full precision: a plan is made of them."""
    z, matrix = affinity.standardized(rows), affinity.folded(side)
    return profiles.normalize(jnp.matmul(z, matrix, precision=canonical.HIGHEST))


def chosen_settings(
    chosen: selection.Selection | soft_selection.SoftSelection,
) -> dict[str, Any]:
    """Return what either recipe chooses by held-out anchors, by name."""
    if isinstance(chosen, selection.Selection):
        rho = {} if chosen.rho is None else {"rho": chosen.rho}
        return {"gamma": chosen.gamma, "eta": chosen.eta, **rho}
    return dict(chosen.settings._asdict())


def _prepare(data: FitData) -> two_sides.Sides:
    pools = data.whole_pools("The refined recipe")
    return two_sides.prepare(data.anchors_x, data.anchors_y, *pools, a=data.a, b=data.b)


def _warn(solved: coupling.Coupling, config: Config, listener: Listener) -> None:
    if not bool(solved.converged):
        listener.warn(
            f"The transport did not converge: marginal error "
            f"{float(solved.marginal_error):.2g} after {int(solved.n_iterations)} "
            f"iterations, tolerance {config.soft_cca.tolerance:.2g}; try a smaller "
            f"soft_cca.sharpness or more coupling.max_iterations."
        )
