"""The coupling benchmark: its grid, problems and table, one tiny run, bad input."""

import csv
from pathlib import Path
from typing import Any

import coupling
import coupling_cells
import coupling_table
import numpy as np
import problem
import pytest

from anchordot_jax import InputError
from anchordot_jax.runs import cells

SETTINGS: dict[str, Any] = {
    **{"data": "openclipart", "n": 50, "m": 40, "anchors": 20},
    **{"implementation": "ott-online", "limit": 120.0, "threads": 2},
}


def record(result: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return a finished cell's record; a failed one without a result."""
    told = {"experiment": "coupling", "settings": SETTINGS | changes}
    if result is None:
        return told | {"status": "failed", "reason": "FailedError: no such library"}
    return told | {"status": "done", "result": result}


def test_sizes_are_read() -> None:
    assert problem.parse_size("3600") == (3600, 3600)
    assert problem.parse_size("5000x35000") == (5000, 35000)
    for wrong in ("many", "10x", "x10", "1", "3x4x5", "-5"):
        with pytest.raises(InputError, match="A size is a number of rows"):
            problem.parse_size(wrong)


def test_the_grid_is_a_cross() -> None:
    sizes, anchors = ("20", "30", "30x50"), (5, 7, 9)
    chosen = coupling_cells.points(("flickr8k", "chebi20"), sizes, anchors, full=False)
    assert [(d, tuple(s), n) for d, s, n in chosen] == [
        ("flickr8k", (20, 20), 5),
        ("flickr8k", (20, 20), 7),
        ("flickr8k", (20, 20), 9),
        ("flickr8k", (30, 30), 7),
        ("chebi20", (30, 30), 7),
        ("flickr8k", (30, 50), 7),
    ]
    assert len(coupling_cells.points(("flickr8k",), sizes, anchors, full=True)) == 9


def test_a_problem_is_real_rows_then_mixed_ones() -> None:
    data, anchors = "openclipart", 100
    drawn = problem.draw(data, Path(), problem.Size(3000, 50), anchors)
    again = problem.draw(data, Path(), problem.Size(3000, 50), anchors)
    assert all(np.array_equal(a, b) for a, b in zip(drawn, again, strict=True))
    assert [len(side) for side in drawn] == [100, 100, 3000, 50]
    for side in drawn:
        np.testing.assert_allclose(np.linalg.norm(side, axis=1), 1, atol=1e-5)
    # 2,686 rows of the set are no anchors; what follows lies between two of them.
    real, mixed = drawn.pool_x[:2686], drawn.pool_x[2686:]
    assert not (real @ drawn.anchors_x.T > 1 - 1e-6).all(axis=1).any()
    nearest = (mixed @ real.T).max(axis=1)
    assert nearest.min() > 0.7
    assert (nearest < 1 - 1e-4).mean() > 0.8


@pytest.mark.realdata
def test_flickr8k_has_five_captions_an_image(real_data: Path) -> None:
    drawn = problem.draw("flickr8k", real_data, problem.Size(5000, 34930), 500)
    assert drawn.pool_y.shape == (34930, 384)
    # All of them real, and some said twice; a caption of an anchor is there only where
    # another image has the same words.
    rows = {row.tobytes() for row in drawn.pool_y}
    assert 34_000 < len(rows) < 34_930
    shared = np.mean([row.tobytes() in rows for row in drawn.anchors_y])
    assert shared < 0.03


def test_the_table_tells_everything() -> None:
    stopped = {"over_limit": 120.0, "peak_gigabytes": 1.5}
    done = {
        **{"iterations": 20, "column_error": 2e-5, "cold_seconds": 4.0, "r": 20},
        **{"warm_seconds": 1.5, "profile_seconds": 0.5, "peak_gigabytes": 0.9},
        **{"start_gigabytes": 0.4, "process_seconds": 6.0},
    }
    rows = coupling_table.rows_of(
        [
            record(done, implementation="ours-streamed"),
            record(stopped),
            record({"over_limit": 120.0, "seen_at": "openclipart 9 x 9"}, n=99),
            record(implementation="pot-log"),
            record(done | {"column_error": 0.1}, implementation="ott-dense"),
        ]
    )
    lines = [" | ".join(coupling_table._cells(row)) for row in rows]
    assert "20 | 2e-05 | 4 | 6 | 1.5 | 0.5 | 0.9 | 0.5" in lines[0]
    assert "stopped at 120 of the process | - | - | - | at least 1.5" in lines[1]
    assert "not run: passed 120 at openclipart 9 x 9" in lines[2]
    assert "not run: no such library" in lines[3]
    assert "0.1 (not reached)" in lines[4]


def test_what_passed_the_limit_is_not_tried_on_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> dict[str, float]:
        return {"over_limit": 120.0}

    options = coupling_cells.Grid(tmp_path, tmp_path, Path("python"), 120.0, 2)
    stored = problem.Stored(tmp_path, tmp_path, 0.1, 0.75, 20)
    monkeypatch.setattr(coupling_cells, "measure", stopped)
    monkeypatch.setattr(coupling_cells, "store", lambda *_, **__: stored)

    def run(settings: Any) -> Any:
        return coupling_cells.run(settings, options)

    grid = [
        cells.Cell("coupling", SETTINGS),
        cells.Cell("coupling", SETTINGS | {"n": 60}),
        cells.Cell("coupling", SETTINGS | {"n": 60, "anchors": 10}),
        cells.Cell("coupling", SETTINGS | {"n": 60, "implementation": "pot-log"}),
        cells.Cell("coupling", SETTINGS | {"n": 60, "threads": 1}),
    ]
    records = cells.run_cells(grid, run, tmp_path)
    seen = [record["result"].get("seen_at") for record in records]
    assert seen == [None, "openclipart 50 x 40", None, None, None]


def test_variants_are_run_at_the_second_size_alone() -> None:
    names = ["ott-dense", "ott-dense-momentum", "pot-log"]

    def variants(*sizes: str) -> list[Any]:
        chosen = coupling_cells.points(
            ("flickr8k", "chebi20"), sizes, (5, 7), full=False
        )
        grid = coupling_cells.grid(chosen, names, limit=1.0, threads=1)
        return [
            (own["data"], own["n"], own["implementation"])
            for own in (cell.settings for cell in grid)
            if own["implementation"] != "ott-dense"
        ]

    assert variants("20", "30", "40") == [("flickr8k", 30, n) for n in names[1:]]
    assert variants("20") == [("flickr8k", 20, n) for n in names[1:]]


def test_cells_of_another_machine_are_refused(tmp_path: Path) -> None:
    peers = {"torch": "2"}
    first = coupling.machine_of(tmp_path, 1, {})
    assert first["peers"] == {}
    # Ours alone, then with rivals, then alone again.
    assert coupling.machine_of(tmp_path, 1, peers)["peers"] == peers
    assert coupling.machine_of(tmp_path, 1, {})["peers"] == peers
    with pytest.raises(InputError, match=r"measured otherwise \(threads 1 against 2\)"):
        coupling.machine_of(tmp_path, 2, peers)
    with pytest.raises(InputError, match=r"\(torch '2' against '3'\); give another"):
        coupling.machine_of(tmp_path, 1, {"torch": "3"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"rivals": ("sinkhorn",)},
            "There is no rival 'sinkhorn'; known are ott",
        ),
        ({}, "give --peer-python peers/bin/python, or leave them out"),
        ({"peer_python": Path("no/python")}, "--peer-python no/python is no program"),
        ({"cell_limit": 0.0}, "--cell-limit must be above 0 seconds, got 0"),
        ({"rivals": ("none",), "threads": 999}, "--threads must be 1 to"),
        ({"rivals": ("none",), "data": ("flickr",)}, "There is no data set 'flickr'"),
        ({"rivals": ("none",), "sizes": ("few",)}, "A size is a number of rows"),
        ({"rivals": ("none",), "anchors": (9999,)}, "--anchors asks for 9999"),
        ({"rivals": ("none",), "data": ("mscoco",)}, "The data set mscoco"),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    message: str,
) -> None:
    folders = ("data_folder", "out", "docs")
    given: dict[str, Any] = dict.fromkeys(folders, tmp_path / "none")
    given |= {"data": ("openclipart",)} | changes
    with pytest.raises(SystemExit) as raised:
        coupling.main(coupling.Args(**given))
    assert raised.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_tiny_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = coupling.Args(
        data_folder=tmp_path,
        out=tmp_path / "run",
        docs=tmp_path / "docs",
        data=("openclipart",),
        sizes=("90x70",),
        anchors=(30,),
        rivals=("none",),
        threads=1,
    )
    coupling.main(args)
    names = [f"coupling.{suffix}" for suffix in ("csv", "md", "png", "svg")]
    first = [(tmp_path / "docs" / name).read_bytes() for name in names]
    with (tmp_path / "docs" / "coupling.csv").open(newline="") as file:
        streamed, cached = csv.DictReader(file)
    for row in (streamed, cached):
        assert float(row["column_error"]) <= 1e-4
        assert 0 < float(row["warm_seconds"]) < float(row["cold_seconds"])
        assert float(row["start_gigabytes"]) < float(row["peak_gigabytes"]) < 3
        assert row["r"] == "30"
    monkeypatch.setattr(coupling_cells, "measure", None)
    coupling.main(args)
    assert [(tmp_path / "docs" / name).read_bytes() for name in names] == first
