"""Cross-modal retrieval metrics, exact under ties and without a score matrix.

All follow from three numbers per query: G gallery items that are not its positives
score above its best positive, E of them score exactly the same, and so do T >= 1
positives. Ties are broken at random, in expectation: G items come first, then E + T
in a random order, and the rank of the first positive is G plus the place of the first
of the T among them. Ranks start at 1. An encoder that maps everything to one point
thus gets exactly the scores of chance, however its rows are sorted.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchordot_jax.arrays import AnyArray
from anchordot_jax.errors import InputError
from anchordot_jax.evaluation.hubness import k_occurrence, skewness
from anchordot_jax.evaluation.pairs import positive_table
from anchordot_jax.evaluation.spectrum import participation_ratio
from anchordot_jax.matching.nearest import (
    BLOCK_BYTES,
    check_count,
    pad_rows,
    score_blocks,
    score_with,
)

HUBNESS_K = 10
"""Length of the neighbour lists whose hubness is measured."""


class Retrieval(NamedTuple):
    """What the metrics need to know of a retrieval, integers only."""

    greater: np.ndarray
    """Non-positives scoring above the best positive, per query [q]."""
    tied_other: np.ndarray
    """Non-positives with exactly the best positive's score, per query [q]."""
    tied_positive: np.ndarray
    """Positives with exactly the best positive's score, per query [q], >= 1."""
    k_occurrence: np.ndarray
    """How often each gallery item is within a query's top k [m]. Here ties go to the
    smaller index, as in `top_k`."""


def retrieve(
    queries: AnyArray,
    gallery: AnyArray,
    positives: np.ndarray,
    *,
    scale: float = 1.0,
    offsets: AnyArray | None = None,
    k: int = HUBNESS_K,
    block_bytes: int = BLOCK_BYTES,
) -> Retrieval:
    """Return where every query's best positive stands among the gallery's scores.

    The score of item j is scale * <q, g_j> + offset_j. Only one tile of scores, a
    block of queries by the gallery, exists at a time.

    Args:
        queries: Embeddings [q, d].
        gallery: Embeddings [m, d].
        positives: Gallery positions of each query's positives: [q], or [q, p] padded
            with -1.
        scale: Factor on the inner product.
        offsets: One term per gallery item [m], such as `bank_offsets`; None is zero.
        k: Length of the neighbour lists counted in `k_occurrence`.
        block_bytes: Size of a score tile.

    Raises:
        InputError: If shapes do not match, a value is not finite, a positive is not
            in the gallery, or a query has none.
    """
    scoring = score_with(queries, gallery, offsets=offsets, scale=scale)
    q, m = len(scoring.queries), len(scoring.gallery)
    table = positive_table(positives, q, m)
    check_count("k", k)
    k = min(k, m)
    counts = np.empty((3, q), np.int64)
    neighbours = np.empty((q, k), np.int32)
    for rows, tile in score_blocks(scoring, block_bytes):
        block, nearest = rank_in_tile(tile, pad_rows(table[rows], len(tile)), k)
        valid = rows.stop - rows.start
        counts[:, rows] = np.asarray(block)[:, :valid]
        neighbours[rows] = np.asarray(nearest)[:valid]
    greater, tied_other, tied_positive = counts
    occurrences = k_occurrence(neighbours, m)
    return Retrieval(greater, tied_other, tied_positive, occurrences)


def recall_at_k(retrieval: Retrieval, k: int) -> float:
    """Return the expected share of queries with a positive among the first k.

    With s = k - G slots for the E + T tied items, a query misses if all s go to the E
    others: recall is 0 if s <= 0, 1 if s > E, and otherwise

        1 - prod_{i=0}^{s-1} (E - i) / (E + T - i) = 1 - C(E, s) / C(E + T, s).

    Example: 1 positive among 4 equal scores has G = 0, E = 3, T = 1. Its rank is
    1, 2, 3 or 4 with the same probability, and recall@1 is 1 - 3/4 = 0.25 = k/m.
    """
    return float(np.mean(hits_at_k(retrieval, k)))


def hits_at_k(retrieval: Retrieval, k: int) -> np.ndarray:
    """Return each query's probability of a positive among the first k `[q]`.

    0 or 1 without ties; their mean is `recall_at_k`.
    """
    check_count("k", k)
    return _hit_probability(*retrieval[:3], k)


def expected_rank(retrieval: Retrieval) -> np.ndarray:
    """Return the expected rank of every query's first positive [q].

    G + (E + T + 1) / (T + 1), that is G + 1 + E/2 for one tied positive.
    """
    greater, other, positive, _ = retrieval
    ranks: np.ndarray = greater + (other + positive + 1) / (positive + 1)
    return ranks


def mean_reciprocal_rank(retrieval: Retrieval) -> float:
    """Return the mean over queries of the expected 1/rank of the first positive.

    For one tied positive the expectation is (H(G + E + 1) - H(G)) / (E + 1) with the
    harmonic numbers H; in general it is summed over the first positive's places.
    """
    greater, other, positive, _ = retrieval
    reciprocal = 1.0 / (greater + 1)
    tied = other > 0
    cases, where = np.unique(
        np.stack([greater[tied], other[tied], positive[tied]], axis=1),
        axis=0,
        return_inverse=True,
    )
    values = np.array([_tied_reciprocal_rank(*case) for case in cases])
    reciprocal[tied] = values[where.ravel()]
    return float(reciprocal.mean())


def chance_recall(n_gallery: int, n_positives: int, k: int) -> float:
    """Return recall@k of a random order: 1 - C(m - p, k) / C(m, k), k/m for p = 1."""
    check_count("k", k)
    check_count("n_positives", n_positives)
    if not n_positives <= n_gallery:
        raise InputError(
            f"n_positives must be at most n_gallery = {n_gallery}, got {n_positives}."
        )
    others, positives = np.array([n_gallery - n_positives]), np.array([n_positives])
    return float(_hit_probability(np.zeros(1, int), others, positives, k)[0])


def evaluate(
    x: AnyArray,
    y: AnyArray,
    positives_x2y: np.ndarray,
    positives_y2x: np.ndarray,
    *,
    ks: Sequence[int] = (1, 5, 10),
    offsets_x2y: AnyArray | None = None,
    offsets_y2x: AnyArray | None = None,
    scale: float = 1.0,
    block_bytes: int = BLOCK_BYTES,
) -> dict[str, float]:
    """Return the retrieval metrics of both directions and both sides' spectra.

    Keys: `x2y/recall@K` for every K in ks, `x2y/mean_rank`, `x2y/median_rank`,
    `x2y/mrr`, `x2y/hubness_skewness@10`, the same for `y2x`, and
    `x/participation_ratio`, `y/participation_ratio`. Recalls are in [0, 1].

    Args:
        x: Embeddings [q, d].
        y: Embeddings [m, d].
        positives_x2y: Each x row's positive y rows: [q], or [q, p] padded with -1.
        positives_y2x: Each y row's positive x rows: [m], or [m, p] padded with -1.
        ks: Cut-offs of recall; one above the gallery size counts as that size.
        offsets_x2y: Term per y row [m] for x queries, such as `bank_offsets`.
        offsets_y2x: Term per x row [q] for y queries.
        scale: Factor on the inner product, beta where offsets are given.
        block_bytes: Size of a score tile.

    Raises:
        InputError: As `retrieve`.
    """
    directions = {
        "x2y": (x, y, positives_x2y, offsets_x2y),
        "y2x": (y, x, positives_y2x, offsets_y2x),
    }
    metrics = {}
    for direction, (queries, gallery, positives, offsets) in directions.items():
        retrieval = retrieve(
            queries,
            gallery,
            positives,
            scale=scale,
            offsets=offsets,
            block_bytes=block_bytes,
        )
        for name, value in direction_metrics(retrieval, ks).items():
            metrics[f"{direction}/{name}"] = value
    metrics["x/participation_ratio"] = participation_ratio(x)
    metrics["y/participation_ratio"] = participation_ratio(y)
    return metrics


def direction_metrics(
    retrieval: Retrieval, ks: Sequence[int] = (1, 5, 10)
) -> dict[str, float]:
    """Return one direction's metrics: the keys of `evaluate` without the direction."""
    ranks = expected_rank(retrieval)
    recalls = {f"recall@{k}": recall_at_k(retrieval, k) for k in ks}
    return recalls | {
        "mean_rank": float(ranks.mean()),
        "median_rank": float(np.median(ranks)),
        "mrr": mean_reciprocal_rank(retrieval),
        f"hubness_skewness@{HUBNESS_K}": skewness(retrieval.k_occurrence),
    }


@functools.partial(jax.jit, static_argnames="k")
def rank_in_tile(
    tile: jax.Array, positives: AnyArray, k: int
) -> tuple[jax.Array, jax.Array]:
    """Return (greater, tied_other, tied_positive) [3, b] and the top k [b, k]."""
    scores = jnp.take_along_axis(tile, jnp.maximum(positives, 0), axis=1)
    scores = jnp.where(positives >= 0, scores, -jnp.inf)
    best = jnp.max(scores, axis=1, keepdims=True)
    # No positive beats the best one, so whatever does is not a positive.
    greater = jnp.sum(tile > best, axis=1)
    tied = jnp.sum(tile == best, axis=1)
    tied_positive = jnp.sum(scores == best, axis=1)
    counts = jnp.stack([greater, tied - tied_positive, tied_positive])
    return counts, jax.lax.top_k(tile, k)[1]


def _hit_probability(
    greater: np.ndarray, other: np.ndarray, positive: np.ndarray, k: int
) -> np.ndarray:
    """Return P(a positive is among the first k) per query [q].

    C(E, s) / C(E + T, s) is taken as prod_{t=1}^{T} (E - s + t) / (E + t), whose
    length is the number of tied positives, not of slots.
    """
    slots = np.maximum(k - greater, 0)
    miss = np.ones(len(slots))
    for t in range(1, int(positive.max()) + 1):
        factor = np.maximum(other - slots + t, 0) / (other + t)
        miss *= np.where(t <= positive, factor, 1.0)
    return 1.0 - miss


def _tied_reciprocal_rank(greater: int, other: int, positive: int) -> float:
    """Return E[1 / (G + F)] for the place F of the first of T among E + T items."""
    before = np.arange(other + 1)
    remaining = other + positive - before
    all_others = np.cumprod((other - before[:-1]) / remaining[:-1])
    first = np.concatenate([[1.0], all_others]) * positive / remaining
    return float(np.sum(first / (greater + 1 + before)))
