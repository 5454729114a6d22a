"""Targets: met, missed, not measured; potentials and recalls compared."""

from pathlib import Path
from typing import Any

import accuracy
import numpy as np
import pytest
import targets
from benchmark_records import cell

import reference
from anchordot_jax import files


def coupling_targets(*rows: dict[str, Any]) -> list[targets.Target]:
    """Return the coupling's targets of some rows of coupling.csv."""
    text = [
        {name: "" if v is None else str(v) for name, v in row.items()} for row in rows
    ]
    return list(targets.coupling_targets(text))


def test_a_ratio_is_met_or_missed() -> None:
    ours = cell("ours-streamed", warm_seconds=2.0, peak_gigabytes=1.0)
    slow = cell("ott-online", warm_seconds=12.0, peak_gigabytes=2.0)
    near = cell("ott-online", warm_seconds=6.0, peak_gigabytes=0.5)
    speed, memory, *_ = coupling_targets(ours, slow)
    assert (speed.measured, speed.met, memory.met) == ("6x (second calls)", True, True)
    speed, memory, *_ = coupling_targets(ours, near)
    assert (speed.measured, speed.met, memory.met) == (
        "3x (second calls)",
        False,
        False,
    )
    assert speed.verdict == "**missed**"


def test_a_ratio_is_of_the_same_call() -> None:
    ours = cell("ours-streamed", cold_seconds=4.0, warm_seconds=1.0)
    rival = cell("ott-online", cold_seconds=12.0)
    speed, *_ = coupling_targets(ours, rival)
    assert (speed.measured, speed.met) == ("3x (first calls)", False)
    speed, *_ = coupling_targets(ours | {"cold_seconds": None}, rival)
    assert (speed.measured, speed.verdict) == ("no call of both", "not measured")


def test_a_stopped_rival_gives_a_least_ratio() -> None:
    stopped = cell("ott-online", over_limit=120.0, peak_gigabytes=0.5)
    # The second call is quick, but the limit holds for the whole process.
    quick = cell(
        "ours-streamed", warm_seconds=1.0, process_seconds=10.0, peak_gigabytes=1.0
    )
    speed, memory, *_ = coupling_targets(quick, stopped)
    assert speed.measured == "at least 12x (whole process, first call)"
    assert (speed.met, memory.met) == (True, None)
    speed, *_ = coupling_targets(quick | {"process_seconds": 100.0}, stopped)
    assert speed.measured == "at least 1.2x (whole process, first call)"
    assert speed.verdict == "not decided"
    speed, *_ = coupling_targets(quick | {"process_seconds": None}, stopped)
    assert speed.met is None


def test_a_rival_that_was_not_run_gives_no_ratio() -> None:
    ours = cell("ours-streamed", warm_seconds=1.0, process_seconds=5.0)
    rival = cell("ott-online", over_limit=60.0, seen_at="flickr8k 2000 x 2000")
    speed, *_ = coupling_targets(ours, rival)
    assert speed.measured == "not run, passed 60 s at a smaller size"
    assert speed.met is None


def test_more_anchors_are_compared_with_their_profiles() -> None:
    few = cell("ours-cached", n=2000, m=2000, cold_seconds=9.0, warm_seconds=2.0)
    many = few | {"anchors": 5000, "warm_seconds": 8.0}

    def line(*rows: dict[str, Any]) -> targets.Target:
        text = [
            {k: "" if v is None else str(v) for k, v in row.items()} for row in rows
        ]
        return list(targets.anchor_targets(text))[-1]

    found = line(few, many)
    assert found.what == "cached coupling with profiles"
    assert (found.measured, found.met) == ("4x (second calls)", False)
    assert line(few, many | {"n": 3000}).verdict == "not measured"


def test_a_time_below_its_floor_decides_nothing() -> None:
    def verdicts(seconds: float, rate: float) -> list[str]:
        both = {"seconds": seconds, "floor": 1.0}
        floors = {
            "settings": {"size": "9", "anchors": [5, 6]},
            **{"streamed": both, "cached": both},
            "epoch": {"rate": rate, "matmul_rate": 100.0},
        }
        return [found.verdict for found in targets.floor_targets(floors)][:3]

    assert verdicts(0.97, 99.0) == ["met"] * 3
    said = "not decided: the measured rate is no floor"
    assert verdicts(0.94, 110.0) == [said] * 3


def test_the_fit_counts_at_the_papers_sizes_alone() -> None:
    settings = {"schedule": "full", "m": 2000, "n": 500, "dim_x": 384, "dim_y": 384}
    ours = {"seconds": 10.0, "process_seconds": 20.0}
    methods = {"anchordot": ours, "sotalign": {"seconds": 160.0}}
    times = {"settings": settings, "methods": methods}
    assert targets.fit_target(times).met is True
    stopped = times | {"methods": methods | {"sotalign": {"over_limit": 240.0}}}
    found = targets.fit_target(stopped)
    assert (found.measured, found.verdict) == ("at least 12x", "not decided")
    for name, value in (("schedule", "short"), ("m", 300), ("n", 5), ("dim_y", 9)):
        changed = times | {"settings": settings | {name: value}}
        found = targets.fit_target(changed)
        assert (found.met, found.measured) == (
            None,
            f"fit_times.py with another {name}",
        )
    del settings["dim_x"]
    assert targets.fit_target(times).met is None


def test_ours_stopped_or_small_problems_meet_nothing() -> None:
    stopped = cell("ours-streamed", over_limit=120.0)
    rival = cell("ott-online", warm_seconds=110.0, peak_gigabytes=1.0)
    speed, *_ = coupling_targets(stopped, rival)
    assert (speed.measured, speed.met) == ("stopped at 120 s, whole process", False)
    small = [row | {"n": 2000} for row in (stopped, rival)]
    assert {target.measured for target in coupling_targets(*small)} == {"coupling.py"}


def test_everything_is_listed_without_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets.main(targets.Args(docs=tmp_path))
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("not measured") for line in lines) == 19
    assert any("`anchordot --help`" in line for line in lines)
    assert "not measured" in (tmp_path / "targets.md").read_text()


def test_results_that_are_there_count(tmp_path: Path) -> None:
    both = {"seconds": 1.0, "floor": 0.9}
    grown = [{"seconds": 1.0}, {"seconds": 1.5}]
    floors = {
        "settings": {"size": "3600", "anchors": [500, 5000], "epochs": 200},
        "streamed": both,
        "cached": {"seconds": 3.0, "floor": 1.0},
        "growth": {"streamed": grown, "cached": grown},
        "epoch": {"rate": 70.0, "matmul_rate": 100.0},
        "selection": {"seconds": 9.0, "distillation_seconds": 10.0},
    }
    memory = {
        "cells": [
            {"n": n, "m": n, "start_gigabytes": 0.3, "peak_gigabytes": 0.3 + n * 1e-5}
            for n in (50_000, 100_000)
        ]
    }
    times = {
        "settings": targets.WHOLE_FIT,
        "methods": {
            "anchordot": {"seconds": 10.0, "process_seconds": 14.0},
            "sotalign": {"over_limit": 600.0},
        },
    }
    values = {"floors": floors, "memory": memory, "fit_times": times}
    for name, value in values.items():
        files.write_json(tmp_path / f"{name}.json", value)
    found = targets.all_targets(tmp_path, help_seconds=0.2)
    verdicts = {target.what: target.met for target in found}
    assert verdicts["streamed coupling, an iteration, 3600 rows"] is True
    assert verdicts["cached coupling, an iteration, 3600 rows"] is False
    assert verdicts["distillation step, 3600 rows"] is True
    assert verdicts["streamed solve on ready coordinates, 3600 rows"] is False
    assert verdicts["streamed coupling, 100k x 100k"] is True
    assert verdicts["whole fit, M = 2000, N = 500"] is True


def test_no_folder_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        targets.main(targets.Args(docs=tmp_path / "none"))
    assert raised.value.code == 2
    assert "is no folder; run coupling.py" in capsys.readouterr().err


def test_the_float64_reference_solves_the_problem() -> None:
    rng = np.random.default_rng(0)
    cost = rng.uniform(size=(17, 29))
    epsilon = 0.05
    f, g = accuracy.float64_potentials(cost, epsilon)
    plan = reference.plan(cost, f, g, epsilon)
    np.testing.assert_allclose(plan.sum(axis=1), 1 / 17, rtol=1e-9)
    np.testing.assert_allclose(plan.sum(axis=0), 1 / 29, rtol=1e-8)


def test_a_constant_is_no_difference() -> None:
    f, g = np.arange(4.0), np.arange(3.0)
    assert accuracy.largest_difference(f + 5, g - 5, (f, g), 0.1) < 1e-12
    moved = g + np.array([0.0, 0.02, 0.0])
    assert accuracy.largest_difference(f, moved, (f, g), 0.1) == pytest.approx(0.2)


def test_recalls_are_compared_seed_by_seed() -> None:
    def record(seed: int, plain: bool, value: float) -> dict[str, Any]:
        settings = {"what": "recall", "data": "d", "seed": seed, "reference": plain}
        return {"settings": settings, "result": dict.fromkeys(accuracy.RECALLS, value)}

    records = [record(0, True, 0.5), record(1, True, 0.3)]
    records += [record(0, False, 0.52), record(1, False, 0.3)]
    told = accuracy.differences(records)["d"]
    assert told["difference"] == pytest.approx(1.0)
    assert told["reference"] == pytest.approx(40)
    assert told["deviation"] == pytest.approx(np.sqrt(2))
