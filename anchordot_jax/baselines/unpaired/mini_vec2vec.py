"""mini-vec2vec: matched clusters as pseudo pairs, then a refined rotation.

Dar (2025), after the authors' notebook `linear_vec2vec.ipynb` (guy-dar/mini-vec2vec):

1. Each side is clustered; the clusters of the two sides are matched so that the
   centred inner products of their means agree best (quadratic assignment). Several
   rounds give several hundred pairs of cluster means, the pseudo anchors.
2. Items are described by their cosines to the pseudo anchors. Every x is matched with
   the average of the y that are most alike in these; Procrustes gives W.
3. Refinement: random x, the average of the y nearest to x W, Procrustes gives W', and
   W becomes (W + W')/2, which is not made orthogonal again.
"""

import dataclasses

import jax
import numpy as np
import threadpoolctl
from scipy.optimize import quadratic_assignment
from sklearn.cluster import KMeans

from anchordot_jax.baselines.protocol import Anchors, Method, Needs, Pools, numpy_rng
from anchordot_jax.baselines.unpaired.clouds import (
    procrustes,
    rotated_model,
    same_dimension,
    unit,
)
from anchordot_jax.config import check_setting
from anchordot_jax.errors import InputError
from anchordot_jax.matching.nearest import top_k
from anchordot_jax.model import AlignedModel

NAME = "mini-vec2vec"

# More than any random state of scikit-learn's.
SEEDS = 2**31


@dataclasses.dataclass(frozen=True, kw_only=True)
class MiniVec2VecSettings:
    """Settings of mini-vec2vec, with the notebook's defaults."""

    dim: int | None = None
    """Principal components kept a side. None: all columns if both sides have as many,
    else as many as the smaller side has."""
    rounds: int = 30
    """Clusterings of each side; each gives as many pseudo anchors as clusters."""
    clusters: int = 20
    """Clusters of each side in a round."""
    restarts: int = 30
    """Random starts of each quadratic assignment, the best of which is kept."""
    round_points: int = 10_000
    """Random rows of each pool that a round clusters."""
    neighbors: int = 50
    """Rows of y whose average a row of x is matched with."""
    refinements: int = 100
    """Refinement steps."""
    refinement_points: int = 1000
    """Random rows of x in a refinement step."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        least = {
            "rounds": 1,
            "clusters": 2,
            "restarts": 1,
            "round_points": 2,
            "neighbors": 1,
            "refinements": 0,
            "refinement_points": 1,
        } | ({} if self.dim is None else {"dim": 1})
        for name, low in least.items():
            value = getattr(self, name)
            ok = isinstance(value, int) and not isinstance(value, bool) and value >= low
            check_setting(ok, name, f"a whole number >= {low}", value)


def centred_gram(centres: np.ndarray) -> np.ndarray:
    """Return H C C^T H of cluster means C `[c, k]`, with H the centring of rows."""
    centred = centres - centres.mean(axis=0)
    gram: np.ndarray = centred @ centred.T
    return gram


def match_clusters(
    centres_x: np.ndarray,
    centres_y: np.ndarray,
    *,
    restarts: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return which cluster of y belongs to each of x's, `[c]`.

    The permutation p that makes sum_ij G_x[i, j] G_y[p_i, p_j] largest, by pairwise
    exchanges from several random starts; exact for no instance in particular.

    Args:
        centres_x: cluster means `[c, k]`.
        centres_y: cluster means `[c, k]`; k may differ from x's.
        restarts: random starts.
        rng: draws them.
    """
    gram_x, gram_y = centred_gram(centres_x), centred_gram(centres_y)
    found = [
        quadratic_assignment(
            gram_x, gram_y, method="2opt", options={"maximize": True, "rng": rng}
        )
        for _ in range(restarts)
    ]
    best: np.ndarray = max(found, key=lambda result: result.fun).col_ind
    return best


def pseudo_anchors(
    x: np.ndarray,
    y: np.ndarray,
    *,
    settings: MiniVec2VecSettings,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Return matched cluster means of all rounds, both `[rounds * clusters, k]`.

    Raises:
        InputError: a side has fewer rows than clusters.
    """
    fewest = min(len(x), len(y), settings.round_points)
    if fewest < settings.clusters:
        raise InputError(
            f"{NAME} makes {settings.clusters} clusters a side but has {fewest} rows "
            f"to cluster; lower clusters or give larger pools."
        )
    all_x, all_y = [], []
    for _ in range(settings.rounds):
        centres_x = _cluster(x, settings, rng)
        centres_y = _cluster(y, settings, rng)
        order = match_clusters(
            centres_x, centres_y, restarts=settings.restarts, rng=rng
        )
        all_x.append(centres_x)
        all_y.append(centres_y[order])
    return np.concatenate(all_x), np.concatenate(all_y)


def _cluster(
    rows: np.ndarray, settings: MiniVec2VecSettings, rng: np.random.Generator
) -> np.ndarray:
    """Return the means of one side's clusters in one round, `[clusters, k]`."""
    drawn = rng.permutation(len(rows))[: settings.round_points]
    fitted = KMeans(
        settings.clusters, n_init=1, random_state=int(rng.integers(SEEDS))
    ).fit(rows[drawn])
    centres: np.ndarray = fitted.cluster_centers_
    return centres


def average_of_nearest(
    queries: np.ndarray, keys: np.ndarray, values: np.ndarray, neighbors: int
) -> np.ndarray:
    """Return for each query the mean of the values whose keys are nearest, `[q, k]`.

    Args:
        queries: `[q, a]`; scaled to unit norm here.
        keys: `[m, a]`; scaled to unit norm here.
        values: `[m, k]`, one a key.
        neighbors: how many, at most m.
    """
    nearest = top_k(unit(queries), unit(keys), neighbors)
    mean: np.ndarray = values[nearest.indices].mean(axis=1)
    return mean


def first_rotation(
    x: np.ndarray,
    y: np.ndarray,
    anchors_x: np.ndarray,
    anchors_y: np.ndarray,
    neighbors: int,
) -> np.ndarray:
    """Return W `[k, k]` from cosines relative to pseudo anchors (step 2).

    Args:
        x: unit-norm rows `[n, k]`.
        y: unit-norm rows `[m, k]`.
        anchors_x: `[a, k]`; row i belongs to row i of `anchors_y`.
        anchors_y: `[a, k]`.
        neighbors: rows of y that are averaged.
    """
    relative_x, relative_y = x @ unit(anchors_x).T, y @ unit(anchors_y).T
    return procrustes(x, average_of_nearest(relative_x, relative_y, y, neighbors))


def refine(
    x: np.ndarray,
    y: np.ndarray,
    rotation: np.ndarray,
    *,
    settings: MiniVec2VecSettings,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return W after the refinement steps (step 3), `[k, k]`."""
    for _ in range(settings.refinements):
        some = x[rng.permutation(len(x))[: settings.refinement_points]]
        matched = average_of_nearest(some @ rotation, y, y, settings.neighbors)
        rotation = (rotation + procrustes(some, matched)) / 2
    return rotation


def fit_mini_vec2vec(
    anchors: Anchors, pools: Pools, *, settings: MiniVec2VecSettings, key: jax.Array
) -> AlignedModel:
    """Return a nearly orthogonal map of x's pool onto y's, found without any pair.

    Raises:
        InputError: a pool has fewer rows than clusters, or than two.
    """
    rng = numpy_rng(key)
    clouds = same_dimension(pools, settings.dim)
    x, y = (cloud.rows.astype(np.float32) for cloud in clouds)
    with threadpoolctl.threadpool_limits(1):
        anchors_x, anchors_y = pseudo_anchors(x, y, settings=settings, rng=rng)
        rotation = first_rotation(x, y, anchors_x, anchors_y, settings.neighbors)
        rotation = refine(x, y, rotation, settings=settings, rng=rng)
    return rotated_model(
        NAME,
        clouds,
        rotation,
        anchors=anchors,
        pools=pools,
        settings=settings,
        n_pseudo_anchors=len(anchors_x),
    )


METHODS = (
    Method(
        name=NAME,
        title="mini-vec2vec",
        source="Dar (2025), mini-vec2vec, github.com/guy-dar/mini-vec2vec",
        trust="code",
        notes=(
            "Zero pairs: the anchors are not looked at. Follows the first refinement "
            "of the notebook, not its second by 500 clusters. Each pool is centred by "
            "its own mean. The notebook's spaces have equal dimensions; here sides "
            "that differ are reduced to their principal components (our reading)."
        ),
        needs=Needs(pairs=False, pools=True),
        settings=MiniVec2VecSettings(),
        short={"rounds": 8, "restarts": 8, "refinements": 30},
        fit=fit_mini_vec2vec,
    ),
)
