"""From cells to rows: means, deviations, paired intervals."""

from typing import Any

import numpy as np
import pytest
import scipy.stats

from anchordot_jax.comparison import summary

NAMES = [*summary.RECALLS, *summary.SKEWNESS]


def cell(method: str, seed: int, level: float, **changes: Any) -> dict[str, Any]:
    """Return a finished cell whose recalls are all `level`."""
    metrics = dict.fromkeys(summary.RECALLS, level)
    metrics |= dict.fromkeys(summary.SKEWNESS, 0.5)
    values = {
        "method": method,
        "seed": seed,
        "status": "done",
        "metrics": metrics,
        "ranks": {"x2y": [1.0, 7.0, 30.0], "y2x": [2.0, 2.0]},
        "seconds": {
            "tuning": 1.0,
            "fit": 2.0 + seed,
            "scoring": 9.0,
            "cpu": 5.0 + seed,
        },
        "peak_memory": 1000 + seed,
    }
    return values | changes


def test_means_deviations_and_students_interval() -> None:
    ours, theirs = [0.30, 0.34, 0.35], [0.20, 0.22, 0.27]
    cells = [cell("ours", s, v) for s, v in enumerate(ours)]
    cells += [cell("theirs", s, v) for s, v in enumerate(theirs)]
    first, second = summary.summarize(cells, reference="ours", one_split=False)
    assert first.method == "ours"
    assert first.difference is None
    assert first.means["x2y/recall@1"] == pytest.approx(33.0)
    assert first.deviations[summary.MEAN] == pytest.approx(100 * np.std(ours, ddof=1))
    assert first.means["x2y/hubness_skewness@10"] == pytest.approx(0.5)
    assert first.seconds == pytest.approx(4.0)
    assert first.cpu_seconds == pytest.approx(6.0)
    assert first.peak_memory == 1002
    differences = 100 * (np.array(theirs) - ours)
    low, high = scipy.stats.t.interval(
        0.95, 2, loc=differences.mean(), scale=scipy.stats.sem(differences)
    )
    assert second.difference == pytest.approx((differences.mean(), low, high))


def test_differences_use_shared_seeds_only() -> None:
    cells = [cell("ours", 0, 0.5), cell("ours", 1, 0.9)]
    cells += [cell("theirs", 1, 0.4), cell("theirs", 2, 0.1)]
    _, row = summary.summarize(cells, reference="ours", one_split=False)
    assert row.difference is not None
    assert row.difference.mean == pytest.approx(-50)
    assert np.isnan(row.difference.low)
    assert row.seeds == (1, 2)


def test_no_shared_seed_no_difference() -> None:
    cells = [cell("ours", 0, 0.5), cell("theirs", 1, 0.4)]
    _, row = summary.summarize(cells, reference="ours", one_split=False)
    assert row.difference is None
    assert np.isnan(row.deviations[summary.MEAN])


def test_what_is_not_done_is_left_out() -> None:
    cells = [cell("ours", 0, 0.5), {**cell("theirs", 0, 0.4), "status": "refused"}]
    rows = summary.summarize(cells, reference="ours", one_split=False)
    assert [row.method for row in rows] == ["ours"]


def test_one_split_resamples_the_test_items() -> None:
    """With one split the interval covers the chance of the items, not of the seeds."""
    rng = np.random.default_rng(1)
    ranks = rng.integers(1, 20, size=400).astype(float)
    better = np.maximum(1, ranks - 4)
    ours = {"x2y": ranks.tolist(), "y2x": ranks.tolist()}
    theirs = {"x2y": better.tolist(), "y2x": better.tolist()}
    cells = [cell("ours", 0, 0, ranks=ours), cell("theirs", 0, 0, ranks=theirs)]
    _, row = summary.summarize(cells, reference="ours", one_split=True)
    hits = [np.mean([r <= k for k in (1, 5, 10)], axis=0) for r in (ranks, better)]
    gain = 100 * (hits[1] - hits[0])
    assert row.difference is not None
    assert row.difference.mean == pytest.approx(gain.mean())
    # Two directions of the same size, resampled independently.
    error = gain.std() / np.sqrt(2 * len(gain))
    assert row.difference.low == pytest.approx(gain.mean() - 1.96 * error, abs=0.3)
    assert row.difference.high == pytest.approx(gain.mean() + 1.96 * error, abs=0.3)


def test_the_same_method_differs_by_nothing() -> None:
    cells = [cell("ours", s, 0.3) for s in range(3)]
    cells += [cell("theirs", s, 0.3) for s in range(3)]
    for one_split in (False, True):
        _, row = summary.summarize(cells, reference="ours", one_split=one_split)
        assert row.difference == pytest.approx((0, 0, 0), abs=1e-9)
