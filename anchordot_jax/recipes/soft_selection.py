"""Choosing the soft-matched CCA's settings by cross-validation over the anchors.

The criterion is the mean logarithm of the rank of held-out anchors, `heldout_ranks`.
The settings are chosen one after the other: the first stage's ridges by that stage
alone, then what makes the plan of it and the second stage's own by the second. A plan
prefers coordinates that are weighted less steeply than a ranking does, so the first
stage's power is chosen by what comes of it. A value that is no more than one standard
error behind the best stays: a choice by few anchors should not follow their noise.

Held-out items count in their side's covariance, as any unpaired item does, so one
eigendecomposition a side serves all folds, all candidates and the fit itself.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from anchordot_jax.config import CouplingConfig, SoftCcaConfig
from anchordot_jax.evaluation.heldout_choice import (
    errors_behind_best,
    preferred_near_best,
)
from anchordot_jax.parallel.cores import available_cores
from anchordot_jax.recipes import canonical, soft_cca, two_sides
from anchordot_jax.recipes.heldout_ranks import (
    Fold,
    Gallery,
    heldout_logs,
    make_folds,
    set_apart,
    subset,
)
from anchordot_jax.recipes.plan_cross import plan_cross

MIN_ANCHORS = 10
MANY_ANCHORS = 300
"""From so many anchors on, the smaller ridges are among the candidates."""

FIRST = ("ridge", "balance")
"""Chosen by the first stage alone."""
SECOND = ("sharpness", "power", "ridge_ratio", "balance_ratio", "final_power")
CANDIDATES: dict[str, tuple[float, ...]] = {
    "ridge": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    "balance": (0.25, 0.5, 1.0, 2.0, 4.0),
    "sharpness": (3.0, 5.0, 8.0),
    "power": (0.5, 0.75, 1.0),
    "ridge_ratio": (0.06, 0.12, 0.25, 0.5, 1.0),
    "balance_ratio": (0.5, 1.0, 2.0),
    "final_power": (0.5, 0.75, 1.0),
}
"""In the order in which they are tried: each plan starts from the softer one before."""
FEW_ANCHORS: dict[str, tuple[float, ...]] = {
    "ridge": (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0),
    "ridge_ratio": (0.015, 0.03, 0.06, 0.12, 0.25, 0.5),
}
USUAL_FEW = soft_cca.Settings(ridge=16.0, ridge_ratio=0.06, sharpness=5.0, power=0.75)
USUAL = soft_cca.Settings(ridge=4.0, ridge_ratio=0.12, sharpness=5.0, power=0.75)
"""Where the search starts, and what is taken where there are too few anchors."""


class Candidate(NamedTuple):
    """One value tried of one setting, the others being as they were then."""

    setting: str
    value: float
    log_rank: float
    """Mean natural logarithm of the held-out ranks; 0 is perfect."""
    standard_error: float
    """Standard error of how far `log_rank` is behind the setting's best value."""


class SoftSelection(NamedTuple):
    """The chosen settings, and every candidate tried."""

    ridge: float
    ridge_ratio: float
    sharpness: float
    balance: float
    power: float
    balance_ratio: float
    final_power: float
    curve: tuple[Candidate, ...]
    """In the order in which they were tried."""
    n_heldout: int
    """Held-out anchors ranked for each candidate, all folds together."""
    reason: str
    """One sentence saying how the choice was made."""

    @property
    def settings(self) -> soft_cca.Settings:
        """What was chosen."""
        names = soft_cca.Settings._fields
        return soft_cca.Settings(**{name: getattr(self, name) for name in names})


Progress = Callable[[int, int], None]
Judge = Callable[[soft_cca.Settings], np.ndarray]
"""Settings -> log rank of every anchor, held out, the mean of both ways."""


def select(
    sides: two_sides.Sides,
    config: SoftCcaConfig,
    *,
    coupling: CouplingConfig,
    key: PRNGKeyArray,
    progress: Progress | None = None,
) -> SoftSelection:
    """Return the settings of smallest held-out log rank, one after the other.

    A setting of one candidate is not searched. With fewer than 10 anchors nothing is
    held out and the usual settings are taken.

    Args:
        sides: both sides, see `two_sides.prepare`.
        config: the candidates, and how they are judged.
        coupling: settings of the transport.
        key: fixes the folds, the gallery and the pools' subset.
        progress: called with the number of candidates done, fold by fold, and their
            total.
    """
    n = len(sides.x.anchors)
    tried = candidates(config, n)
    chosen = _start(tried, USUAL if n >= MANY_ANCHORS else USUAL_FEW)
    if all(len(values) == 1 for values in tried.values()):
        return SoftSelection(*chosen, (), 0, "Nothing was left to choose.")
    if n < MIN_ANCHORS:
        reason = f"{n} anchors are too few to hold some out; the defaults were taken."
        return SoftSelection(*chosen, (), 0, reason)
    key_folds, key_pool = jax.random.split(key)
    folds = make_folds(sides, config.folds, key=key_folds)
    few = subset(sides, config.pool_limit, key=key_pool)
    matched, gallery = set_apart(few, config.gallery)
    total = len(folds) * sum(len(own) for own in tried.values() if len(own) > 1)
    done = itertools.count(1)

    def tick() -> None:
        if progress is not None:
            progress(next(done), total)

    judges = {
        FIRST: _judge_first(sides, folds, gallery, tick),
        SECOND: _judge_second(matched, folds, gallery, coupling, tick),
    }
    curve: list[Candidate] = []
    for names, judge in judges.items():
        for name in names:
            if len(tried[name]) > 1:
                points = _try(name, tried[name], chosen, judge)
                value = choose(points, None if name == "ridge" else chosen)
                chosen = chosen._replace(**{name: value})
                curve += points
    reason = f"Chosen by the ranks of {n} held-out anchors."
    return SoftSelection(*chosen, tuple(curve), n, reason)


def candidates(
    config: SoftCcaConfig, n_anchors: int
) -> Mapping[str, tuple[float, ...]]:
    """Return the values to choose among, by setting."""
    found = CANDIDATES | (FEW_ANCHORS if n_anchors < MANY_ANCHORS else {})
    for name in CANDIDATES:
        own = getattr(config, name)
        if not isinstance(own, str):
            found[name] = own if isinstance(own, tuple) else (own,)
    return found


def _start(
    tried: Mapping[str, tuple[float, ...]], usual: soft_cca.Settings
) -> soft_cca.Settings:
    """Return of each setting the candidate nearest to the usual value."""
    nearest = {
        name: min(own, key=lambda value: abs(math.log(value / getattr(usual, name))))
        for name, own in tried.items()
    }
    return soft_cca.Settings(**nearest)


def _try(
    name: str, values: tuple[float, ...], settings: soft_cca.Settings, judge: Judge
) -> list[Candidate]:
    """Return the values of one setting with their averages over all anchors."""
    logs = np.array([judge(settings._replace(**{name: value})) for value in values])
    errors = errors_behind_best(logs)
    return [
        Candidate(name, value, float(own.mean()), float(error))
        for value, own, error in zip(values, logs, errors, strict=True)
    ]


def choose(points: list[Candidate], known: soft_cca.Settings | None) -> float:
    """Return the best value; the known one, if it is within a standard error of it."""
    log_ranks = [point.log_rank for point in points]
    stays = [
        known is not None and point.value == getattr(known, point.setting)
        for point in points
    ]
    costs = [-math.inf if s else own for s, own in zip(stays, log_ranks, strict=True)]
    errors = [point.standard_error for point in points]
    return points[preferred_near_best(log_ranks, errors, costs)].value


def _judge_first(
    sides: two_sides.Sides,
    folds: list[Fold],
    gallery: Gallery,
    tick: Callable[[], None],
) -> Judge:
    def judge(settings: soft_cca.Settings) -> np.ndarray:
        def ranked(fold: Fold) -> np.ndarray:
            weights = fold.first.weights(settings)
            return heldout_logs(sides, fold, gallery, weights)

        return _side_by_side(ranked, folds, tick)

    return judge


def _side_by_side(
    ranked: Callable[..., np.ndarray], folds: Sequence[object], tick: Callable[[], None]
) -> np.ndarray:
    """Return the log ranks of all folds, each of which is NumPy's work in one thread.

    Products and factorisations leave the interpreter to the other threads. Each thread
    holds an eigenproblem of its own, some matrices of the narrower side's width.
    """
    workers = min(len(folds), available_cores())
    # Around all of them: the limit of one ends while the others still work.
    with canonical.single_thread(), ThreadPoolExecutor(workers) as threads:
        found = []
        for logs in threads.map(ranked, folds):
            found.append(logs)
            tick()
    return np.concatenate(found)


def _judge_second(
    sides: two_sides.Sides,
    folds: list[Fold],
    gallery: Gallery,
    config: CouplingConfig,
    tick: Callable[[], None],
) -> Judge:
    """Return the judge that solves one plan a sharpness and power."""
    plans: dict[tuple[float, float], list[np.ndarray]] = {}
    potentials: dict[int, tuple[Array, Array]] = {}

    def crosses(settings: soft_cca.Settings) -> list[np.ndarray]:
        found = []
        for i, fold in enumerate(folds):
            solved, u, v = soft_cca.match_pools(
                sides,
                fold.first.weights(settings),
                settings.sharpness,
                config=config,
                init=potentials.get(i),
            )
            potentials[i] = solved.f, solved.g
            pool = plan_cross(solved, u, v, sides.x.pool, sides.y.pool)
            cross = soft_cca.matched_cross(sides, fold.cross, pool, len(fold.kept))
            found.append(cross.astype(np.float32))
        return found

    def judge(settings: soft_cca.Settings) -> np.ndarray:
        teacher = settings.sharpness, settings.power
        if teacher not in plans:
            plans[teacher] = crosses(settings)

        def ranked(part: tuple[Fold, np.ndarray]) -> np.ndarray:
            fold, cross = part
            weights = soft_cca.second_weights(sides, cross, settings)
            return heldout_logs(sides, fold, gallery, weights)

        parts = list(zip(folds, plans[teacher], strict=True))
        return _side_by_side(ranked, parts, tick)

    return judge
