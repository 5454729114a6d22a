"""Iterative closest point: nearest neighbours and a rotation in turns, without pairs.

Besl and McKay (1992) for point clouds, with an orthogonal map as in the refinement of
MUSE (Conneau et al., 2018, arXiv:1710.04087): match the rows of x W to those of y by
mutual nearest neighbours, replace W by the Procrustes solution of the matches, until
the matches repeat. It only finds what is near its start, so several starts are made:
the principal axes as they are, whose signs the data fix, and random rotations.
"""

import dataclasses
from typing import NamedTuple

import jax
import numpy as np
import scipy.stats
import threadpoolctl

from anchordot_jax.baselines.protocol import Anchors, Method, Needs, Pools, numpy_rng
from anchordot_jax.baselines.unpaired.clouds import (
    common_dim,
    principal_cloud,
    procrustes,
    rotated_model,
)
from anchordot_jax.config import check_setting
from anchordot_jax.matching.csls import csls
from anchordot_jax.model import AlignedModel

NAME = "icp"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClosestPointSettings:
    """Settings of iterative closest point; ours, with MUSE's number of neighbours."""

    dim: int = 50
    """Principal components kept a side, fewer where a side has fewer."""
    iterations: int = 50
    """Matchings at most from each start."""
    rotations: int = 10
    """Random starts, besides the principal axes themselves."""
    mutual: bool = True
    """Match mutual nearest neighbours; off: every x to its nearest y."""
    csls_neighbors: int | None = None
    """Neighbours of the hub-corrected similarity CSLS (10 in MUSE). None: cosine."""
    max_points: int = 5000
    """Random rows of each pool that are matched."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        least = {"dim": 1, "iterations": 1, "rotations": 0, "max_points": 2}
        if self.csls_neighbors is not None:
            least["csls_neighbors"] = 1
        for name, low in least.items():
            value = getattr(self, name)
            ok = isinstance(value, int) and not isinstance(value, bool) and value >= low
            check_setting(ok, name, f"a whole number >= {low}", value)
        check_setting(
            isinstance(self.mutual, bool), "mutual", "True or False", self.mutual
        )


class Matches(NamedTuple):
    """Which rows are taken to belong together, and how near the clouds are."""

    x: np.ndarray
    """Row numbers of x, `[k]`."""
    y: np.ndarray
    """Row numbers of y, `[k]`."""
    objective: float
    """Mean cosine of every row to its match candidate: of x alone where the matching
    is one-way, of both sides where it is mutual."""


class Found(NamedTuple):
    """Where the iterations ended."""

    rotation: np.ndarray
    """W, `[k, k]`, orthogonal."""
    objective: float
    """`Matches.objective` of W."""
    iterations: int
    """Matchings made."""
    converged: bool
    """Whether the matches repeated."""


def match(
    x: np.ndarray,
    y: np.ndarray,
    *,
    mutual: bool = True,
    csls_neighbors: int | None = None,
) -> Matches:
    """Return nearest neighbours between unit-norm rows.

    Args:
        x: `[n, k]`, already rotated.
        y: `[m, k]`.
        mutual: keep only rows that are each other's nearest.
        csls_neighbors: correct the cosines for hubs by CSLS; None: cosines.
    """
    x, y = x.astype(np.float32), y.astype(np.float32)
    # See `profiles.fit_basis` for why one thread.
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        cosines_x, cosines_y = x @ y.T, y @ x.T
    scores_x, scores_y = cosines_x, cosines_y
    if csls_neighbors is not None:
        scores_x = csls(cosines_x, csls_neighbors)
        scores_y = scores_x.T
    nearest_y, nearest_x = scores_x.argmax(axis=1), scores_y.argmax(axis=1)
    rows = np.arange(len(x))
    mean_x = cosines_x[rows, nearest_y].mean(dtype=np.float64)
    if not mutual:
        return Matches(rows, nearest_y, float(mean_x))
    mean_y = cosines_y[np.arange(len(y)), nearest_x].mean(dtype=np.float64)
    kept = nearest_x[nearest_y] == rows
    return Matches(rows[kept], nearest_y[kept], float((mean_x + mean_y) / 2))


def closest_point(
    x: np.ndarray,
    y: np.ndarray,
    rotation: np.ndarray,
    *,
    iterations: int = 50,
    mutual: bool = True,
    csls_neighbors: int | None = None,
) -> Found:
    """Return the rotation that matching and Procrustes in turns lead to.

    Stops when the matches are those of the step before, or when no row is left that is
    matched, with the rotation reached so far.

    Args:
        x: unit-norm rows `[n, k]`.
        y: unit-norm rows `[m, k]`.
        rotation: W to start from, `[k, k]`.
        iterations: matchings at most.
        mutual: see `match`.
        csls_neighbors: see `match`.
    """
    before: Matches | None = None
    for step in range(1, iterations + 1):
        found = match(x @ rotation, y, mutual=mutual, csls_neighbors=csls_neighbors)
        same = before is not None and all(map(np.array_equal, found[:2], before[:2]))
        if same or not len(found.x):
            return Found(rotation, found.objective, step, same)
        rotation, before = procrustes(x[found.x], y[found.y]), found
    found = match(x @ rotation, y, mutual=mutual, csls_neighbors=csls_neighbors)
    return Found(rotation, found.objective, iterations, False)


def fit_closest_point(
    anchors: Anchors,
    pools: Pools,
    *,
    settings: ClosestPointSettings,
    key: jax.Array,
) -> AlignedModel:
    """Return the rotation of the start whose end brings the clouds nearest.

    Raises:
        InputError: a pool has fewer than two rows.
    """
    rng = numpy_rng(key)
    dim = common_dim(pools, settings.dim)
    clouds = principal_cloud(pools.x, dim), principal_cloud(pools.y, dim)
    x, y = (rng.permutation(cloud.rows)[: settings.max_points] for cloud in clouds)
    starts = [np.eye(dim)]
    for _ in range(settings.rotations):
        starts.append(random_rotation(dim, rng))
    ends = [
        closest_point(
            x,
            y,
            start,
            iterations=settings.iterations,
            mutual=settings.mutual,
            csls_neighbors=settings.csls_neighbors,
        )
        for start in starts
    ]
    chosen = int(np.argmax([end.objective for end in ends]))
    best = ends[chosen]
    return rotated_model(
        NAME,
        clouds,
        best.rotation,
        anchors=anchors,
        pools=pools,
        settings=settings,
        start="principal axes" if chosen == 0 else f"random rotation {chosen}",
        mean_cosine=best.objective,
        iterations=best.iterations,
        converged=best.converged,
    )


def random_rotation(dim: int, rng: np.random.Generator) -> np.ndarray:
    """Return an orthogonal matrix drawn uniformly, `[dim, dim]`."""
    if dim == 1:
        # SciPy has no group of dimension one.
        return rng.choice([-1.0, 1.0], size=(1, 1))
    drawn: np.ndarray = scipy.stats.ortho_group.rvs(dim, random_state=rng)
    return drawn


METHODS = (
    Method(
        name=NAME,
        title="Iterative closest point",
        source=(
            "Besl, McKay (1992); orthogonal refinement of Conneau et al. (2018), "
            "arXiv:1710.04087"
        ),
        trust="ours",
        notes=(
            "Zero pairs: the anchors are not looked at. The paper that compares with "
            "it names no reference; this is MUSE's refinement loop without its seed "
            "dictionary, on 50 principal components with signs fixed by the data, "
            "from these axes and from random rotations, keeping the largest mean "
            "cosine. Near chance unless one cloud is close to a rotation of the other."
        ),
        needs=Needs(pairs=False, pools=True),
        settings=ClosestPointSettings(),
        short={"iterations": 30, "rotations": 4},
        fit=fit_closest_point,
    ),
)
