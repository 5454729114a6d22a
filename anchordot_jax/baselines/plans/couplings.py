"""AnchorDOT's students distilled from other couplings (Appendix C.3).

Three couplings take the place of the profile cost's plan: the bridge cost, the
keypoint-guided relation cost, and fused Gromov-Wasserstein. Each is solved once between
the pools with epsilon = eta median(C) and distilled by the same loss and schedule.
"""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array
from numpy.typing import ArrayLike

from anchordot_jax import coupling, geometry, profiles
from anchordot_jax.arrays import AnyArray
from anchordot_jax.baselines import tuning
from anchordot_jax.baselines.plans.distil import distil_plan
from anchordot_jax.baselines.plans.settings import (
    BridgeSettings,
    CouplingSettings,
    FusedSettings,
    KeypointSettings,
)
from anchordot_jax.baselines.protocol import (
    Anchors,
    Method,
    Needs,
    Pools,
    numpy_rng,
)
from anchordot_jax.config import DistillationConfig
from anchordot_jax.costs.bridge import bridge_cost
from anchordot_jax.costs.fused_gromov_wasserstein import solve as solve_fused
from anchordot_jax.costs.keypoint import relation, relation_cost
from anchordot_jax.errors import InputError
from anchordot_jax.model import AlignedModel, Scores

# Entries of a cost that its median is taken over.
MEDIAN_SAMPLE = 1 << 20

TAUS = (0.05, 0.02, 0.1, 0.2)
"""Candidates for the relation's temperature, the preferred first."""

TUNING_POOL = 1000
"""Rows of each pool among which held-out anchors are ranked for tau."""


class Plan(NamedTuple):
    """A coupling's plan, and how it was reached."""

    log_plan: Array
    """`[n, m]`."""
    facts: dict[str, Any]
    """JSON values for the model's config.json."""


def fit_bridge(
    anchors: Anchors, pools: Pools, *, settings: BridgeSettings, key: jax.Array
) -> AlignedModel:
    """Return students distilled from the bridge cost's plan."""
    key_pools, key_students = jax.random.split(key)
    pools = limit_pools(pools, settings.pool_limit, key=key_pools)
    cost = bridge_cost(*anchor_distances(anchors, pools), own_mean=settings.own_mean)
    return _distil(
        "bridge", anchors, pools, solve_plan(cost, settings), settings, key=key_students
    )


def fit_keypoint(
    anchors: Anchors, pools: Pools, *, settings: KeypointSettings, key: jax.Array
) -> AlignedModel:
    """Return students distilled from the relation cost's plan."""
    key_pools, key_tau, key_students = jax.random.split(key, 3)
    facts: dict[str, Any] = {}
    if settings.tau == "auto":
        chosen, n_heldout = choose_tau(anchors, pools, settings=settings, key=key_tau)
        settings, facts = chosen, {"tau_chosen_by": n_heldout}
    pools = limit_pools(pools, settings.pool_limit, key=key_pools)
    plan = keypoint_plan(anchors, pools, settings)
    plan = plan._replace(facts=plan.facts | facts)
    return _distil("keypoint", anchors, pools, plan, settings, key=key_students)


def fit_fused(
    anchors: Anchors, pools: Pools, *, settings: FusedSettings, key: jax.Array
) -> AlignedModel:
    """Return students distilled from the plan of fused Gromov-Wasserstein."""
    key_pools, key_students = jax.random.split(key)
    pools = limit_pools(pools, settings.pool_limit, key=key_pools)
    plan = fused_plan(anchors, pools, settings)
    return _distil("fused-gw", anchors, pools, plan, settings, key=key_students)


def choose_tau(
    anchors: Anchors, pools: Pools, *, settings: KeypointSettings, key: jax.Array
) -> tuple[KeypointSettings, int]:
    """Return the settings with tau chosen, and the number of held-out anchors.

    A fifth of the anchors at a time is held out of the relations, joins the pools, and
    is ranked in the plan: no students are trained.
    """
    key_pools, key_draws = jax.random.split(key)
    pools = limit_pools(pools, TUNING_POOL, key=key_pools)
    choice = tuning.choose(_PLANS, anchors, pools, settings=settings, key=key_draws)
    return choice.settings, choice.n_heldout


def anchor_distances(anchors: Anchors, pools: Pools) -> tuple[Array, Array]:
    """Return the cosine distances of each pool to its anchors, `[n, N]`, `[m, N]`."""
    x = geometry.cost_block(pools.x, anchors.x)
    return x, geometry.cost_block(pools.y, anchors.y)


def keypoint_plan(anchors: Anchors, pools: Pools, settings: KeypointSettings) -> Plan:
    """Return the plan of the relation cost; tau must be a number."""
    if settings.tau == "auto":
        raise InputError("tau must be a number here, got 'auto'; see choose_tau.")
    x, y = anchor_distances(anchors, pools)
    if settings.by_largest:
        x, y = x / x.max(), y / y.max()
    cost = relation_cost(relation(x, settings.tau), relation(y, settings.tau))
    return solve_plan(cost, settings)


def fused_plan(anchors: Anchors, pools: Pools, settings: FusedSettings) -> Plan:
    """Return the plan of the cosine distances within and the profile cost between.

    Each of the three costs is divided by its mean; epsilon is eta times the median of
    the linear one.
    """
    basis_x, basis_y = (profiles.fit_basis(side) for side in anchors)
    maps = profiles.coordinate_maps(basis_x, basis_y, settings.gamma)
    cost = geometry.cost_block(*profiles.coordinates(pools.x, pools.y, maps))
    cost = cost / cost.mean()
    within_x, within_y = (geometry.cost_block(side, side) for side in pools)
    epsilon = settings.eta * median_cost(cost)
    found = solve_fused(
        within_x / within_x.mean(),
        within_y / within_y.mean(),
        cost,
        alpha=settings.alpha,
        epsilon=epsilon,
        max_iterations=settings.max_iterations,
        threshold=settings.threshold,
        config=settings.coupling,
    )
    facts = {
        "epsilon": epsilon,
        "linearisations": int(found.n_iterations),
        "converged": bool(found.converged),
    }
    return Plan(found.log_plan, facts)


def solve_plan(cost: AnyArray, settings: CouplingSettings) -> Plan:
    """Return the entropic plan of a cost `[n, m]` with epsilon = eta median(C)."""
    epsilon = settings.eta * median_cost(cost)
    if not epsilon > 0:
        raise InputError(
            f"Half of the cost's entries are {epsilon / settings.eta:g}, so that eta "
            f"times its median regularises nothing; try another temperature."
        )
    solved = coupling.solve_cost(cost, epsilon, config=settings.coupling)
    facts = {
        "epsilon": epsilon,
        "sinkhorn_iterations": int(solved.n_iterations),
        "marginal_error": float(solved.marginal_error),
        "converged": bool(solved.converged),
    }
    return Plan(coupling.log_plan(solved, cost), facts)


def median_cost(cost: AnyArray) -> float:
    """Return the median of the cost's entries, or of 2^20 evenly spaced ones."""
    flat = np.asarray(cost).ravel()
    # A step that shares no factor with the row's length visits all columns.
    step = max(1, len(flat) // MEDIAN_SAMPLE)
    while math.gcd(step, cost.shape[1]) > 1:
        step += 1
    return float(np.median(flat[::step]))


def limit_pools(pools: Pools, limit: int | None, *, key: jax.Array) -> Pools:
    """Return at most `limit` random rows of each pool, in their order."""
    rng = numpy_rng(key)

    def some(rows: np.ndarray) -> np.ndarray:
        if limit is None or len(rows) <= limit:
            return rows
        return rows[np.sort(rng.choice(len(rows), limit, replace=False))]

    return Pools(some(pools.x), some(pools.y))


def _distil(
    method: str,
    anchors: Anchors,
    pools: Pools,
    plan: Plan,
    settings: CouplingSettings,
    *,
    key: jax.Array,
) -> AlignedModel:
    return distil_plan(
        method,
        anchors,
        pools,
        plan.log_plan,
        settings=settings,
        distillation_config=settings.distillation,
        key=key,
        **plan.facts,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PlanScorer:
    """Scores items by the plan between them; only for the choice of tau."""

    anchors: Anchors
    settings: KeypointSettings

    @property
    def info(self) -> Mapping[str, Any]:
        return {"method": "keypoint", "settings": dataclasses.asdict(self.settings)}

    def scores(self, x: ArrayLike, y: ArrayLike) -> Scores:
        pools = Pools(np.asarray(x), np.asarray(y))
        plan = np.asarray(keypoint_plan(self.anchors, pools, self.settings).log_plan)
        return Scores(plan, plan.T)

    def save(self, folder: str | Path) -> None:
        raise InputError(f"A plan embeds nothing, so {folder} cannot hold it.")


def _plan_scorer(
    anchors: Anchors, pools: Pools, *, settings: KeypointSettings, key: jax.Array
) -> _PlanScorer:
    del pools, key
    return _PlanScorer(anchors=anchors, settings=settings)


_PLANS = Method(
    name="keypoint",
    title="relation cost's plan",
    source="this project",
    trust="ours",
    settings=KeypointSettings(),
    grid={"tau": TAUS},
    fit=_plan_scorer,
)

_SHORT = DistillationConfig(epochs=60, warmup_steps=60)

METHODS = (
    Method(
        name="bridge",
        title="bridge cost",
        source="Gholamzadeh and Sajid, as in Kordes and Dorent, arXiv:2610.12781 "
        "(2026), Appendix C.3.1",
        trust="paper",
        notes="No code of it was found. The distance is not named: here the cosine "
        "distance, each side's divided by its mean.",
        needs=Needs(pools=True),
        settings=BridgeSettings(),
        short={"distillation": _SHORT},
        fit=fit_bridge,
    ),
    Method(
        name="keypoint",
        title="keypoint-guided relation cost",
        source="Gu, Yang, Zeng, Sun and Xu, NeurIPS 2022 (KPG-RL), as in Kordes and "
        "Dorent, arXiv:2610.12781 (2026), Appendix C.3.1",
        trust="code",
        notes="Without the authors' mask, as AnchorDOT compares it, with cosine "
        "distances over their largest; tau by the ranks of held-out anchors in the "
        "plan.",
        needs=Needs(pools=True),
        settings=KeypointSettings(),
        tuned=("tau",),
        choose=choose_tau,
        short={"distillation": _SHORT},
        fit=fit_keypoint,
    ),
    Method(
        name="fused-gw",
        title="fused Gromov-Wasserstein",
        source="Vayer et al., Algorithms 13(9), 2020, as in Kordes and Dorent, "
        "arXiv:2610.12781 (2026), Appendix C.3.3",
        trust="paper",
        notes="alpha weighs the linear term, AnchorDOT's profile cost. Only a random "
        "part of each pool is coupled and distilled. Sizes, scales and the start are "
        "not in the paper: costs over their means, from the product of the marginals.",
        needs=Needs(pools=True),
        settings=FusedSettings(),
        short={"distillation": _SHORT, "pool_limit": 1000},
        fit=fit_fused,
    ),
)
