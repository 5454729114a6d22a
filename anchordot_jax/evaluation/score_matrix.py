"""Retrieval metrics of scores that are given whole, one matrix a direction.

For matching rules whose scores are no inner products plus an offset per gallery item,
or differ between the directions. Ties count as in `evaluation.retrieval`.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from anchordot_jax.arrays import AnyArray
from anchordot_jax.errors import InputError
from anchordot_jax.evaluation.hubness import k_occurrence
from anchordot_jax.evaluation.pairs import positive_table
from anchordot_jax.evaluation.retrieval import (
    HUBNESS_K,
    Retrieval,
    direction_metrics,
    rank_in_tile,
)
from anchordot_jax.matching.nearest import as_embeddings, check_count


def retrieve_scores(
    scores: AnyArray, positives: np.ndarray, *, k: int = HUBNESS_K
) -> Retrieval:
    """Return where every query's best positive stands among its scores.

    Args:
        scores: `[q, m]`, a query's scores of the gallery a row; larger is better.
        positives: gallery positions of each query's positives: `[q]`, or `[q, p]`
            padded with -1.
        k: length of the neighbour lists counted in `k_occurrence`.

    Raises:
        InputError: If the scores are not a finite matrix, a positive is not in the
            gallery, or a query has none.
    """
    checked = as_embeddings(scores, "scores")
    q, m = checked.shape
    table = positive_table(positives, q, m)
    check_count("k", k)
    # Adding 0 turns -0.0, which a sort puts below 0.0, into 0.0.
    tile = jnp.asarray(checked + np.float32(0))
    counts, neighbours = rank_in_tile(tile, table, min(k, m))
    greater, tied_other, tied_positive = np.asarray(counts, np.int64)
    occurrences = k_occurrence(np.asarray(neighbours), m)
    return Retrieval(greater, tied_other, tied_positive, occurrences)


def evaluate_scores(
    x2y: AnyArray,
    y2x: AnyArray,
    positives_x2y: np.ndarray,
    positives_y2x: np.ndarray,
    *,
    ks: Sequence[int] = (1, 5, 10),
) -> dict[str, float]:
    """Return the retrieval metrics of both directions.

    The keys of `evaluation.evaluate` without the participation ratios, for which there
    are no embeddings: `x2y/recall@K` for every K in ks, `x2y/mean_rank`,
    `x2y/median_rank`, `x2y/mrr`, `x2y/hubness_skewness@10`, and the same for `y2x`.

    Args:
        x2y: scores of the y items for every x item `[q, m]`.
        y2x: scores of the x items for every y item `[m, q]`.
        positives_x2y: each x item's positive y items: `[q]`, or `[q, p]` padded with
            -1.
        positives_y2x: each y item's positive x items: `[m]`, or `[m, p]` padded with
            -1.
        ks: cut-offs of recall; one above the gallery size counts as that size.

    Raises:
        InputError: As `retrieve_scores`, or if y2x is not shaped as x2y transposed.
    """
    if np.shape(x2y) != np.shape(y2x)[::-1]:
        raise InputError(
            f"x2y has shape {np.shape(x2y)} and y2x {np.shape(y2x)}; give the scores "
            "of the same items both ways, [q, m] and [m, q]."
        )
    directions = {"x2y": (x2y, positives_x2y), "y2x": (y2x, positives_y2x)}
    return {
        f"{direction}/{name}": value
        for direction, (scores, positives) in directions.items()
        for name, value in direction_metrics(
            retrieve_scores(scores, positives), ks
        ).items()
    }


def partner_ranks(scores: np.ndarray) -> np.ndarray:
    """Return the rank of column k in row k of `[h, m]`; ties count half, NaN last."""
    own = np.diagonal(scores)[:, None]
    above = (~(scores <= own)).sum(axis=1)
    equal = (scores == own).sum(axis=1) - 1
    return np.asarray(1 + above + np.maximum(equal, 0) / 2)
