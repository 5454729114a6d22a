"""`anchordot diagnose` as a stranger types it."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from planted import Cli


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with two paired files of 24 rows, and the like."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(24, 5)).astype(np.float32)
    y = (x + 0.2 * rng.normal(size=x.shape)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "short.npy", y[:20])
    np.save(tmp_path / "wide.npy", np.pad(y, ((0, 0), (0, 2)), mode="reflect"))
    np.save(tmp_path / "one.npy", y[:1])
    np.save(tmp_path / "same.npy", np.ones_like(y))
    with h5py.File(tmp_path / "named.h5", "w") as file:
        file["embeddings"] = y
        file["ids"] = [f"text {i}" for i in range(24)]
    rows = "".join(f"{i},text {i}\n" for i in range(24))
    (tmp_path / "pairs.csv").write_text("x,y\n" + rows)
    (tmp_path / "few.csv").write_text("x,y\n0,0\n1,1\n2,2\n3,3\n4,4\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def diagnose(cli: Cli, *more: object, x: str = "x.npy", y: str = "y.npy"):
    return cli("diagnose", "--x", x, "--y", y, "--out", "out", *more)


def test_pairs_by_id_table_json_and_files(folder: Path, cli: Cli) -> None:
    outcome = diagnose(cli, "--pairs", "pairs.csv", y="named.h5")
    assert outcome.code == 0, outcome.err
    for text in ("coupling complexity", "pair residual", "Converged in", "text "):
        assert text in outcome.out
    stored = json.loads((folder / "out/diagnosis.json").read_text())
    assert stored["pairs"]["pairs"] == 24
    assert "text " in (folder / "out/pairs.csv").read_text()
    again = diagnose(cli, "--pairs", "pairs.csv", "--json", y="named.h5")
    printed = json.loads(again.out)
    assert printed["terms"] == stored["terms"]
    assert printed["space"] == "the files as they are"


def test_unpaired_files_have_the_terms_alone(folder: Path, cli: Cli) -> None:
    outcome = diagnose(cli, "--json", "--epsilon", "0.1", "--rho", "inf")
    assert outcome.code == 0, outcome.err
    printed = json.loads(outcome.out)
    assert "pairs" not in printed
    assert printed["objective"]["rho_x"] == "inf"
    assert printed["objective"]["epsilon"] == 0.1
    assert printed["terms"]["mass"] == pytest.approx(1, abs=1e-5)
    assert not (folder / "out/residuals.svg").exists()


def test_profiles_stand_in_for_unequal_dimensions(folder: Path, cli: Cli) -> None:
    outcome = diagnose(
        cli, "--pairs", "rows", "--anchors", "few.csv", "--json", y="wide.npy"
    )
    assert outcome.code == 0, outcome.err
    printed = json.loads(outcome.out)
    assert printed["dimensions"] == 5
    assert printed["space"] == "profiles of 5 anchors, gamma 0.75"
    assert printed["pairs"]["pair_residual"] < 0


def test_a_models_embeddings(fitted_files: Path, cli: Cli, tmp_path: Path) -> None:
    outcome = cli(
        *("diagnose", "--x", "x.npy", "--y", "y.npy", "--model", "run"),
        *("--pairs", "test.csv", "--out", tmp_path / "out", "--json"),
    )
    assert outcome.code == 0, outcome.err
    printed = json.loads(outcome.out)
    assert printed["space"] == "embeddings of run"
    scored = json.loads(
        cli("eval", "run", "--x", "x.npy", "--y", "y.npy", "--json").out
    )
    for name in ("x2y/recall@1", "y2x/recall@5"):
        assert printed["pairs"][name] == pytest.approx(scored[name])


def test_no_convergence_is_said_with_the_error(folder: Path, cli: Cli) -> None:
    outcome = diagnose(cli, "--max-iterations", "10", "--epsilon", "0.02", "--rho", "3")
    assert outcome.code == 0
    assert "Warning: not converged. After 10 iterations" in outcome.out


@pytest.mark.parametrize(
    ("more", "files", "message"),
    [
        (["--pairs", "rows"], {"y": "short.npy"}, "x.npy has 24 and short.npy has 20"),
        (["--pairs", "none.csv"], {}, "none.csv does not exist"),
        ([], {"y": "wide.npy"}, "x.npy has 5 dimensions and wide.npy has 7"),
        (["--epsilon", "0"], {}, "epsilon must be a number > 0, got 0.0"),
        (["--rho", "-0.5"], {}, "rho must be a number > 0, got -0.5"),
        ([], {"y": "one.npy"}, "one.npy has 1 row"),
        ([], {"x": "same.npy"}, "same.npy has the same direction in all of its 24"),
        (
            ["--model", "m", "--anchors", "few.csv"],
            {},
            "--model or --anchors, not both",
        ),
        (["--anchors", "few.csv", "--gamma", "3"], {}, "gamma must be a number in"),
        (["--model", "nowhere"], {}, "nowhere"),
        ([], {"x": "zzz.npy"}, "zzz.npy does not exist"),
    ],
)
def test_bad_input_is_one_sentence(
    folder: Path, cli: Cli, more: list[str], files: dict[str, str], message: str
) -> None:
    outcome = diagnose(cli, *more, **files)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.startswith("anchordot: error: ")
    assert outcome.err.count("\n") == 1
    assert outcome.out == ""
    assert not (folder / "out").exists()


def test_out_that_is_a_file_is_refused_first(folder: Path, cli: Cli) -> None:
    (folder / "out").write_text("mine")
    outcome = diagnose(cli)
    assert outcome.code == 2
    assert "out cannot be an output folder" in outcome.err
    assert (folder / "out").read_text() == "mine"
