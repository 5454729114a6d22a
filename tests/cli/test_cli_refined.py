"""`anchordot fit` by its default recipe: the same files and resume as the paper's."""

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anchordot_jax import AlignedModel, AnchorDOT, Config, DistillationConfig
from anchordot_jax.cli.progress import TerminalListener
from anchordot_jax.config import RefinedConfig, SoftCcaConfig
from planted import Cli, problem, same_model, tree

EPOCHS = 3
CONFIG = Config(
    distillation=DistillationConfig(chunk_size=8),
    soft_cca=SoftCcaConfig(
        ridge=(0.5, 2.0),
        balance=1.0,
        power=(0.75, 1.0),
        sharpness=3.0,
        ridge_ratio=0.25,
        balance_ratio=(1.0, 2.0),
        final_power=1.0,
        folds=2,
        gallery=8,
    ),
    refined=RefinedConfig(epochs=EPOCHS, warmup_steps=2),
)
FIT = [
    *("fit", "--x", "x.npy", "--y", "y.npy", "--pairs", "pairs.csv"),
    *("--test-pairs", "test.csv", "--out", "run"),
    *("--distillation.chunk-size", "8", "--soft-cca.ridge", "0.5", "2"),
    *("--soft-cca.balance", "1", "--soft-cca.power", "0.75", "1"),
    *("--soft-cca.ridge-ratio", "0.25", "--soft-cca.sharpness", "3"),
    *("--soft-cca.balance-ratio", "1", "2", "--soft-cca.final-power", "1"),
    *("--soft-cca.folds", "2", "--soft-cca.gallery", "8"),
    *("--refined.epochs", str(EPOCHS), "--refined.warmup-steps", "2"),
]
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
    "start.safetensors",
]


def refuse(*arguments: Any, **options: Any) -> Any:
    """Stand for a stage that must not run."""
    raise AssertionError("this stage was to be taken from the run folder")


def test_an_interrupted_refined_fit_resumes(
    files: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after an epoch, it ends with the library's uninterrupted model."""
    training = TerminalListener.training

    def train(self: TerminalListener, at: int, *rest: Any) -> None:
        training(self, at, *rest)
        if at == 1:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(TerminalListener, "training", train)
        assert cli(*FIT).code == 1
    assert not (files / "run" / "model").exists()
    with monkeypatch.context() as patch:
        for stage in (
            "recipes.soft_selection.select",
            "recipes.two_sides.prepare",
            "recipes.soft_cca.solve",
            "coupling.solve_coupling",
        ):
            patch.setattr(f"anchordot_jax.{stage}", refuse)
        code, out, err = cli(*FIT)
    assert (code, err) == (0, "")
    assert sorted(tree(files / "run")) == RUN_FILES
    given = problem()
    whole = AnchorDOT(CONFIG).fit(
        given.x, given.y, given.pairs, test_pairs=given.test_pairs
    )
    resumed = AlignedModel.load(files / "run")
    assert same_model(resumed, whole)
    assert resumed.info["settings"] == CONFIG.to_dict()
    assert resumed.metrics == whole.evaluate_both(given.x, given.y, given.test_pairs)
    info = whole.info
    said = f"ridge {info['ridge']:g}, balance 1, power {info['power']:g}, sharpness 3, "
    assert said + "ridge ratio 0.25, balance ratio" in " ".join(out.split())
    assert "Chosen by the ranks of 14 held-out anchors." in out

    # A complete run says so, and its summary names what was chosen.
    before = tree(files)
    summary = json.loads(cli(*FIT, "--json").out)
    assert summary["already_complete"]
    assert (summary["ridge_ratio"], summary["sharpness"]) == (0.25, 3.0)
    assert "gamma" not in summary
    assert "bank/x2y/recall@1" in summary["metrics"]
    assert tree(files) == before

    # What an interruption left of the start is named, not used.
    (files / "run" / "model" / "config.json").rename(files / "gone")
    (files / "run" / "start.safetensors").write_bytes(b"no")
    code, out, err = cli(*FIT)
    assert (code, out) == (2, "")
    assert "start.safetensors does not hold a pair of students" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gamma", "0.5"], "gamma has no effect on recipe refined; leave it"),
        (["--distillation.epochs", "9"], "set refined.epochs, or take recipe paper"),
        (["--distillation.pool-memory", "99"], "takes both pools in memory, and here"),
        (["--soft-cca.ridge", "0"], "soft_cca.ridge must be a number > 0, got 0.0"),
    ],
)
def test_settings_without_effect_are_refused(
    files: Path, cli: Cli, options: list[str], message: str
) -> None:
    """One sentence, exit code 2, nothing written."""
    before = tree(files)
    code, out, err = cli(*FIT, *options)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert tree(files) == before


def test_anchors_without_variation_are_refused(files: Path, cli: Cli) -> None:
    """Equal anchors give no covariance: one sentence, and no model."""
    x = np.load(files / "x.npy")
    x[problem().pairs[:, 0]] = x[0]
    np.save(files / "x.npy", x)
    code, out, err = cli(*FIT)
    assert (code, out) == (2, "")
    assert "All rows of side x are the same after their LayerNorm" in err
    assert not (files / "run" / "model").exists()
