"""Candidates for gamma, eta and rho by the ranks of held-out anchors, and the rule.

The paper takes the candidate of smallest mean rank. Among thousands of items that mean
is made by the few worst of a few dozen ranks, and neighbouring candidates differ by
less than its error. By default, therefore, ranks count by their logarithm, and a
candidate must beat the paper's usual choice by more than a standard error to replace
it.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from anchordot_jax import coupling
from anchordot_jax.config import Config
from anchordot_jax.evaluation.heldout_choice import (
    errors_behind_best,
    preferred_near_best,
)

# The paper's most frequent choice (Table 9).
USUAL_GAMMA = 0.75
USUAL_ETA = 0.02


class Candidate(NamedTuple):
    """One point of the selection curve: averages over the held-out anchors."""

    gamma: float
    eta: float
    mean_rank: float
    """Mean rank of the true match, both directions; 1 is perfect."""
    log_rank: float
    """Mean natural logarithm of that rank; 0 is perfect."""
    standard_error: float
    """Standard error of how far `log_rank` is behind that of the best candidate."""
    recall_at_1: float
    recall_at_10: float
    epsilon: float
    n_iterations: int
    """Sinkhorn iterations, all draws together."""
    converged: bool
    rho: float | None = None
    """None: the plan has the pools' marginals themselves."""


Point = tuple[float, float, float | None]
"""gamma, eta and rho."""
Ranks = dict[Point, list[np.ndarray]]
"""Ranks of the held-out anchors at each point, one array a draw."""


def make_curve(
    ranks: Ranks, solves: dict[Point, list[coupling.Coupling]]
) -> tuple[Candidate, ...]:
    """Return every candidate with its averages, sorted by gamma, then eta, then rho."""
    # One number an anchor, [held out]: the two directions of an anchor are not
    # independent.
    logs = {
        point: np.concatenate([np.log(rank).reshape(2, -1).mean(0) for rank in draws])
        for point, draws in ranks.items()
    }
    points = sorted(logs, key=_order)
    errors = errors_behind_best(np.stack([logs[point] for point in points]))
    curve = []
    for point, error in zip(points, errors, strict=True):
        gamma, eta, rho = point
        log_rank, solved = logs[point], solves[point]
        rank = np.concatenate(ranks[point])
        candidate = Candidate(
            gamma=gamma,
            eta=eta,
            mean_rank=float(rank.mean()),
            log_rank=float(log_rank.mean()),
            standard_error=float(error),
            recall_at_1=float((rank <= 1).mean()),
            recall_at_10=float((rank <= 10).mean()),
            epsilon=float(np.mean([one.epsilon for one in solved])),
            n_iterations=sum(int(one.n_iterations) for one in solved),
            converged=all(bool(one.converged) for one in solved),
            rho=rho,
        )
        curve.append(candidate)
    return tuple(curve)


def softness(rho: float | None) -> float:
    """Return what grows as rho makes the marginals softer."""
    return -math.inf if rho is None else -rho


def _order(point: Point) -> tuple[float, float, float]:
    gamma, eta, rho = point
    return gamma, eta, softness(rho)


def _distance_from_usual(candidate: Candidate) -> float:
    """Return the steps to the usual choice: quarters of gamma plus doublings of eta."""
    steps_gamma = abs(candidate.gamma - USUAL_GAMMA) / 0.25
    return steps_gamma + abs(math.log2(candidate.eta / USUAL_ETA))


def choose(
    curve: tuple[Candidate, ...],
    config: Config,
    prefer: Callable[[Candidate], float] = _distance_from_usual,
) -> Candidate:
    """Return the candidate that the configured rule picks.

    By the default rule the least by `prefer` of those within a standard error.
    """
    if config.selection.rule == "paper":
        return min(curve, key=lambda candidate: candidate.mean_rank)
    chosen = preferred_near_best(
        [c.log_rank for c in curve],
        [c.standard_error for c in curve],
        [prefer(c) for c in curve],
    )
    return curve[chosen]
