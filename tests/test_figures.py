"""The scripts of the paper's figures: what they write, resumed too; bad input."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"


def run(script: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a script on the bundled data, its cells and results in a folder."""
    places = ["--data-folder", folder, "--out", folder / "cells", "--docs", folder]
    words = [sys.executable, str(EXPERIMENTS / script), *map(str, places), *options]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_the_coupling_has_the_fewest_hubs(tmp_path: Path) -> None:
    options = ("--data", "openclipart", "--anchors", "300", "--seeds", "2")
    done = run("figure4_hubness.py", tmp_path, *options)
    assert done.returncode == 0, done.stderr
    rows = read(tmp_path / "figure4_hubness.csv")
    assert len(rows) == 10
    skewness = {
        rule: np.mean([float(r["x2y/hubness_skewness@10"]) for r in own])
        for rule in ("nearest", "sinkhorn")
        if (own := [r for r in rows if r["rule"] == rule])
    }
    assert skewness["sinkhorn"] < skewness["nearest"] - 0.5
    told = json.loads((tmp_path / "figure4_hubness.json").read_text())
    assert told["cells"] == 10
    assert told["versions"]["jax"]
    files = ("figure4_hubness.csv", "figure4_hubness.svg", "figure4_hubness.png")
    before = [(tmp_path / name).read_bytes() for name in files]
    # A lost cell is run again and gives the same; the others are not.
    (tmp_path / "cells" / "figure4_hubness").glob("*.json").__next__().unlink()
    again = run("figure4_hubness.py", tmp_path, *options)
    assert again.returncode == 0, again.stderr
    assert [(tmp_path / name).read_bytes() for name in files] == before


@pytest.mark.parametrize(
    ("script", "options", "message"),
    [
        ("figure6_participation_ratio.py", ("--seeds", "0"), "must be at least 1"),
        ("figure6_participation_ratio.py", ("--data", "flickr"), "did you mean flickr"),
        ("figure17_selection.py", ("--data", "mscoco"), "The data set mscoco"),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path, script: str, options: tuple[str, ...], message: str
) -> None:
    done = run(script, tmp_path, *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "docs").exists()
