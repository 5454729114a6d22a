"""A stage is gone through once a run folder."""

from pathlib import Path

import numpy as np
import pytest

from anchordot_jax.runs import stage
from anchordot_jax.runs.run_folder import RunFolder

IDENTITY = {"config": {}, "data": {}}


def start_of(run: RunFolder | None, made: list[float], value: float) -> float:
    """Return the first weight of the stored start; `made` counts what is made."""

    def make() -> dict:
        made.append(value)
        norm = {"scale": np.full(2, value, np.float32), "bias": np.zeros(2, np.float32)}
        linear = {"kernel": np.eye(2, dtype=np.float32), "bias": norm["bias"]}
        side = {"norm": norm, "linear": linear}
        return {"x": side, "y": side, "log_scale": np.float32(0)}

    found = stage.once(
        run,
        make,
        load=RunFolder.load_start,
        save=RunFolder.save_start,
        name="the start",
    )
    return float(found["x"]["norm"]["scale"][0])


def test_a_stage_in_the_folder_is_not_gone_through_again(tmp_path: Path) -> None:
    made: list[float] = []
    run = RunFolder.open(tmp_path / "run", IDENTITY)
    assert start_of(run, made, 2.0) == 2.0
    again = RunFolder.open(tmp_path / "run", IDENTITY)
    assert start_of(again, made, 3.0) == 2.0
    assert made == [2.0]


def test_without_a_folder_it_is_gone_through_each_time() -> None:
    made: list[float] = []
    assert [start_of(None, made, value) for value in (2.0, 3.0)] == [2.0, 3.0]


def test_a_stage_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    run = RunFolder.open(tmp_path / "run", IDENTITY)
    before = sorted(entry.name for entry in run.path.iterdir())

    def fail() -> dict:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        stage.once(
            run,
            fail,
            load=RunFolder.load_start,
            save=RunFolder.save_start,
            name="the start",
        )
    assert sorted(entry.name for entry in run.path.iterdir()) == before
