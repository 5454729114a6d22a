"""`anchordot compare` as a stranger types it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anchordot_jax.baselines import registry
from anchordot_jax.baselines.protocol import check_equal_dimensions
from anchordot_jax.cli.main import main
from anchordot_jax.data import redraw_split


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with two files of 60 linked rows and their pairs."""
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(60, 6))
    np.save(tmp_path / "x.npy", (latent @ rng.normal(size=(6, 10))).astype("f4"))
    np.save(tmp_path / "y.npy", (latent @ rng.normal(size=(6, 8))).astype("f4"))
    rows = "".join(f"{i},{i}\n" for i in range(60))
    (tmp_path / "pairs.csv").write_text("x,y\n" + rows)
    monkeypatch.chdir(tmp_path)
    return tmp_path


COMMAND = [
    *("compare", "--x", "x.npy", "--y", "y.npy", "--pairs", "pairs.csv"),
    *("--anchors", "24", "--test", "12", "--out", "out", "--seeds", "2"),
    *("--methods", "procrustes", "asif", "--reference", "procrustes"),
]


def test_two_methods_two_seeds(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMAND, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed["methods"]) == ["procrustes", "asif"]
    row = printed["methods"]["asif"]
    assert row["seeds"] == [0, 1]
    assert printed["methods"]["procrustes"]["difference"] is None
    assert set(row["difference"]) == {"mean", "low", "high"}
    assert printed["not_done"] == []
    cells = sorted(p.name for p in (folder / "out/results/asif").iterdir())
    assert cells == ["seed-0.json", "seed-1.json"]
    assert (folder / "out/table.md").read_text().startswith("| method |")
    before = {p: p.stat().st_mtime_ns for p in folder.glob("out/results/*/*")}
    assert main(COMMAND) == 0
    assert "there already" in capsys.readouterr().out
    assert before == {p: p.stat().st_mtime_ns for p in folder.glob("out/results/*/*")}


def test_given_test_pairs_keep_one_split(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{i},{i}\n" for i in range(60)]
    (folder / "known.csv").write_text("x,y\n" + "".join(rows[:24]))
    (folder / "test.csv").write_text("x,y\n" + "".join(rows[24:36]))
    command = [
        *("compare", "--x", "x.npy", "--y", "y.npy", "--pairs", "known.csv"),
        *("--test-pairs", "test.csv", "--out", "out", "--seeds", "2", "--json"),
        *("--methods", "procrustes", "--reference", "procrustes"),
    ]
    assert main(command) == 0
    means = json.loads(capsys.readouterr().out)["methods"]["procrustes"]
    assert means["deviations"]["x2y/recall@1"] == 0
    cells = [json.loads(p.read_text()) for p in folder.glob("out/results/*/*")]
    assert len({cell["problem"] for cell in cells}) == 1


def test_methods_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--methods", "list"]) == 0
    printed = capsys.readouterr().out
    for name in ("anchordot", "contrastive", "ridge-cca", "sotalign", "sue", "csa"):
        assert f"\n{name} " in "\n" + printed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"--methods": "anchordt"},
            "no method 'anchordt': did you mean anchordot? ",
        ),
        ({"--methods": "zzz"}, "There is no method 'zzz': Known are all, "),
        ({"--reference": "cas"}, "There is no method 'cas': did you mean "),
        ({"--seeds": "0"}, "--seeds must be at least 1, got 0"),
        ({"--anchors": None}, "Give --test-pairs CSV, or --anchors N and --test T"),
        ({"--test-pairs": "pairs.csv"}, "--anchors and --test draw from --pairs"),
        ({"--anchors": "55"}, "60 pairs cannot give 55 anchors and 12 test pairs"),
        ({"--x": "none.npy"}, "none.npy"),
        ({"--pairs": None}, "Give --x FILE, --y FILE and --pairs CSV"),
    ],
)
def test_bad_input_is_one_sentence(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, str | None],
    message: str,
) -> None:
    options = dict(zip(COMMAND[1:13:2], COMMAND[2:14:2], strict=True))
    options |= {"--methods": "procrustes", "--seeds": "1"}
    options |= change
    words = [w for k, v in options.items() if v is not None for w in (k, v)]
    assert main(["compare", *words]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert not (folder / "out").exists()


def test_a_method_that_cannot_run_does_not_stop_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(anchors: Any, *rest: Any, **options: Any) -> Any:
        check_equal_dimensions("picky", anchors)

    picky = dataclasses.replace(
        registry.METHODS["procrustes"], name="picky", fit=refuse
    )
    monkeypatch.setitem(registry.METHODS, "picky", picky)
    command = [*COMMAND[:13], "--methods", "picky", "asif", "--reference", "asif"]
    assert main([*command, "--seeds", "1"]) == 0
    printed = capsys.readouterr().out
    assert "refused: picky needs as many columns in x as in y, got 10 and 8" in printed
    assert "asif" in (folder / "out/table.md").read_text()
    assert "- `picky` refused" in (folder / "out/table.md").read_text()


def test_a_method_that_dies_is_an_exit_code(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*rest: Any, **options: Any) -> Any:
        raise FloatingPointError("it diverged")

    broken = dataclasses.replace(registry.METHODS["procrustes"], fit=die)
    monkeypatch.setitem(registry.METHODS, "procrustes", broken)
    assert main([*COMMAND, "--json"]) == 1
    missing = json.loads(capsys.readouterr().out)["not_done"]
    assert [(r["method"], r["seed"]) for r in missing] == [
        ("procrustes", 0),
        ("procrustes", 1),
    ]
    assert missing[0]["reason"] == "FloatingPointError: it diverged"


def test_kept_models_are_read_by_the_other_verbs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A linear map embeds and is scored; a rule is refused where rows are embedded."""
    command = [
        *COMMAND[:13],
        *("--seeds", "1", "--keep-models", "--reference", "procrustes"),
        *("--methods", "procrustes", "profile-csls", "--json"),
    ]
    assert main(command) == 0
    metrics = json.loads(capsys.readouterr().out)["methods"]["procrustes"]["means"]
    model = "out/models/procrustes/seed-0"
    assert main(["embed", model, "--x", "x.npy", "--out", "shared.npy"]) == 0
    assert np.load("shared.npy").shape == (60, 8)
    split = redraw_split(
        np.repeat(np.arange(60)[:, None], 2, axis=1),
        60,
        60,
        seed=0,
        anchors=24,
        test=12,
    )
    lines = "".join(f"{i},{j}\n" for i, j in split.test_pairs)
    (folder / "test.csv").write_text("x,y\n" + lines)
    capsys.readouterr()
    files = ["--x", "x.npy", "--y", "y.npy", "--pairs", "test.csv"]
    assert main(["eval", model, *files, "--json"]) == 0
    scored = json.loads(capsys.readouterr().out)
    assert 100 * scored["x2y/recall@5"] == pytest.approx(metrics["x2y/recall@5"])
    assert main(["eval", "out/models/profile-csls/seed-0", *files]) == 2
    assert "scores by the rule 'csls'" in capsys.readouterr().err
