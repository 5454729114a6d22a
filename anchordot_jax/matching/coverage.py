"""Which items to pair next: a few that stand for all, chosen before any label.

k-means: the item nearest to each centre of as many clusters (Lloyd, 1982), typical
items. k-centre: each next item is the one farthest from all before (Gonzalez, 1985),
which reaches out to the odd ones. Rows are scaled to unit norm, so that near is a
large cosine; neither needs more than n x count numbers at once.
"""

from typing import Literal, NamedTuple

import numpy as np
import threadpoolctl

from anchordot_jax.arrays import AnyArray
from anchordot_jax.errors import InputError
from anchordot_jax.matching.nearest import as_embeddings, check_count, top_k

ITERATIONS = 20
"""Of k-means: centres that still move a little cover as well."""

Rule = Literal["k-means", "k-centre", "random"]


class Cover(NamedTuple):
    """Chosen items, and how much of the pool they stand for."""

    rows: np.ndarray
    """`[count]`, the one that stands for most items first."""
    covers: np.ndarray
    """Pool items that each is the nearest chosen one of `[count]`."""
    mean_cosine: float
    """Mean cosine of a pool item to its nearest chosen one."""


def choose_cover(
    pool: AnyArray,
    count: int,
    *,
    rule: Rule = "k-means",
    known: np.ndarray | None = None,
    seed: int = 0,
) -> Cover:
    """Return some rows of a pool that cover it.

    Args:
        pool: `[n, d]`.
        count: how many to choose.
        rule: how; `random` is what the others are to be compared with.
        known: rows that are paired already: never chosen, and for k-centre where it
            starts from. k-means clusters the others alone.
        seed: of the random draws.

    Raises:
        InputError: rows that are not finite, or fewer free rows than asked for.
    """
    rows = as_embeddings(pool, "pool")
    check_count("count", count)
    taken = np.unique(np.zeros(0, int) if known is None else known)
    free = np.setdiff1d(np.arange(len(rows)), taken)
    if len(free) < count:
        raise InputError(
            f"count must be at most the {len(free)} items that are not paired yet, got "
            f"{count}."
        )
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(norms > 0, norms, 1)
    rng = np.random.default_rng(seed)
    if rule == "k-means":
        chosen = free[_k_means(unit[free], count, seed)]
    elif rule == "k-centre":
        chosen = _k_centre(unit, count, taken, rng)
    else:
        chosen = rng.choice(free, count, replace=False)
    return _cover(unit, free, chosen)


def _cover(unit: np.ndarray, free: np.ndarray, chosen: np.ndarray) -> Cover:
    nearest = top_k(unit[free], unit[chosen], 1)
    covers = np.bincount(nearest.indices[:, 0], minlength=len(chosen))
    order = np.argsort(-covers, kind="stable")
    mean = float(nearest.scores.mean())
    return Cover(chosen[order], covers[order], mean)


def _k_means(unit: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return a row of each of `count` clusters, the nearest to its centre."""
    from sklearn.cluster import KMeans

    # More clusters than distinct rows would leave centres without one of their own.
    distinct = len(np.unique(unit, axis=0))
    if distinct < count:
        raise InputError(
            f"count must be at most the {distinct} distinct items, got {count}."
        )
    clusters = KMeans(count, n_init=1, max_iter=ITERATIONS, random_state=seed)
    # On a busy machine its threads wait for each other far longer than they save.
    with threadpoolctl.threadpool_limits(1):
        found = clusters.fit(unit)
    away = np.linalg.norm(unit - found.cluster_centers_[found.labels_], axis=1)
    order = np.lexsort((away, found.labels_))
    first = np.unique(found.labels_[order], return_index=True)[1]
    return np.asarray(order[first])


def _k_centre(
    unit: np.ndarray, count: int, known: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return rows, each the farthest from the known and chosen ones before it."""
    nearest = np.full(len(unit), -np.inf)
    for row in known:
        np.maximum(nearest, unit @ unit[row], out=nearest)
    chosen = []
    if not len(known):
        chosen.append(int(rng.integers(len(unit))))
        nearest = unit @ unit[chosen[0]]
    barred = nearest.copy()
    barred[known] = barred[chosen] = np.inf
    while len(chosen) < count:
        chosen.append(int(np.argmin(barred)))
        np.maximum(barred, unit @ unit[chosen[-1]], out=barred)
        barred[chosen[-1]] = np.inf
    return np.asarray(chosen)
