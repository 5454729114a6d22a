"""`anchordot fit --log`: what TensorBoard and Weights & Biases keep of a fit."""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planted import EPOCHS, FIT, Cli, python


def events(folder: Path) -> Iterator[Any]:
    """Yield the events of a folder's files, by TensorFlow's record format."""
    from tensorboardX.proto.event_pb2 import Event

    for path in sorted(folder.iterdir()):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            yield Event.FromString(data[at + 12 : at + 12 + length])
            at += 16 + length


def curves(folder: Path) -> dict[str, dict[int, float]]:
    """Return each curve's values by step."""
    found: dict[str, dict[int, float]] = {}
    for event in events(folder):
        for value in event.summary.value:
            if value.HasField("simple_value"):
                found.setdefault(value.tag, {})[event.step] = value.simple_value
    return found


def lines(run: Path) -> list[dict[str, Any]]:
    """Return the records of metrics.jsonl."""
    text = (run / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_tensorboard_has_the_figures_of_the_json_lines(cli: Cli, files: Path) -> None:
    """Every epoch's, the transport's errors, and the test pairs' results."""
    pytest.importorskip("tensorboardX")
    assert cli(*FIT, "--log", "tensorboard").code == 0
    run = files / "run"
    written = curves(run / "tensorboard" / "distillation")
    records = lines(run)
    assert len(records) == EPOCHS
    for name in ("pool_loss", "anchor_loss", "chance_loss"):
        expected = {record["epoch"]: record[name] for record in records}
        assert written[f"distillation/{name}"] == pytest.approx(expected, rel=1e-6)
    errors = curves(run / "tensorboard" / "coupling")["coupling/marginal_error"]
    assert min(errors.values()) <= 1e-4
    results = json.loads((run / "results" / "test.json").read_text(encoding="utf-8"))
    tests = curves(run / "tensorboard" / "test")
    for name, value in results["metrics"].items():
        # TensorBoard allows no @ in a name.
        tested = tests[f"test/{name.replace('@', '_')}"]
        assert tested == {0: pytest.approx(value, rel=1e-6)}
    # A resumed fit tells TensorBoard from which step on to forget what was there.
    found = events(run / "tensorboard" / "distillation")
    assert [event.step for event in found if event.session_log.status == 1] == [1]


def test_wandb_offline_keeps_the_figures(files: Path) -> None:
    """Without a network or a login; the folder is what `wandb sync` uploads."""
    pytest.importorskip("wandb")
    command = "import os, sys; os.environ['WANDB_MODE'] = 'offline'; "
    command += "from anchordot_jax.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = python("-c", command, *FIT, "--log", "wandb", "--json")
    assert done.returncode == 0, done.stderr
    run = files / "run"
    metrics = json.loads(done.stdout)["metrics"]
    stored = json.loads((run / "wandb" / "run.json").read_text(encoding="utf-8"))["id"]
    (kept,) = (run / "wandb").glob(f"offline-run-*-{stored}/run-{stored}.wandb")
    data = kept.read_bytes()
    for record in lines(run):
        assert repr(record["pool_loss"]).encode() in data
    assert b"test/x2y/recall@1" in data
    assert repr(metrics["x2y/mrr"]).encode() in data


def test_a_fit_with_an_unknown_tracker_leaves_nothing(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence, before any file is read."""
    files = ("--x", "x.npy", "--y", "y.npy", "--pairs", "p.csv")
    done = cli("fit", *files, "--out", tmp_path / "run", "--log", "mlflow")
    assert done.code == 2
    assert "--log knows tensorboard and wandb, got 'mlflow'" in done.err
    for name, module in (("tensorboard", "tensorboardX"), ("wandb", "wandb")):
        monkeypatch.setitem(sys.modules, module, None)
        done = cli("fit", *files, "--out", tmp_path / "run", "--log", name)
        assert done.code == 2
        assert f"pip install 'anchordot-jax[{name}]'" in done.err
    assert list(tmp_path.iterdir()) == []
