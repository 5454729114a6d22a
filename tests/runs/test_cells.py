"""A grid of cells: resumed, grouped, in other processes, killed."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from anchordot_jax.errors import InputError
from anchordot_jax.runs import cells
from anchordot_jax.runs.cells import Grouping, Progress

GRID = cells.grid("squares", n=[2, 1], scale=[10.0, 0.5], kind=["plain"])


def square(settings: Mapping[str, Any]) -> dict[str, float]:
    """Return scale n^2."""
    return {"square": settings["scale"] * settings["n"] ** 2}


def values(records: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the results in order."""
    return [record["result"]["square"] for record in records]


def test_the_grid_is_every_combination_the_last_axis_fastest() -> None:
    assert [tuple(cell.settings.values()) for cell in GRID] == [
        (2, 10.0, "plain"),
        (2, 0.5, "plain"),
        (1, 10.0, "plain"),
        (1, 0.5, "plain"),
    ]


def test_each_cell_has_a_path_of_its_own(tmp_path: Path) -> None:
    many = cells.grid("e", n=[1, 2], text=["a/b", "a b", "a" * 200])
    paths = {cells.cell_path(tmp_path, cell) for cell in many}
    assert len(paths) == 6
    assert {path.parent for path in paths} == {tmp_path / "e"}


def test_finished_cells_are_not_run_again(tmp_path: Path) -> None:
    seen: list[Progress] = []
    first = cells.run_cells(GRID[:3], square, tmp_path, report=seen.append)
    assert values(first) == [40.0, 2.0, 10.0]
    assert [(p.done, p.failed, p.total) for p in seen] == [
        (1, 0, 3),
        (2, 0, 3),
        (3, 0, 3),
    ]
    asked = []

    def ask(settings: Mapping[str, Any]) -> dict[str, float]:
        asked.append(settings)
        return square(settings)

    everything = cells.run_cells(GRID, ask, tmp_path)
    assert asked == [GRID[3].settings]
    assert values(everything) == [40.0, 2.0, 10.0, 0.5]
    assert everything[0] == first[0]


def test_a_stopped_grid_ends_with_the_rows_of_an_unstopped_one(tmp_path: Path) -> None:
    """The process kills itself, without a word, in its third cell."""
    code = """if True:
        import os, signal, sys
        from pathlib import Path
        from anchordot_jax.runs import cells
        def run(settings):
            if settings["n"] == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return {"square": settings["scale"] * settings["n"] ** 2}
        grid = cells.grid("squares", n=[2, 1], scale=[10.0, 0.5], kind=["plain"])
        cells.run_cells(grid, run, Path(sys.argv[1]))
    """
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path / "killed")])
    assert killed.returncode == -signal.SIGKILL
    assert len(cells.stored_records(tmp_path / "killed")) == 2
    cells.run_cells(GRID, square, tmp_path / "killed")
    cells.run_cells(GRID[::-1], square, tmp_path / "whole")
    rows = [
        cells.tidy_rows(cells.stored_records(tmp_path / name))
        for name in ("killed", "whole")
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 4
    assert rows[0][0].keys() == {"experiment", "n", "scale", "kind", "square"}


def test_a_refusal_stays_and_a_failure_is_tried_again(tmp_path: Path) -> None:
    def refuse(settings: Mapping[str, Any]) -> dict[str, float]:
        raise InputError("Too few rows.") if settings["n"] == 1 else KeyError("lost")

    records = cells.run_cells(GRID, refuse, tmp_path)
    assert [record["status"] for record in records] == ["failed"] * 2 + ["refused"] * 2
    assert records[0]["reason"] == "KeyError: 'lost'"
    again = cells.run_cells(GRID, square, tmp_path)
    assert [record["status"] for record in again] == ["done"] * 2 + ["refused"] * 2
    assert len(cells.tidy_rows(again)) == 2


def test_a_result_that_json_cannot_hold_is_a_failure_of_its_cell(
    tmp_path: Path,
) -> None:
    """The other cells have their results all the same."""

    def odd(settings: Mapping[str, Any]) -> dict[str, float]:
        return {"square": float("nan")} if settings["n"] == 2 else square(settings)

    records = cells.run_cells(GRID, odd, tmp_path)
    assert [record["status"] for record in records] == ["failed"] * 2 + ["done"] * 2
    assert records[0]["reason"].startswith("ValueError: Out of range float values")


def test_cells_of_one_key_run_together_and_keep_their_order(tmp_path: Path) -> None:
    asked = []

    def run_many(many: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
        asked.append([settings["n"] for settings in many])
        return [square(settings) for settings in many]

    own = cells.grid("squares", scale=[1.0, 2.0], n=[1, 2, 3])
    together = Grouping(run_many, key=lambda settings: settings["n"] % 2, most=3)
    records = cells.run_cells(own, square, tmp_path, grouping=together)
    assert values(records) == [1.0, 4.0, 9.0, 2.0, 8.0, 18.0]
    assert asked == [[1, 3, 1], [3], [2, 2]]
    assert [record["together"] for record in records] == [3, 2, 3, 3, 2, 1]


def test_other_processes_give_the_same_records(tmp_path: Path) -> None:
    """The function is the built-in `dict`: any process can import it."""
    with cells.local_workers(2) as workers:
        records = cells.run_cells(GRID[:3], dict, tmp_path, workers=workers)
    assert [record["result"] for record in records] == [c.settings for c in GRID[:3]]


def test_submitit_jobs_give_the_same_records(tmp_path: Path) -> None:
    workers = cells.slurm_workers(tmp_path / "jobs", cluster="local", timeout_min=2)
    records = cells.run_cells(GRID[:1], dict, tmp_path / "out", workers=workers)
    assert [record["result"] for record in records] == [GRID[0].settings]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Jobs cannot be submitted to slurm"),
        ({"cluster": "local", "timeout": 3}, "Jobs cannot be submitted to local"),
    ],
)
def test_no_cluster_and_unknown_options_are_one_sentence(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        cells.slurm_workers(tmp_path, **options)


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    cells.run_cells(GRID[:1], square, tmp_path)
    path = cells.cell_path(tmp_path, GRID[0])
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record)[:-9])
    with pytest.raises(InputError, match=r"n=2.*could not be read as JSON"):
        cells.run_cells(GRID[:1], square, tmp_path)
    path.write_text(json.dumps(record | {"status": "great"}))
    with pytest.raises(InputError, match="not a cell's result; delete it"):
        cells.run_cells(GRID[:1], square, tmp_path)
