"""One cell, and the grid of cells: stored, skipped, refused, never of other data."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reference
from anchordot_jax.baselines.protocol import (
    Anchors,
    Method,
    Needs,
    Pools,
    check_equal_dimensions,
    make_model,
)
from anchordot_jax.comparison import grid, report, summary, tables
from anchordot_jax.comparison.cell import run_cell
from anchordot_jax.comparison.memory import peak_memory
from anchordot_jax.comparison.problem import Problem, make_problem
from anchordot_jax.data import protocol_split
from anchordot_jax.errors import InputError
from anchordot_jax.maps.linear import linear_side
from anchordot_jax.model import AlignedModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the planted method."""

    noise: float = 0.0
    steps: int = 7


CALLS: list[Any] = []


def fit(
    anchors: Anchors, pools: Pools, *, settings: Settings, key: Any
) -> AlignedModel:
    """Return the identity spoilt by noise; refuse unequal dimensions."""
    CALLS.append(settings)
    check_equal_dimensions("planted", anchors)
    d = anchors.x.shape[1]
    spoil = np.random.default_rng(0).normal(size=(d, d))
    params = {
        "x": linear_side(np.eye(d) + settings.noise * spoil),
        "y": linear_side(np.eye(d)),
    }
    return make_model(
        "planted", params, anchors=anchors, settings=settings, kind="linear"
    )


def broken(*arrays: Any, settings: Any, key: Any) -> AlignedModel:
    """Die."""
    raise FloatingPointError("it diverged")


def method(name: str = "planted", **changes: Any) -> Method:
    """Return the planted method."""
    options = {
        "name": name,
        "title": "Planted",
        "source": "here",
        "trust": "ours",
        "settings": Settings(),
        "short": {"steps": 3},
        "grid": {"noise": (0.5, 0.0)},
        "fit": fit,
    }
    return Method(**(options | changes))


def problem(seed: int = 0, *, dy: int = 8) -> Problem:
    """Return a small problem whose sides are nearly the same."""
    x = reference.unit_rows(120, 8, 0)
    y = reference.unit(x + 0.03 * reference.unit_rows(120, 8, 1)).astype(np.float32)
    split = protocol_split(120, seed=seed, anchors=40, test=20)
    return make_problem(x, np.pad(y, ((0, 0), (0, dy - 8))), split)


def test_a_cell_chooses_then_fits_on_all_anchors_then_scores() -> None:
    CALLS.clear()
    made = problem()
    result = run_cell(method(), made, seed=4)
    assert result["status"] == "done"
    assert result["chosen"] == {"noise": 0.0, "steps": 7}
    assert result["tuned"] == ["noise"]
    assert result["n_heldout"] == 40
    assert CALLS[-1] == Settings(noise=0.0)
    assert len(CALLS) == 2 * 5 + 1
    assert result["metrics"]["x2y/recall@1"] == 1.0
    assert result["ranks"]["y2x"] == [1.0] * 20
    assert result["peak_memory"] > 10_000_000
    assert result["facts"]["n_anchors"] == 40
    assert set(result["seconds"]) == {"tuning", "fit", "scoring", "cpu"}
    assert result["seconds"]["cpu"] > 0
    json.dumps(result, allow_nan=False)


def test_no_test_item_reaches_choice_or_fit() -> None:
    """Other test items leave the choice and the model as they are."""
    made = problem()
    other = made._replace(test_x=made.test_x[::-1], test_y=made.test_y[::-1])
    first, second = run_cell(method(), made, seed=0), run_cell(method(), other, seed=0)
    assert first["curve"] == second["curve"]
    assert first["chosen"] == second["chosen"]
    assert first["problem"] != second["problem"]


def test_the_shorter_schedule_is_taken_and_said() -> None:
    result = run_cell(method(), problem(), seed=0, short=True)
    assert result["short"] is True
    assert result["chosen"]["steps"] == 3
    assert run_cell(method(short={}), problem(), seed=0, short=True)["short"] is False


def test_a_method_that_cannot_run_says_why() -> None:
    result = run_cell(method(), problem(dy=10), seed=0)
    assert result["status"] == "refused"
    assert (
        "planted needs as many columns in x as in y, got 8 and 10" in result["reason"]
    )
    assert "metrics" not in result


def test_a_method_that_dies_is_told_from_one_that_refuses() -> None:
    result = run_cell(method(fit=broken, grid={}), problem(), seed=0)
    assert result["status"] == "failed"
    assert result["reason"] == "FloatingPointError: it diverged"


def run(out: Path, *methods: Method, **options: Any) -> list[dict[str, Any]]:
    """Run a grid of two seeds."""
    options = {"seeds": [0, 1], "problem_of": problem, **options}
    return grid.run_grid(methods, out=out, **options)


def test_all_methods_of_a_seed_see_the_same_data(tmp_path: Path) -> None:
    results = run(tmp_path, method("one"), method("two"))
    assert [(r["method"], r["seed"]) for r in results] == [
        ("one", 0),
        ("two", 0),
        ("one", 1),
        ("two", 1),
    ]
    digests = {(r["seed"], r["problem"]) for r in results}
    assert len(digests) == 2


def test_finished_cells_are_not_run_again(tmp_path: Path) -> None:
    first = run(tmp_path, method())
    CALLS.clear()
    told = []
    second = run(tmp_path, method(), report=lambda r, known: told.append(known))
    assert CALLS == []
    assert told == [True, True]
    assert second == first
    assert list(grid.stored_results(tmp_path)) == first


def test_failed_cells_are_run_again_and_refused_ones_are_not(tmp_path: Path) -> None:
    run(tmp_path, method(fit=broken, grid={}))
    repaired = run(tmp_path, method(grid={}))
    assert [r["status"] for r in repaired] == ["done", "done"]
    CALLS.clear()
    wide = {"problem_of": lambda seed: problem(seed, dy=9), "out": tmp_path / "wide"}
    grid.run_grid([method()], seeds=[0], **wide)
    asked = len(CALLS)
    grid.run_grid([method()], seeds=[0], **wide)
    assert asked == len(CALLS) > 0


def test_results_of_other_data_are_never_mixed_in(tmp_path: Path) -> None:
    run(tmp_path, method())
    with pytest.raises(InputError, match=r"seed-0\.json is of other anchors"):
        run(tmp_path, method(), problem_of=lambda seed: problem(seed + 7))


def test_a_setting_that_came_later_is_none_in_older_results() -> None:
    older = {"gamma": 0.5, "selection": {"etas": [0.1]}}
    newer = {"gamma": 0.5, "rho": None, "selection": {"etas": (0.1,), "rhos": None}}
    assert grid._given(older) == grid._given(newer)
    assert grid._given(older) != grid._given({**newer, "rho": 0.3})


def test_results_of_other_settings_are_never_mixed_in(tmp_path: Path) -> None:
    run(tmp_path, method())
    with pytest.raises(InputError, match="is of other settings of planted"):
        run(tmp_path, method(), short=True)


def test_the_report_has_every_method_and_why_one_is_missing(tmp_path: Path) -> None:
    methods = {
        "planted": method(notes="Planted by hand."),
        "wide": method("wide", needs=Needs(pairs=False, transductive=True)),
    }
    results = run(tmp_path, *methods.values())
    results += [run_cell(method("odd"), problem(dy=9), seed=0)]
    rows = report.write_report(
        tmp_path,
        results,
        methods=methods,
        reference="planted",
        one_split=False,
        short=False,
    )
    assert [row.method for row in rows] == ["planted", "wide"]
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| Planted | 100.0 (0.0) |" in text
    assert "| Planted (0) (t) |" in text
    assert "+0.0 [+0.0, +0.0]" in text
    assert "Planted by hand." in text
    assert "- `odd` refused: planted needs as many columns" in text
    lines = (tmp_path / "results.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + len(results)
    assert "noise=0.0" in lines[1]
    svg = (tmp_path / "recall.svg").read_text(encoding="utf-8")
    assert svg.lstrip().startswith("<?xml")
    assert (tmp_path / "recall.png").read_bytes().startswith(b"\x89PNG")


def test_the_peak_is_that_of_the_block() -> None:
    with peak_memory() as large:
        held = np.ones(40_000_000)
    del held
    with peak_memory() as small:
        pass
    assert large.bytes > 320_000_000
    if not small.since_start:
        assert small.bytes < large.bytes - 200_000_000


def test_the_csv_keeps_what_a_table_needs(tmp_path: Path) -> None:
    """A table made of the CSV is the table made of the cells."""
    results = run(tmp_path, method("one"), method("two", grid={"noise": (0.5,)}))
    results += [run_cell(method("odd"), problem(dy=9), seed=0)]
    tables.write_csv(tmp_path / "cells.csv", results)
    read = tables.read_csv(tmp_path / "cells.csv")
    options = {"reference": "two", "one_split": False}
    assert summary.summarize(read, **options) == summary.summarize(results, **options)
    assert tables.missing_lines(read) == tables.missing_lines(results)
    tables.write_csv(tmp_path / "again.csv", read)
    assert tables.read_csv(tmp_path / "again.csv") == read
    assert read[0]["chosen"] == "noise=0.0"


def test_a_csv_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv cannot be read"):
        tables.read_csv(tmp_path / "none.csv")
    (tmp_path / "odd.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="is not a table of results"):
        tables.read_csv(tmp_path / "odd.csv")
