"""Gromov-Wasserstein: a plan that keeps each side's geometry, without pairs, distilled.

Alvarez-Melis and Jaakkola (2018), arXiv:1809.00013, match two clouds by the distances
within each alone. The authors' code (dmelis/otalign) returns the plan between the rows
it was given; here that plan, between random rows of the pools, is distilled into
students as AnchorDOT distils its own, so that test items are never part of it.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from anchordot_jax.baselines.plans.couplings import limit_pools
from anchordot_jax.baselines.plans.distil import distil_plan
from anchordot_jax.baselines.protocol import Anchors, Method, Needs, Pools
from anchordot_jax.baselines.unpaired.clouds import centred_cloud, common_dim
from anchordot_jax.config import CouplingConfig, DistillationConfig, check_setting
from anchordot_jax.costs import fused_gromov_wasserstein as gw
from anchordot_jax.model import AlignedModel

NAME = "gromov-wasserstein"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GromovWassersteinSettings:
    """Settings of Gromov-Wasserstein alignment; of the plan, the authors'."""

    points: int = 2000
    """Random rows of each pool that are matched; memory grows with the square, time
    with the cube."""
    epsilon: float = 5e-4
    """Entropic regularisation, for distances whose mean is 1."""
    iterations: int = 1000
    """Linearisations at most."""
    threshold: float = 1e-6
    """Relative change of the objective at which the iterations end; ours, the authors
    look at the plan."""
    coupling: CouplingConfig = dataclasses.field(default_factory=CouplingConfig)
    """Tolerance and iterations of each linearisation's Sinkhorn."""
    distillation: DistillationConfig = dataclasses.field(
        default_factory=lambda: DistillationConfig(chunk_size=500)
    )
    """The student encoders; with AnchorDOT's chunks of 2000 an epoch were one step. Its
    pool_memory does not apply: arrays given are in memory already."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, low in (("points", 2), ("iterations", 2)):
            value = getattr(self, name)
            ok = isinstance(value, int) and not isinstance(value, bool) and value >= low
            check_setting(ok, name, f"a whole number >= {low}", value)
        for name in ("epsilon", "threshold"):
            value = getattr(self, name)
            check_setting(0 < value < math.inf, name, "a number > 0", value)


def structure_cost(rows: np.ndarray) -> np.ndarray:
    """Return the cosine distances of centred rows over their mean, `[n, n]`, float32.

    Args:
        rows: `[n, d]`; scaled to unit norm, centred and scaled again here.
    """
    centred = centred_cloud(rows).rows
    distances = 1 - centred @ centred.T
    # An item's distance to itself is rounding error otherwise.
    np.fill_diagonal(distances, 0)
    cost: np.ndarray = (distances / distances.mean()).astype(np.float32)
    return cost


def fit_gromov_wasserstein(
    anchors: Anchors,
    pools: Pools,
    *,
    settings: GromovWassersteinSettings,
    key: jax.Array,
) -> AlignedModel:
    """Return students distilled from the plan between random rows of the pools.

    Raises:
        InputError: a pool has fewer than two rows.
        FloatingPointError: the plan is not finite, or the training diverged.
    """
    key_rows, key_students = jax.random.split(key)
    common_dim(pools)
    matched = limit_pools(pools, settings.points, key=key_rows)
    solved = gw.solve(
        structure_cost(matched.x),
        structure_cost(matched.y),
        None,
        alpha=0.0,
        epsilon=settings.epsilon,
        max_iterations=settings.iterations,
        threshold=settings.threshold,
        config=settings.coupling,
    )
    if not jnp.isfinite(solved.log_plan).all():
        raise FloatingPointError(
            f"The Gromov-Wasserstein plan is not finite at epsilon "
            f"{settings.epsilon:g}; raise it."
        )
    return distil_plan(
        NAME,
        anchors,
        matched,
        solved.log_plan,
        settings=settings,
        distillation_config=settings.distillation,
        key=key_students,
        use_anchors=False,
        pairs_used=0,
        iterations=int(solved.n_iterations),
        converged=bool(solved.converged),
    )


METHODS = (
    Method(
        name=NAME,
        title="Gromov-Wasserstein",
        source="Alvarez-Melis, Jaakkola (2018), arXiv:1809.00013",
        trust="code",
        notes=(
            "Zero pairs: the anchors are not looked at. The authors score the rows "
            "that the plan is between; here the plan is between pool rows and is "
            "distilled, without an anchor chunk, so that nothing is transductive (our "
            "reading, as is the chunk of 500). From the product of the marginals. "
            "Near chance where the sides' geometries differ, and blind to every "
            "symmetry of a cloud."
        ),
        needs=Needs(pairs=False, pools=True),
        settings=GromovWassersteinSettings(),
        short={
            "points": 500,
            "iterations": 20,
            "coupling": CouplingConfig(max_iterations=100),
            "distillation": DistillationConfig(
                epochs=60, chunk_size=250, warmup_steps=60
            ),
        },
        fit=fit_gromov_wasserstein,
    ),
)
