"""`anchordot match` as a stranger types it."""

import csv
import json
from pathlib import Path

import pytest

from planted import Cli, tree


def rows(path: Path) -> list[dict[str, str]]:
    """Return the lines of a match list."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_list_is_of_pool_rows_most_confident_first(
    fitted_files: Path, cli: Cli, tmp_path: Path
) -> None:
    outcome = cli("match", "run", "--all", "--out", tmp_path / "all.csv")
    assert outcome.code == 0, outcome.err
    assert "Not calibrated" in outcome.out
    listed = rows(tmp_path / "all.csv")
    split = json.loads(Path("run/splits.json").read_text())
    assert sorted(int(row["x"]) for row in listed) == split["pool_x"]
    assert {int(row["y"]) for row in listed} <= set(split["pool_y"])
    mutual = [row for row in listed if row["mutual"] == "1"]
    assert mutual
    assert listed[: len(mutual)] == mutual
    confidences = [float(row["confidence"]) for row in mutual]
    assert confidences == sorted(confidences, reverse=True)
    assert {row["expected_precision"] for row in listed} == {""}

    printed = cli("match", "run", "--top", "3", "--uncalibrated").out
    assert list(csv.DictReader(printed.splitlines())) == mutual[:3]


def test_json_says_how_many(fitted_files: Path, cli: Cli, tmp_path: Path) -> None:
    outcome = cli("match", "run", "--out", tmp_path / "m.csv", "--json")
    assert outcome.code == 0, outcome.err
    said = json.loads(outcome.out)
    assert said["pairs"] == said["mutual"] == len(rows(tmp_path / "m.csv"))
    assert said["calibrated_on"] == 0
    assert said["expected_precision"] == {}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["nowhere"], "The run nowhere does not exist"),
        (["run", "--top", "0"], "--top must be at least 1, got 0"),
        (["run", "--least-precision", "2"], "--least-precision must be in [0, 1)"),
        (["run", "--least-precision", "0.5"], "--least-precision needs a calibration"),
        (["run", "--json"], "--json needs --out"),
        (["run", "--x", "y.npy"], "y.npy"),
    ],
)
def test_bad_input_is_one_sentence(
    fitted_files: Path, cli: Cli, more: list[str], message: str
) -> None:
    before = tree(fitted_files)
    outcome = cli("match", *more)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert outcome.out == ""
    assert tree(fitted_files) == before
