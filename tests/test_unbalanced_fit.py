"""A fit with --rho, from a pool with foreign rows to the model, and its resuming."""

import dataclasses
import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from anchordot_jax import AlignedModel, Config, alignment, coupling, row_masses
from anchordot_jax.cli.main import main
from anchordot_jax.fit_inputs import FitData
from anchordot_jax.listeners import Interrupted
from anchordot_jax.runs.run_folder import RunFolder
from planted import (
    CONFIG,
    DIM_X,
    N_ANCHORS,
    OPTIONS,
    StopAfter,
    problem,
    same_model,
    write_pairs,
)

N_FOREIGN = 7
SOFT = dataclasses.replace(CONFIG, gamma=0.5, eta=0.05, rho=0.1)


@functools.cache
def data() -> FitData:
    """Return the planted problem; the last x rows of the pool are of another source."""
    given = problem()
    known = np.concatenate([given.pairs, given.test_pairs])
    own = np.delete(given.x, known[:, 0], axis=0)
    rng = np.random.default_rng(3)
    foreign = rng.normal(size=(N_FOREIGN, DIM_X)) * np.abs(own).mean()
    return FitData(
        anchors_x=given.x[given.pairs[:, 0]],
        anchors_y=given.y[given.pairs[:, 1]],
        pool_x=np.concatenate([own, foreign]).astype(np.float32),
        pool_y=np.delete(given.y, known[:, 1], axis=0),
    )


@functools.cache
def fitted(config: Config = SOFT) -> alignment.FitResult:
    """Return the fit, made once a session."""
    with jax.numpy_rank_promotion("raise"):
        return alignment.fit_data(data(), config)


def test_a_fit_weighs_its_rows_by_the_plans_mass() -> None:
    """Foreign rows keep less than the pool's own; the model says what was left out."""
    result = fitted()
    weights, _ = row_masses.row_weights(result.coupling)
    assert weights is not None
    assert weights[-N_FOREIGN:].mean() < 0.8 * weights[:-N_FOREIGN].mean()
    info = result.model.info
    assert info["rho"] == 0.1
    assert info["mass"] == pytest.approx(
        float(np.exp(result.coupling.log_mass_x).mean())
    )
    assert 0.05 < info["mass"] < 0.9
    assert info["little_mass_x"] == pytest.approx((weights < 0.1).mean())
    assert result.selection.reason == "Nothing was left to choose."
    given = problem()
    recall = result.model.evaluate(given.x, given.y, given.test_pairs)
    assert recall["x2y/recall@5"] > 0.8


def test_the_weights_reach_the_students(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same plan without its weights makes other students."""
    with monkeypatch.context() as patch:
        patch.setattr(row_masses, "row_weights", lambda solved: (None, None))
        patch.setattr(row_masses, "mass_summary", lambda solved: {})
        unweighted = alignment.fit_data(data(), SOFT)
    assert np.array_equal(unweighted.coupling.f, fitted().coupling.f)
    assert not same_model(unweighted.model, fitted().model)


def test_no_rho_is_the_fit_without_the_option() -> None:
    """Inf and None are one fit, whose evidence has nothing of a mass."""
    hard = dataclasses.replace(SOFT, rho=None)
    assert dataclasses.replace(SOFT, rho=float("inf")) == hard
    info = fitted(hard).model.info
    assert not {"rho", "mass", "little_mass_x", "little_mass_y"} & info.keys()
    assert fitted(hard).coupling.rho is None


def test_an_interrupted_fit_with_rho_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored masses weigh the epochs that are left; the bits are equal."""
    whole = fitted()
    run = RunFolder.open(tmp_path / "run", alignment.run_identity(data(), SOFT))
    with pytest.raises(Interrupted):
        alignment.fit_data(data(), SOFT, run=run, listener=StopAfter(3))

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("the transport was to be taken from the run folder")

    monkeypatch.setattr(coupling, "solve_coupling", refuse)
    resumed = alignment.fit_data(data(), SOFT, run=run)
    assert same_model(resumed.model, whole.model)
    assert resumed.model.info == whole.model.info
    assert AlignedModel.load(run.path).info["mass"] == whole.model.info["mass"]
    stored = json.loads((run.path / "results" / "coupling.json").read_text("utf-8"))
    keys = ("rho", "mass", "little_mass_x", "little_mass_y")
    assert stored == {"schema": 1, **{key: resumed.model.info[key] for key in keys}}
    again = alignment.fit_data(data(), SOFT, run=run).coupling
    np.testing.assert_array_equal(again.log_mass_x, whole.coupling.log_mass_x)


def test_the_command_prints_rho_and_the_mass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`fit --rho`: one more line, the keys of --json, and the same model."""
    given = data()
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.concatenate([given.anchors_x, given.pool_x]))
    np.save("y.npy", np.concatenate([given.anchors_y, given.pool_y]))
    write_pairs(tmp_path / "pairs.csv", [(i, i) for i in range(N_ANCHORS)])
    command = ["fit", "--x", "x.npy", "--y", "y.npy", "--pairs", "pairs.csv"]
    command += ["--out", "run", "--quiet", *OPTIONS]
    command += ["--gamma", "0.5", "--eta", "0.05", "--rho", "0.1"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "gamma 0.5, eta 0.05, rho 0.1." in out
    mass = fitted().model.info["mass"]
    assert f"The plan's mass is {mass:.3g}; less than a tenth of the mean" in out
    assert same_model(AlignedModel.load("run"), fitted().model)
    assert main([*command, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["rho"], summary["mass"]) == (0.1, mass)
    assert "- rho: 0.1\n" in (tmp_path / "run/model/README.md").read_text("utf-8")
