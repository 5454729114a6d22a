"""Cut and flipped files of a run: refused in a sentence, or without any effect.

A damaged file must never change a result silently.
"""

import gc
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from anchordot_jax import AlignedModel, alignment
from anchordot_jax.cli.fit import Fit
from anchordot_jax.cli.main import _parse
from anchordot_jax.errors import InputError
from anchordot_jax.listeners import Interrupted
from anchordot_jax.runs.run_folder import RunFolder
from planted import EPOCHS, FIT, Cli, StopAfter, same_model, tree

pytestmark = pytest.mark.slow

SHARES = (0.0, 0.2, 0.5, 0.97)
"""Where in a file the damage is, as a share of its length."""


def damages(path: Path, shares: Sequence[float] = SHARES) -> Iterator[str]:
    """Yield with the file cut, and with one bit flipped, at several places."""
    whole = path.read_bytes()
    for share in shares:
        at = min(int(share * len(whole)), len(whole) - 1)
        path.write_bytes(whole[:at])
        yield f"{path.name} cut at {at}"
        for bit in (0, 6):
            flipped = bytearray(whole)
            flipped[at] ^= 1 << bit
            path.write_bytes(bytes(flipped))
            yield f"{path.name} with bit {bit} of byte {at} flipped"
    path.write_bytes(whole)


def assert_refused(code: int, err: str, case: str) -> None:
    """Assert one sentence and exit code 2."""
    assert code == 2, f"{case}: {err}"
    assert err.startswith("anchordot: error: "), case
    assert err.count("\n") == 1, case
    assert "Traceback" not in err, case


@pytest.fixture
def run(fitted_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of a finished run, beside the files that it was fitted to."""
    shutil.copytree(fitted_folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy" / "run"


def test_a_damaged_finished_run(run: Path, cli: Cli, tmp_path: Path) -> None:
    """`eval`, `embed` and the same `fit` again give the old numbers or none at all."""
    verbs = {
        "eval": ["eval", "run", "--x", "x.npy", "--y", "y.npy", "--json"],
        "embed": ["embed", "run", "--x", "x.npy", "--out", tmp_path / "e.npy"],
        "fit": [*FIT, "--json"],
    }
    expected = {name: cli(*words).out for name, words in verbs.items()}
    rows = np.load(tmp_path / "e.npy")
    refused = dict.fromkeys((path for path in run.rglob("*") if path.is_file()), 0)
    for path in refused:
        for case in damages(path):
            for name, words in verbs.items():
                (tmp_path / "e.npy").unlink(missing_ok=True)
                code, out, err = cli(*words)
                if code == 0:
                    assert out == expected[name], f"{name}, {case}"
                    if name == "embed":
                        assert np.array_equal(np.load(tmp_path / "e.npy"), rows), case
                    continue
                assert_refused(code, err, f"{name}, {case}")
                assert out == ""
                assert not (tmp_path / "e.npy").exists()
                refused[path] += 1
    for path, times in refused.items():
        harmless = path.name in ("README.md", "env.json", "metrics.jsonl")
        # Written anew by every fit, and read by none.
        harmless |= path.name == "sources.json"
        harmless |= path.parent.name == "results"
        assert (times == 0) is harmless, (path, times)


def test_a_damaged_unfinished_run(
    run: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed fit refuses what is damaged, or ends at the model of a whole one."""
    # Orbax leaves failed tasks behind, which end in threads of their own during a later
    # command. pytest's hook would take that for a fault of the command, and parses code
    # to print it, at which Python 3.11 before 3.11.8 fails in the thread beside it.
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    model = AlignedModel.load(run)
    shutil.rmtree(run / "model")
    stop_after(run, EPOCHS - 1)
    shutil.copytree(run, tmp_path / "kept")
    newest = run / "checkpoints" / str(EPOCHS - 1)
    stored = [path for path in newest.rglob("*") if path.is_file()]
    assert len(stored) > 5
    names = ("config.json", "selection.json", "coupling.safetensors", "metrics.jsonl")
    refused = 0
    for path in [*stored, *(run / name for name in names)]:
        # Each is a fit of its own; a checkpoint is of many small files.
        for case in damages(path, (0.5,) if path in stored else (0.0, 0.5, 0.97)):
            code, _, err = cli(*FIT, "--quiet")
            gc.collect()
            if code == 0:
                assert same_model(AlignedModel.load(run), model), case
                shutil.rmtree(run)
                shutil.copytree(tmp_path / "kept", run)
            else:
                assert_refused(code, err, case)
                assert not (run / "model").exists()
                refused += 1
    assert refused > 0


def stop_after(run: Path, epoch: int) -> None:
    """Train a run without a model up to an epoch, and leave its state stored."""
    command = _parse(FIT)
    assert isinstance(command, Fit)
    data, split = command._load(None)
    folder = command._open_run(data, split)
    assert isinstance(folder, RunFolder)
    with pytest.raises(Interrupted):
        alignment.fit_data(data, command.config, run=folder, listener=StopAfter(epoch))
    assert not (run / "model").exists()


def test_a_flipped_weight_is_named(run: Path) -> None:
    """The sentence names the file and the reason."""
    path = run / "model" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(InputError, match=r"model\.safetensors is damaged: its numbers"):
        AlignedModel.load(run)


def test_damage_leaves_the_run_as_it_is(run: Path, cli: Cli) -> None:
    """A refused command changes no file."""
    assert cli(*FIT).code == 0  # It notes where the run's files are now.
    path = run / "coupling.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    before = tree(run)
    assert cli(*FIT).code == 2
    assert tree(run) == before


def test_a_changed_choice_is_refused(run: Path, cli: Cli) -> None:
    """Gamma written over by hand is not taken for what was chosen."""
    path = run / "selection.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**values, "gamma": 0.9}), encoding="utf-8")
    code, _, err = cli(*FIT)
    assert code == 2
    assert "selection.json was damaged or changed after it was written" in err
