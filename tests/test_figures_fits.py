"""Fits that the figures share: draws, cells, models; figures 2, 3, 5, 7 and 13."""

import csv
import dataclasses
import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from anchordot_jax import Config, DistillationConfig, InputError, protocol_split
from anchordot_jax.baselines.protocol import Method
from anchordot_jax.model import AlignedModel
from anchordot_jax.runs import cells

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"
sys.path.insert(0, str(EXPERIMENTS))

import figure2_anchors_and_pool  # noqa: E402
import figure3_overlap  # noqa: E402
import figure5_teacher_student  # noqa: E402
import figure13_transfer  # noqa: E402
import fits  # noqa: E402
import fits_together  # noqa: E402

CELL = {
    "data": "openclipart",
    "method": "anchordot",
    "anchors": 40,
    "reserved": 60,
    "pool": 60,
    "overlap": 0.0,
    "schedule": "short",
    "seed": 0,
}


def tiny_method(settings: dict, *, real=fits.method_of) -> Method:
    """Return the cell's method with few epochs and dimensions."""
    method = real(settings)
    if not hasattr(method.settings, "distillation"):
        return method
    few = DistillationConfig(dim=16, epochs=3, warmup_steps=2)
    own = dataclasses.replace(method.settings, distillation=few)
    return dataclasses.replace(method, settings=own)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every fit a matter of seconds."""
    monkeypatch.setattr(fits, "method_of", tiny_method)


def test_test_items_and_pools_stay_while_n_grows() -> None:
    small, large = (fits.split_of({**CELL, "anchors": n}, 2786) for n in (40, 60))
    np.testing.assert_array_equal(small.anchors, large.anchors[:40])
    np.testing.assert_array_equal(small.test_pairs, large.test_pairs)
    np.testing.assert_array_equal(small.pool_x, large.pool_x)
    np.testing.assert_array_equal(small.pool_y, large.pool_y)
    wide = fits.split_of({**CELL, "pool": 200}, 2786)
    assert set(small.pool_x) < set(wide.pool_x)
    assert set(small.pool_y) < set(wide.pool_y)


@pytest.mark.parametrize("overlap", [0.0, 0.25, 1.0])
def test_the_overlap_is_the_share_of_hidden_pairs(overlap: float) -> None:
    without = fits.split_of(CELL, 2786)
    split = fits.split_of({**CELL, "overlap": overlap}, 2786)
    assert len(np.intersect1d(split.pool_x, split.pool_y)) == overlap * 60
    np.testing.assert_array_equal(split.pool_x, without.pool_x)
    assert len(np.unique(split.pool_y)) == 60
    known = np.concatenate([split.anchors[:, 0], split.test_pairs[:, 0]])
    assert not len(np.intersect1d(known, np.union1d(split.pool_x, split.pool_y)))


def test_all_rows_and_no_overlap_is_the_protocol_of_the_tables() -> None:
    split = fits.split_of({**CELL, "anchors": 60, "pool": None}, 2786)
    usual = protocol_split(2786, seed=0, anchors=60, test=400)
    for own, other in zip(split, usual, strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.mark.slow
def test_the_refined_recipe_keeps_its_own_students(tmp_path: Path) -> None:
    settings = {**CELL, "method": "anchordot-refined"}
    found = fits.run(settings, folder=tmp_path, out=tmp_path)
    # Chance is 2.5 %.
    assert found["mean/recall@10"] > 0.08


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"anchors": (1,)}, "--anchors must be between 2 and 1"),
        ({"anchors": (50, 80), "reserved": 60}, "between 2 and 60"),
        ({"pool": (1,)}, "--pool must be at least 2"),
        ({"overlap": (1.5,)}, "--overlap must be between 0 and 1"),
        ({"methods": ("anchor",)}, "did you mean anchordot"),
    ],
)
def test_settings_out_of_range_are_refused(change: dict, message: str) -> None:
    usual = {"data": ["openclipart"], "methods": ["asif"], "anchors": [50]}
    with pytest.raises(InputError, match=message):
        fits.fit_grid(fits.FitOptions(), **{**usual, "pool": [60], **change})


def test_a_stored_fit_is_found_and_scores_the_same(
    tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = functools.partial(fits.run, folder=tmp_path, out=tmp_path)
    first = call(CELL)
    assert (first["pool_x"], first["pool_y"]) == (60, 60)
    monkeypatch.setattr(fits, "choose_settings", None)
    assert call(CELL) == first
    # Settings of another figure's cell do not matter.
    assert call({**CELL, "matcher": "student"}) == first


def test_seeds_together_are_the_fits_one_by_one(tiny: None, tmp_path: Path) -> None:
    group = [{**CELL, "seed": seed} for seed in (0, 1)]
    fits_together.fit_together(group, tmp_path, tmp_path / "together")
    for settings in group:
        problem = fits.problem_of(settings, tmp_path)
        alone = fits.scorer_of(settings, problem, tmp_path / "alone")
        found = fits.scorer_of(settings, problem, tmp_path / "together")
        assert isinstance(found, AlignedModel)
        np.testing.assert_allclose(
            found.embed_x(problem.test_x), alone.embed_x(problem.test_x), atol=1e-5
        )
        assert found.info["gamma"] == alone.info["gamma"]
    other = fits.scorer_of(group[0], problem, tmp_path / "together")
    assert np.abs(other.embed_y(problem.test_y) - found.embed_y(problem.test_y)).max()


def test_only_the_seeds_of_students_are_grouped(tmp_path: Path) -> None:
    options = fits.FitOptions(out=tmp_path, together=True)
    made = fits_together.grouping(fits.run, options)
    own, other = CELL, {**CELL, "seed": 1}
    assert made.key(own) == made.key(other)
    assert made.key(own) != made.key({**own, "anchors": 50})
    assert made.key({**own, "method": "asif"}) != made.key({**other, "method": "asif"})
    usual = fits_together.grouping(fits.run, fits.FitOptions())
    assert usual.key(own) != usual.key(other)
    # Cells of one fit are one task, so that no two processes make it.
    assert usual.key(own) == usual.key({**own, "target": "flickr8k"})


def test_a_grid_is_the_same_together_and_alone(tiny: None, tmp_path: Path) -> None:
    rows = {}
    for together in (False, True):
        out = tmp_path / str(together)
        options = fits.FitOptions(
            data_folder=tmp_path, out=out, seeds=2, together=together
        )
        grid = fits.fit_grid(
            options,
            data=["openclipart"],
            methods=["procrustes", "anchordot"],
            anchors=[40],
            pool=[60],
        )
        run = functools.partial(fits.run, folder=tmp_path, out=out)
        made = fits_together.grouping(run, options)
        records = cells.run_cells(grid, run, out, grouping=made)
        assert [record["status"] for record in records] == ["done"] * 4
        assert [r["together"] for r in records] == [1, 1, *[1 + together] * 2]
        rows[together] = records
    for alone, joint in zip(rows[False], rows[True], strict=True):
        assert joint["result"]["mean/recall@10"] == pytest.approx(
            alone["result"]["mean/recall@10"], abs=0.005
        )


def test_the_plan_of_pools_agrees_with_that_of_the_test_items(
    tiny: None, tmp_path: Path
) -> None:
    run = functools.partial(figure5_teacher_student.run, folder=tmp_path, out=tmp_path)
    found = {m: run({**CELL, "matcher": m}) for m in figure5_teacher_student.MATCHERS}
    for values in found.values():
        assert (values["gamma"], values["eta"]) == (0.75, 0.02)
    # 40 anchors are far above chance, 2.5 %, three epochs hardly.
    assert found["plan-test"]["mean/recall@10"] > 0.08
    assert found["plan-pools"]["mean/recall@10"] > 0.08
    assert found["plan-test"] != found["plan-pools"]


def test_a_set_of_other_encoders_is_refused(
    tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fits.problem_of

    def problem_of(settings: dict, folder: Path):
        made = real({**settings, "data": "openclipart"}, folder)
        if settings["data"] == "mscoco":
            return made._replace(test_x=made.test_x[:, :384])
        return made

    monkeypatch.setattr(fits, "problem_of", problem_of)
    with pytest.raises(InputError, match="mscoco 384 and 384"):
        figure13_transfer.run(
            {**CELL, "target": "mscoco"}, folder=tmp_path, out=tmp_path
        )


def command(script: str, folder: Path, *options: str) -> list[str]:
    places = ["--data-folder", folder, "--out", folder / "cells", "--docs", folder]
    words = [sys.executable, EXPERIMENTS / script, *places, *options]
    return [str(word) for word in words]


@pytest.mark.slow
def test_a_killed_grid_goes_on_to_the_same_table(tmp_path: Path) -> None:
    options = ("--data", "openclipart", "--methods", "procrustes", "--seeds", "2")
    options += ("--fixed", "60", "--low", "40", "60", "--high", "60", "90")
    options += ("--pool", "30", "60")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    script = "figure2_anchors_and_pool.py"
    finished = killed / "cells" / "fits"
    started = subprocess.Popen(
        command(script, killed, *options), stdout=subprocess.DEVNULL
    )
    while len(list(finished.glob("*.json"))) < 3:
        assert started.poll() is None
        time.sleep(0.05)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    assert not (killed / "figure2_anchors_and_pool.csv").exists()
    for folder in (killed, whole):
        subprocess.run(
            command(script, folder, *options), check=True, stdout=subprocess.DEVNULL
        )
    for suffix in ("csv", "png", "svg"):
        name = f"figure2_anchors_and_pool.{suffix}"
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    with (whole / "figure2_anchors_and_pool.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    # Two N and two pools share one cell, and (a) has two more; 2 seeds.
    assert len(rows) == 2 * (3 + 2)


def test_panels_share_a_cell() -> None:
    points = [(40, 60, 60), (60, 60, 60), (60, 60, 30), (60, 90, 60), (90, 90, 60)]
    records = [
        {
            "status": "done",
            "settings": {"anchors": n, "reserved": kept, "pool": pool},
        }
        for n, kept, pool in points
    ]
    found = figure2_anchors_and_pool.panels_of(records)
    chosen = {
        name: [points[records.index(record)] for record in own]
        for name, own in found.items()
    }
    assert chosen == {"a": points[3:], "b": points[:2], "c": points[1:3]}


def test_the_short_schedule_gives_what_the_paper_chose() -> None:
    short = fits.method_of({**CELL, "data": "chebi20"}).settings
    assert isinstance(short, Config)
    assert (short.gamma, short.eta, short.distillation.dim) == (1.0, 0.02, 256)
    full = fits.method_of({**CELL, "schedule": "full"}).settings
    assert (full.gamma, full.distillation.dim) == ("auto", 1024)


def test_absent_data_is_one_sentence(tmp_path: Path) -> None:
    words = command("figure7_zero_pairs.py", tmp_path, "--data", "flickr30k")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("The data set flickr30k")
    assert done.stderr.count("\n") == 1


def test_bad_options_are_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = figure3_overlap.Args(out=tmp_path / "cells", overlap=(0, 2))
    with pytest.raises(SystemExit) as stopped:
        figure3_overlap.main(args)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("--overlap must be between 0 and 1")
    assert not list(tmp_path.iterdir())
