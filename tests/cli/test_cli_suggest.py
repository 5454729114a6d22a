"""`anchordot suggest` as a stranger types it."""

import csv
import json
from pathlib import Path

import pytest

from planted import N_X, Cli, tree


def suggest(cli: Cli, *more: object):
    return cli("suggest", "--x", "x.npy", "--out", "next.csv", *more)


def listed(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_items_of_one_side_stand_for_all(files: Path, cli: Cli) -> None:
    outcome = suggest(cli, "--count", "5")
    assert outcome.code == 0, outcome.err
    assert "for a random choice" in outcome.out
    rows = listed(files / "next.csv")
    assert [row["side"] for row in rows] == ["x"] * 5
    assert len({row["item"] for row in rows}) == 5
    assert sum(int(row["stands_for"]) for row in rows) == N_X


def test_half_of_each_side_by_id_and_nothing_paired(files: Path, cli: Cli) -> None:
    outcome = cli(
        *("suggest", "--x", "named.h5::x/image", "--y", "named.h5::y/text"),
        *("--pairs", "pairs.csv", "--pair-keys", "rows", "--count", "7"),
        *("--rule", "k-centre", "--out", "next.csv", "--json"),
    )
    assert outcome.code == 0, outcome.err
    said = json.loads(outcome.out)
    assert said["items"] == 7
    assert said["mean_cosine"].keys() == {"x", "y"}
    rows = listed(files / "next.csv")
    assert [row["side"] for row in rows] == ["x"] * 4 + ["y"] * 3
    known = [line.split(",") for line in Path("pairs.csv").read_text().split()[1:]]
    paired = {f"picture {x}" for x, _ in known} | {str(1000 + int(y)) for _, y in known}
    assert not paired & {row["item"] for row in rows}


def test_the_same_command_is_the_same_list(files: Path, cli: Cli) -> None:
    suggest(cli, "--count", "4")
    first = (files / "next.csv").read_bytes()
    suggest(cli, "--count", "4")
    assert (files / "next.csv").read_bytes() == first


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--count", "0"], "--count must be at least 1"),
        (["--count", "41"], "at most the 40 items"),
        (["--pairs", "pairs.csv"], "--pairs needs --y"),
        (["--y", "none.npy"], "none.npy does not exist"),
        (["--y", "y.npy", "--count", "1"], "--count must be at least 2"),
    ],
)
def test_bad_input_is_one_sentence(
    files: Path, cli: Cli, more: list[str], message: str
) -> None:
    before = tree(files)
    outcome = suggest(cli, *more)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert tree(files) == before
