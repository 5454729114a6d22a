"""From cells to a table: means, deviations, and paired differences with intervals."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

RECALLS = tuple(f"{way}/recall@{k}" for way in ("x2y", "y2x") for k in (1, 5, 10))
SKEWNESS = tuple(f"{way}/hubness_skewness@10" for way in ("x2y", "y2x"))
MEAN = "mean of six recalls"
CONFIDENCE = 0.95
RESAMPLES = 2000


class Interval(NamedTuple):
    """A mean difference with its 95 % interval."""

    mean: float
    low: float
    high: float


class Row(NamedTuple):
    """One method's line of the table."""

    method: str
    seeds: tuple[int, ...]
    means: dict[str, float]
    """By metric; recalls in %."""
    deviations: dict[str, float]
    """Sample standard deviation over the seeds; NaN for one seed."""
    difference: Interval | None
    """Mean of the six recalls less the reference's, in points, on the same seeds;
    None for the reference itself and where they share no seed."""
    seconds: float
    """Median seconds of the choice and the fit together."""
    cpu_seconds: float
    """The same in processor time; NaN where the results do not say."""
    peak_memory: int
    """Largest peak, in bytes."""


def student_interval(values: Sequence[float]) -> Interval:
    """Return the mean of one value a seed with Student's 95 % interval.

    NaN without a value; the interval's ends are NaN for a single one.
    """
    n = len(values)
    mean = float(np.mean(values)) if n else math.nan
    if n < 2:
        return Interval(mean, math.nan, math.nan)
    quantile = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, n - 1))
    half = quantile * float(np.std(values, ddof=1)) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half)


def summarize(
    results: Iterable[Mapping[str, Any]], *, reference: str, one_split: bool
) -> list[Row]:
    """Return one row a method, in the order of the results.

    Args:
        results: cells; those that are not done are left out.
        reference: the method that the differences are taken from.
        one_split: whether all seeds share one split. Then seeds differ by the method's
            own randomness alone, and the interval comes from resampling test items;
            otherwise it is Student's, over the seeds.
    """
    cells: dict[str, dict[int, Mapping[str, Any]]] = {}
    for result in results:
        if result["status"] == "done":
            cells.setdefault(result["method"], {})[result["seed"]] = result
    base = cells.get(reference, {})
    return [
        _row(method, own, {} if method == reference else base, one_split=one_split)
        for method, own in cells.items()
    ]


def _row(
    method: str,
    own: Mapping[int, Mapping[str, Any]],
    base: Mapping[int, Mapping[str, Any]],
    *,
    one_split: bool,
) -> Row:
    values = {name: [_value(cell, name) for cell in own.values()] for name in _names()}
    shared = sorted(set(own) & set(base))
    difference = None
    if shared:
        pairs = [(own[seed], base[seed]) for seed in shared]
        difference = _resampled(pairs) if one_split else _over_seeds(pairs)
    seconds = [
        cell["seconds"]["tuning"] + cell["seconds"]["fit"] for cell in own.values()
    ]
    return Row(
        method=method,
        seeds=tuple(sorted(own)),
        means={name: float(np.mean(column)) for name, column in values.items()},
        deviations={name: _deviation(column) for name, column in values.items()},
        difference=difference,
        seconds=float(np.median(seconds)),
        cpu_seconds=float(
            np.median([cell["seconds"].get("cpu", math.nan) for cell in own.values()])
        ),
        peak_memory=max(int(cell["peak_memory"]) for cell in own.values()),
    )


def _names() -> tuple[str, ...]:
    return (*RECALLS, MEAN, *SKEWNESS)


def _value(cell: Mapping[str, Any], name: str) -> float:
    if name == MEAN:
        return float(np.mean([100 * cell["metrics"][recall] for recall in RECALLS]))
    scale = 100 if name in RECALLS else 1
    return float(scale * cell["metrics"][name])


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def _over_seeds(
    pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
) -> Interval:
    """Return Student's interval of the seeds' paired differences."""
    return student_interval(
        [_value(own, MEAN) - _value(base, MEAN) for own, base in pairs]
    )


def _resampled(
    pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
) -> Interval:
    """Return the interval of the mean difference over resampled test items.

    Each direction's queries are drawn with replacement; a query's difference is its
    mean over the seeds and the three cut-offs.
    """
    rng = np.random.default_rng(0)
    means = np.zeros(RESAMPLES)
    point = 0.0
    for way in ("x2y", "y2x"):
        per_query = np.mean(
            [
                _hits(own["ranks"][way]) - _hits(base["ranks"][way])
                for own, base in pairs
            ],
            axis=0,
        )
        drawn = rng.integers(len(per_query), size=(RESAMPLES, len(per_query)))
        means += per_query[drawn].mean(axis=1) / 2
        point += per_query.mean() / 2
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(point), float(low), float(high))


def _hits(ranks: Sequence[float]) -> np.ndarray:
    """Return each query's share of the cut-offs 1, 5 and 10 that it meets, in %."""
    return np.asarray(
        100 * np.mean([np.asarray(ranks) <= k for k in (1, 5, 10)], axis=0)
    )
