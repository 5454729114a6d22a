"""The scripts of the paper's tables: printed figures, a run, bad input."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from anchordot_jax.baselines.registry import METHODS
from anchordot_jax.comparison import summary
from anchordot_jax.data.datasets import DATASETS

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"


def run(script: str, *options: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a script of the experiments."""
    words = [sys.executable, str(EXPERIMENTS / script), *map(str, options)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_printed_figures_are_of_known_methods_data_and_metrics() -> None:
    with (EXPERIMENTS / "printed.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    retrieval = [row for row in rows if row["table"] in ("1", "2")]
    assert len(retrieval) == 3 * 6 * 6
    assert {row["metric"] for row in retrieval} == set(summary.RECALLS)
    assert {row["dataset"] for row in retrieval} <= set(DATASETS)
    assert {row["method"] for row in rows} <= set(METHODS)
    for row in rows:
        float(row["mean"])


@pytest.mark.slow
@pytest.mark.realdata
def test_a_table_is_measured_beside_the_printed_one(
    tmp_path: Path, real_data: Path
) -> None:
    options = ("--data-folder", real_data, "--out", tmp_path, "--seeds", "2")
    done = run("table2_molecule_text.py", *options, "--methods", "csa", "ridge-cca")
    assert done.returncode == 0, done.stderr
    measured, printed = done.stdout.split("Printed in the paper (Table 2)")
    (ridge,) = [line for line in measured.splitlines() if line.startswith("| Ridge")]
    assert float(ridge.split("|")[2].split("(")[0]) > 15
    assert "| 63.70 (1.81) |" in printed
    assert "not comparable figure by figure" in printed


def test_absent_data_is_one_sentence(tmp_path: Path) -> None:
    done = run("table1_image_text.py", "--data", "mscoco", "--data-folder", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("The data set mscoco")
    assert "anchordot extract dataset_coco.json" in done.stderr
    assert done.stderr.count("\n") == 1
