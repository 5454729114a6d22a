"""`anchordot fit`: what it writes, what it says, and how it resumes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anchordot_jax import AlignedModel, alignment
from anchordot_jax.cli.fit import Fit
from anchordot_jax.cli.main import _parse
from anchordot_jax.cli.progress import TerminalListener
from anchordot_jax.data import split_by_exclusion
from planted import (
    CONFIG,
    EPOCHS,
    FIT,
    Cli,
    environment,
    fitted,
    leaves,
    problem,
    same_model,
    tree,
    write_pairs,
)

RUN_FILES = [
    "config.json",
    "coupling.safetensors",
    "env.json",
    "metrics.jsonl",
    "model",
    "model/README.md",
    "model/bank.safetensors",
    "model/config.json",
    "model/metrics.json",
    "model/model.safetensors",
    "results",
    "results/seconds.json",
    "results/test.json",
    "selection.json",
    "sources.json",
    "splits.json",
]


def refuse(*arguments: Any, **options: Any) -> Any:
    """Stand for a stage that must not run."""
    raise AssertionError("this stage was to be taken from the run folder")


def read(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file."""
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values


def words(text: str) -> str:
    """Return a text without its line breaks, which depend on the terminal."""
    return " ".join(text.split())


def test_a_fit_fills_its_run_folder(fitted_folder: Path) -> None:
    """Every stage, the model and the results are there, and no checkpoint."""
    run = fitted_folder / "run"
    assert sorted(tree(run)) == RUN_FILES
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == list(range(1, EPOCHS + 1))
    assert read(run / "splits.json")["anchors"] == problem().pairs.tolist()
    assert read(run / "selection.json")["n_heldout"] == 10
    assert read(run / "results" / "seconds.json")["seconds"].keys() == {
        "selection",
        "coupling",
        "distillation",
    }


def test_the_command_and_the_library_make_the_same_model(fitted_folder: Path) -> None:
    """Files and arrays of the same numbers lead to the same bits."""
    assert same_model(AlignedModel.load(fitted_folder / "run"), fitted())


def test_pools_may_stay_in_their_files(files: Path, cli: Cli) -> None:
    """With no memory granted to them, the same model to float32 rounding."""
    assert cli(*FIT, "--distillation.pool-memory", "0").code == 0
    ours, theirs = leaves(AlignedModel.load(files / "run")), leaves(fitted())
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-4, atol=2e-5)


def test_test_pairs_are_scored_and_kept(fitted_folder: Path) -> None:
    """The results, the model's metrics and the card hold the same numbers."""
    given = problem()
    expected = fitted().evaluate_both(given.x, given.y, given.test_pairs)
    run = fitted_folder / "run"
    assert read(run / "results" / "test.json")["metrics"] == expected
    assert AlignedModel.load(run).metrics == expected
    card = (run / "model" / "README.md").read_text(encoding="utf-8")
    assert f"| x2y/recall@1 | {expected['x2y/recall@1']:.4g} |" in card


def test_the_same_command_again_changes_nothing(
    fitted_files: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A complete run is said to be so, and no stage runs."""
    for stage in (
        "selection.select",
        "coupling.solve_coupling",
        "distillation.train_epoch",
    ):
        monkeypatch.setattr(f"anchordot_jax.{stage}", refuse)
    before = tree(fitted_files)
    code, out, err = cli(*FIT)
    assert code == 0
    assert err == ""
    assert out.startswith("run is complete; nothing was left to do.\n")
    assert "14 pairs, pools of 16 and 22; gamma " in out
    assert out.endswith(f"Model: {Path('run') / 'model'}\n")
    assert tree(fitted_files) == before


def test_a_complete_run_takes_another_limit(fitted_files: Path, cli: Cli) -> None:
    """Where the pools lie is no other run."""
    before = tree(fitted_files)
    code, out, _ = cli(*FIT, "--distillation.pool-memory", "0")
    assert code == 0
    assert out.startswith("run is complete; nothing was left to do.\n")
    assert tree(fitted_files) == before


def test_an_archive_is_read_where_no_limit_was_set(
    files: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little is granted by default; that the other side streams is said."""
    theirs = leaves(fitted())
    monkeypatch.setattr("anchordot_jax.stages.pool_memory._host_memory", lambda: 40)
    np.savez(files / "y.npz", embeddings=problem().y)
    code, _, err = cli(*FIT, "--y", "y.npz")
    assert code == 0
    # The terminal wraps the line.
    words = " ".join(err.split())
    assert "chunk by chunk; --distillation.pool-memory sets the limit" in words
    ours = leaves(AlignedModel.load(files / "run"))
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-4, atol=2e-5)


def test_json_is_one_object_and_nothing_else(fitted_files: Path, cli: Cli) -> None:
    """With --json standard output is the summary alone."""
    code, out, err = cli(*FIT, "--json")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    summary = json.loads(out)
    stored = read(fitted_files / "run" / "results" / "test.json")["metrics"]
    assert summary.pop("metrics") == stored
    assert summary == {
        "run": "run",
        "model": str(Path("run") / "model"),
        "already_complete": True,
        "gamma": fitted().info["gamma"],
        "eta": fitted().info["eta"],
        "converged": True,
        "seconds": {},
    }


def test_a_first_fit_says_what_it_did(files: Path, cli: Cli) -> None:
    """Sizes, choices, seconds and the metrics of the test pairs are printed."""
    code, out, err = cli(*FIT)
    assert (code, err) == (0, "")
    info = fitted().info
    first = f"14 pairs, pools of 16 and 22; gamma {info['gamma']:g}, eta {info['eta']}."
    lines = out.splitlines()
    assert lines[0] == first
    assert lines[1].startswith("Chosen by the ranks of 10 held-out anchors. ")
    assert lines[1].endswith(f" {info['sinkhorn_iterations']} Sinkhorn iterations.")
    assert lines[2].startswith("Seconds: selection ")
    metrics = read(files / "run" / "results" / "test.json")["metrics"]
    shown = [100 * metrics[f"{w}/recall@1"] for w in ("x2y", "y2x", "bank/x2y")]
    row = next(line for line in out.splitlines() if "recall@1 " in line)
    assert [cell.strip() for cell in row.split("│")][2:5] == [
        f"{value:.2f} %" for value in shown
    ]
    assert out.endswith(f"Model: {Path('run') / 'model'}\n")


def test_a_fit_without_test_pairs_scores_nothing(
    files: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test pairs are optional: their rows join the pools, and no table is shown."""
    sizes: list[tuple[int, int]] = []

    def catch(data: Any, config: Any, **rest: Any) -> alignment.FitResult:
        sizes.append((len(data.pool_x), len(data.pool_y)))
        return alignment.FitResult(fitted(), None, None, {})  # type: ignore[arg-type]

    monkeypatch.setattr(alignment, "fit_data", catch)
    arguments = [a for a in FIT if a not in ("--test-pairs", "test.csv")]
    code, out, err = cli(*arguments)
    assert (code, err) == (0, "")
    assert sizes == [(26, 32)]
    assert "Test pairs" not in out
    assert not (files / "run" / "results").exists()


def test_ids_name_the_same_rows(files: Path, cli: Cli) -> None:
    """Pairs of ids, as text and as numbers, make the model of the row numbers."""
    for name in ("pairs", "test"):
        rows = getattr(problem(), "pairs" if name == "pairs" else "test_pairs")
        named = [(f"picture {i}", 1000 + j) for i, j in rows]
        write_pairs(files / f"{name}.csv", named)
    arguments = [
        {"x.npy": "named.h5::x/image", "y.npy": "named.h5::y/text"}.get(a, a)
        for a in FIT
    ]
    code, _, err = cli(*arguments)
    assert (code, err) == (0, "")
    assert same_model(AlignedModel.load(files / "run"), fitted())


def test_pools_and_weights_of_their_own(files: Path, cli: Cli) -> None:
    """Separate pool files with equal weights make the model of the rows in no pair."""
    split = split_by_exclusion(problem().pairs, problem().test_pairs, 40, 46)
    for side, rows in (("x", split.pool_x), ("y", split.pool_y)):
        np.save(files / f"pool_{side}.npy", getattr(problem(), side)[rows])
    np.save(files / "wx.npy", np.full(16, 2.5))
    np.save(files / "wy.npy", np.where(np.isin(np.arange(46), split.pool_y), 1, 7))
    pools = ["--pool-x", "pool_x.npy", "--weights-x", "wx.npy"]
    code, _, err = cli(*FIT, *pools, "--weights-y", "wy.npy")
    assert (code, err) == (0, "")
    model = AlignedModel.load(files / "run")
    assert same_model(model, fitted())
    assert (model.info["n_pool_x"], model.info["n_pool_y"]) == (16, 22)


def interrupt(cli: Cli, monkeypatch: pytest.MonkeyPatch, epoch: int) -> None:
    """Run a fit that is asked to stop after some epoch."""
    training = TerminalListener.training

    def train(self: TerminalListener, at: int, *rest: Any) -> None:
        training(self, at, *rest)
        if at == epoch:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(TerminalListener, "training", train)
        code, out, err = cli(*FIT)
    assert (code, out) == (1, "")
    assert err.startswith("anchordot: stopping where it can be resumed; once more to")
    message = f"warning: Stopped after epoch {epoch} of {EPOCHS}. The same command "
    assert words(err).endswith(f"{message}resumes there.")


def test_an_interrupted_fit_resumes(
    files: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C stores the state; the same command ends with the uninterrupted model."""
    interrupt(cli, monkeypatch, 2)
    assert not (files / "run" / "model").exists()
    code, out, err = cli("eval", "run", "--x", "x.npy", "--y", "y.npy")
    assert (code, out) == (2, "")
    assert err.startswith("anchordot: error: run is a run that has no model yet; ")
    monkeypatch.setattr("anchordot_jax.selection.select", refuse)
    monkeypatch.setattr("anchordot_jax.coupling.solve_coupling", refuse)
    code, out, _ = cli(*FIT)
    assert code == 0
    assert "complete" not in out
    assert sorted(tree(files / "run")) == RUN_FILES
    assert same_model(AlignedModel.load(files / "run"), fitted())
    lines = (files / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == list(range(1, EPOCHS + 1))


def test_a_run_of_other_settings_is_refused_or_overwritten(
    fitted_folder: Path, files: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another seed is refused by name; --overwrite replaces the run, not our notes."""
    shutil.copytree(fitted_folder / "run", files / "run")
    (files / "run" / "notes.txt").write_text("mine", encoding="utf-8")
    before = tree(files)
    code, out, err = cli(*FIT, "--seed", "3")
    assert (code, out) == (2, "")
    message = "anchordot: error: run holds a run with another config.seed: 0 there, 3 "
    assert err.startswith(message)
    assert "--overwrite" in err
    assert tree(files) == before

    code, out, _ = cli(*FIT, "--seed", "3", "--overwrite", "--json")
    assert code == 0
    assert not json.loads(out)["already_complete"]
    assert sorted(tree(files / "run")) == sorted([*RUN_FILES, "notes.txt"])
    assert read(files / "run" / "config.json")["config"]["seed"] == 3
    assert not same_model(AlignedModel.load(files / "run"), fitted())


def test_other_test_pairs_are_another_run(
    fitted_files: Path, cli: Cli, tmp_path: Path
) -> None:
    """A run's test pairs cannot be exchanged behind its results."""
    before = tree(fitted_files)
    fewer = write_pairs(tmp_path / "fewer.csv", problem().test_pairs[:-1])
    code, _, err = cli(*[{"test.csv": str(fewer)}.get(a, a) for a in FIT])
    assert code == 2
    assert "run holds a run with another data." in err
    assert tree(fitted_files) == before


def test_a_failed_fit_says_so_without_a_traceback(
    files: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected error is exit code 1 and one line; a variable shows where."""

    def fail(*arguments: Any, **options: Any) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr(alignment, "fit_data", fail)
    code, out, err = cli(*FIT)
    assert (code, out) == (1, "")
    assert err.startswith("anchordot: failed: MemoryError: no room (set ANCHORDOT_TRAC")
    assert err.count("\n") == 1
    monkeypatch.setenv("ANCHORDOT_TRACEBACK", "1")
    with pytest.raises(MemoryError, match="no room"):
        cli(*FIT)


def test_a_second_signal_stops_at_once() -> None:
    """The first signal asks, the second interrupts, and both are given back."""
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    with TerminalListener() as listener:
        assert not listener.should_stop()
        signal.raise_signal(signal.SIGTERM)
        assert listener.should_stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_stop_at_once_is_exit_code_1(
    files: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command says that it was stopped, without a traceback."""

    def stop(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(alignment, "fit_data", stop)
    assert cli(*FIT) == (1, "", "anchordot: stopped.\n")


METRICS = {"pool_loss": 1.5, "anchor_loss": 0.25, "chance_loss": 2.08, "logit_scale": 9}


def show(*, quiet: bool) -> None:
    """Report a few steps of every stage to a listener."""
    with TerminalListener(quiet=quiet) as listener:
        listener.selecting(3, 40)
        listener.coupling(20, 3e-3)
        listener.training(1, 9, 60, METRICS)
        listener.training(2, 9, 60, METRICS)
        listener.warn("Look out.")


def test_bars_are_shown_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Candidates, marginal error and losses beside chance go to stderr."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    show(quiet=False)
    out, err = capsys.readouterr()
    assert out == ""
    for text in (
        "3/40 candidates",
        "iteration 20, marginal error 3.0e-03",
        "loss 1.500 (chance 2.08), anchors 0.250",
        " items/s",
        "warning: Look out.",
    ):
        assert text in err


@pytest.mark.parametrize("quiet", [False, True])
def test_no_bars_where_nobody_looks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, quiet: bool
) -> None:
    """In a pipe, and on request, only warnings are shown."""
    if quiet:
        monkeypatch.setenv("FORCE_COLOR", "1")
    else:
        monkeypatch.delenv("FORCE_COLOR", raising=False)
    show(quiet=quiet)
    out, err = capsys.readouterr()
    assert out == ""
    assert "warning: Look out." in err
    assert "candidates" not in err
    assert "loss" not in err


LONG = [*FIT, "--distillation.epochs", "2000", "--gamma", "0.5", "--eta", "0.05"]


def start(folder: Path) -> subprocess.Popen[str]:
    """Start a fit of many epochs in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "anchordot_jax", *LONG],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_epochs(folder: Path, process: subprocess.Popen[str]) -> None:
    """Return once a fit has trained for a few epochs."""
    metrics = folder / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while not metrics.is_file() or metrics.stat().st_size < 1000:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"no epochs were seen: {process.communicate()}")
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to catch")
def test_a_terminated_fit_resumes(files: Path) -> None:
    """SIGTERM gives exit code 1 and a checkpoint; the same command goes on there."""
    process = start(files)
    wait_for_epochs(files, process)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert "Traceback" not in err
    assert words(err).endswith("of 2000. The same command resumes there.")
    metrics = files / "run" / "metrics.jsonl"
    before = metrics.read_text(encoding="utf-8").splitlines()
    assert 1 <= len(before) < 2000
    assert not (files / "run" / "model").exists()

    process = start(files)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    after = metrics.read_text(encoding="utf-8").splitlines()
    assert after[: len(before)] == before
    assert [json.loads(line)["epoch"] for line in after] == list(range(1, 2001))
    assert (files / "run" / "model" / "config.json").is_file()


def test_the_options_here_are_those_of_the_library() -> None:
    """The command lines above ask for the settings of `planted.CONFIG`."""
    command = _parse(FIT)
    assert isinstance(command, Fit)
    assert command.config == CONFIG
