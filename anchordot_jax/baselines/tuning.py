"""Choosing a method's settings by held-out anchors: one procedure for all methods.

Some anchors are held out of the fit; their true matches are ranked among all held-out
and pool items of the other side, both ways. Each candidate's score is the mean
logarithm of those ranks. The preferred candidate (the first) is replaced only by one
that is better by more than a standard error of the paired difference, which is also how
AnchorDOT's own gamma and eta are chosen. No test item is involved.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from anchordot_jax.baselines.protocol import Anchors, Method, Pools, Scorer
from anchordot_jax.evaluation.heldout_choice import (
    errors_behind_best,
    preferred_near_best,
)
from anchordot_jax.evaluation.score_matrix import partner_ranks
from anchordot_jax.model import AlignedModel

HELDOUT = 0.2
"""Share of the anchors that a draw holds out."""
MIN_HELDOUT = 60
"""Draws are added until so many anchors were held out, or all were."""
MIN_ANCHORS = 10
"""With fewer anchors nothing is held out and the preferred settings are taken."""


class Candidate(NamedTuple):
    """One setting tried."""

    settings: Any
    log_rank: float
    """Mean natural logarithm of the held-out ranks; 0 is perfect."""
    standard_error: float
    """Standard error of how far `log_rank` is behind the best candidate's."""


class Choice(NamedTuple):
    """The chosen settings, and what they were chosen among."""

    settings: Any
    curve: tuple[Candidate, ...]
    """Empty where nothing was chosen."""
    n_heldout: int


def choose(
    method: Method, anchors: Anchors, pools: Pools, *, settings: Any, key: jax.Array
) -> Choice:
    """Return the candidate of smallest held-out log rank, by one standard error.

    Args:
        method: whose grid is searched.
        anchors: all anchors; held-out draws are disjoint parts of them.
        pools: the unpaired pools.
        settings: values of the settings that the grid does not vary.
        key: fixes the draws and the candidates' fits.
    """
    candidates = method.candidates(settings)
    if len(candidates) == 1 or len(anchors.x) < MIN_ANCHORS:
        return Choice(candidates[0], (), 0)
    key_draws, key_fit = jax.random.split(key)
    ranks: list[list[np.ndarray]] = [[] for _ in candidates]
    for kept, held in heldout_draws(anchors, key=key_draws):
        fits = method.fit_candidates(kept, pools, candidates, key=key_fit)
        for own, scorer in zip(ranks, fits, strict=True):
            own.append(heldout_ranks(scorer, held, pools))
    return _choose(candidates, ranks)


def _choose(candidates: list[Any], ranks: list[list[np.ndarray]]) -> Choice:
    # One number an anchor: its two directions are not independent.
    logs = np.array([np.log(np.concatenate(own, axis=1)).mean(axis=0) for own in ranks])
    log_ranks, errors = logs.mean(axis=1).tolist(), errors_behind_best(logs).tolist()
    chosen = preferred_near_best(log_ranks, errors, range(len(candidates)))
    curve = map(Candidate, candidates, log_ranks, errors)
    return Choice(candidates[chosen], tuple(curve), logs.shape[1])


def heldout_draws(
    anchors: Anchors, *, key: jax.Array
) -> Iterator[tuple[Anchors, Anchors]]:
    """Yield disjoint draws (kept, held out) until enough anchors were held out."""
    n = len(anchors.x)
    size = max(2, round(HELDOUT * n))
    order = np.asarray(jax.random.permutation(key, n))
    for draw in range(min(math.ceil(MIN_HELDOUT / size), n // size)):
        held = order[draw * size : (draw + 1) * size]
        kept = np.setdiff1d(order, held)
        yield (
            Anchors(anchors.x[kept], anchors.y[kept]),
            Anchors(anchors.x[held], anchors.y[held]),
        )


def heldout_ranks(scorer: Scorer, held: Anchors, pools: Pools) -> np.ndarray:
    """Return the ranks `[2, h]` of the true matches among held-out and pool items.

    Row 0: of y for each held-out x; row 1: of x for each held-out y. Ties count half.
    """
    x = np.concatenate([held.x, pools.x])
    y = np.concatenate([held.y, pools.y])
    h = len(held.x)
    if isinstance(scorer, AlignedModel):
        embedded_x, embedded_y = scorer.embed_x(x), scorer.embed_y(y)
        x2y = embedded_x[:h] @ embedded_y.T
        y2x = embedded_y[:h] @ embedded_x.T
    else:
        scores = scorer.scores(x, y)
        x2y, y2x = scores.x2y[:h], scores.y2x[:h]
    return np.stack([partner_ranks(x2y), partner_ranks(y2x)])
