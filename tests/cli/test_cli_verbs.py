"""The other verbs: help, eval, embed, search, inspect and demo."""

import csv
import dataclasses
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp  # type: ignore[import-untyped]

from anchordot_jax import open_embeddings
from anchordot_jax.evaluation import chance_recall
from anchordot_jax.selection import Selection
from anchordot_jax.settings.refined import CHOSEN
from planted import Cli, environment, fitted, problem, python, tree

GIVEN = problem()
RECALLS = [f"{way}/recall@{k}" for way in ("x2y", "y2x") for k in (1, 5, 10)]
XY = ("--x", "x.npy", "--y", "y.npy")


def one_object(out: str) -> dict[str, Any]:
    """Return the JSON object of an output that holds nothing else."""
    assert out.count("\n") == 1
    values = json.loads(out)
    assert isinstance(values, dict)
    return values


def test_help_is_quick_and_imports_no_numerics() -> None:
    """`python -m anchordot_jax --help` works, and loads neither JAX nor OTT."""
    done = python("-X", "importtime", "-m", "anchordot_jax", "--help")
    assert done.returncode == 0
    for verb in ("demo", "inspect", "fit", "embed", "eval", "search", "extract"):
        assert f"• {verb} " in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "anchordot_jax.cli.fit" in imported
    packages = {name.partition(".")[0] for name in imported}
    assert not packages & {"jax", "ott", "flax", "optax", "orbax", "h5py", "numpy"}


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("fit", ["--pairs", "--test-pairs", "--gamma FLOAT|{auto}", "(default: auto)"]),
        ("eval", ["Run folder or model folder", "--bank-x", "--json"]),
        ("embed", ["Run folder or model folder", "--dtype {float32,float16}"]),
        ("search", ["Run folder or model folder", "--gallery", "--side {x,y}"]),
        ("inspect", ["--x STR", "--pairs"]),
        ("demo", ["--anchors INT", "--test INT"]),
        ("extract", ["--x {None}|STR", "--strict", "Print the presets and stop"]),
    ],
)
def test_every_verb_explains_its_options(cli: Cli, verb: str, words: list[str]) -> None:
    """Each option stands in the help of its verb."""
    code, out, err = cli(verb, "--help")
    assert (code, err) == (0, "")
    for word in words:
        assert word in out


def test_eval_scores_the_runs_test_pairs(fitted_files: Path, cli: Cli) -> None:
    """Without --pairs the run's own test pairs are scored."""
    code, out, err = cli("eval", "run", *XY, "--json")
    assert (code, err) == (0, "")
    metrics = one_object(out)
    assert metrics == fitted().evaluate_both(GIVEN.x, GIVEN.y, GIVEN.test_pairs)
    plain = fitted().evaluate(GIVEN.x, GIVEN.y, GIVEN.test_pairs)
    assert plain == {k: v for k, v in metrics.items() if not k.startswith("bank/")}
    assert {*RECALLS, "x2y/mean_rank", "y2x/mrr"} <= metrics.keys()
    assert all(0 <= metrics[name] <= 1 for name in RECALLS)


def test_eval_prints_a_table(fitted_files: Path, cli: Cli) -> None:
    """Both directions, and hubs corrected beside them; recalls in percent."""
    code, out, err = cli("eval", "run", *XY)
    assert (code, err) == (0, "")
    assert out.startswith("10 pairs (the run's test pairs)")
    metrics = fitted().evaluate_both(GIVEN.x, GIVEN.y, GIVEN.test_pairs)
    ways = ("x2y", "y2x", "bank/x2y", "bank/y2x")
    shown = [f"{100 * metrics[f'{way}/recall@5']:.2f} %" for way in ways]
    cells = [
        cell.strip()
        for line in out.splitlines()
        if "recall@5" in line
        for cell in line.split("│")
    ]
    assert cells == ["", "recall@5", *shown, ""]


def test_eval_of_pairs_by_id_and_with_banks(fitted_files: Path, cli: Cli) -> None:
    """A pairs file of ids and banks gives the library's numbers."""
    arguments = ["--x", "named.h5::x/image", "--y", "named.h5::y/text"]
    banks = ["--bank-x", "x.npy", "--bank-y", "y.npy"]
    arguments += ["--pairs", "pairs.csv", "--pair-keys", "rows", *banks, "--json"]
    code, out, err = cli("eval", Path("run") / "model", *arguments)
    assert (code, err) == (0, "")
    banks = {"bank_x": GIVEN.x, "bank_y": GIVEN.y}
    expected = fitted().evaluate_both(GIVEN.x, GIVEN.y, GIVEN.pairs, **banks)
    assert one_object(out) == expected
    corrected = fitted().evaluate(GIVEN.x, GIVEN.y, GIVEN.pairs, **banks)
    for name in RECALLS:
        assert expected[f"bank/{name}"] == corrected[name]


def test_eval_row_by_row(fitted_files: Path, cli: Cli, tmp_path: Path) -> None:
    """Of a model without splits, row i of x belongs to row i of y."""
    np.save(tmp_path / "x.npy", GIVEN.x[GIVEN.pairs[:, 0]])
    np.save(tmp_path / "y.npy", GIVEN.y[GIVEN.pairs[:, 1]])
    files = ["--x", tmp_path / "x.npy", "--y", tmp_path / "y.npy"]
    code, out, _ = cli("eval", "run/model", *files, "--json")
    assert code == 0
    assert one_object(out) == fitted().evaluate_both(GIVEN.x, GIVEN.y, GIVEN.pairs)
    assert "14 pairs (row by row)" in cli("eval", "run/model", *files).out


@pytest.mark.parametrize("suffix", [".npy", ".h5", ".safetensors"])
@pytest.mark.parametrize("side", ["x", "y"])
def test_embed_writes_what_the_library_gives(
    fitted_files: Path, cli: Cli, tmp_path: Path, side: str, suffix: str
) -> None:
    """The file holds the embeddings of one side, whatever the batches."""
    out_file = tmp_path / "new" / f"e{suffix}"
    code, out, err = cli(
        *("embed", "run", f"--{side}", f"{side}.npy", "--out", out_file),
        *("--batch-size", "16"),
    )
    assert (code, err) == (0, "")
    rows = getattr(GIVEN, side)
    assert out == f"{out_file}: {len(rows)} x 8 float32, side {side}\n"
    expected = getattr(fitted(), f"embed_{side}")(rows)
    np.testing.assert_allclose(open_embeddings(out_file).read(), expected, atol=1e-6)


def test_embed_carries_ids_and_halves_precision(
    fitted_files: Path, cli: Cli, tmp_path: Path
) -> None:
    """Ids go along to .h5, numbers are rounded to float16, and --json says so."""
    out_file = tmp_path / "e.h5"
    code, out, _ = cli(
        *("embed", "run", "--x", "named.h5::x/image", "--out", out_file),
        *("--dtype", "float16", "--json"),
    )
    assert code == 0
    assert one_object(out) == {"out": str(out_file), "shape": [40, 8], "side": "x"}
    source = open_embeddings(out_file)
    assert source.dtype == "float16"
    assert source.ids is not None
    assert source.ids.tolist() == [f"picture {i}" for i in range(40)]
    expected = fitted().embed_x(GIVEN.x)
    np.testing.assert_array_equal(source.read(), expected.astype(np.float16))


def best(scores: np.ndarray, k: int) -> np.ndarray:
    """Return the k highest columns of each row, best first."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def cosines(side: str) -> np.ndarray:
    """Return every query's cosine with every gallery item, float64."""
    x = fitted().embed_x(GIVEN.x).astype(np.float64)
    y = fitted().embed_y(GIVEN.y).astype(np.float64)
    return x @ y.T if side == "x" else y @ x.T


@pytest.mark.parametrize("side", ["x", "y"])
def test_search_finds_the_highest_cosines(
    fitted_files: Path, cli: Cli, side: str
) -> None:
    """Every query's matches and scores are those of a sorted score matrix."""
    queries, gallery = ("x.npy", "y.npy") if side == "x" else ("y.npy", "x.npy")
    code, out, err = cli(
        *("search", "run", "--queries", queries, "--gallery", gallery),
        *("--side", side, "--k", "5", "--json"),
    )
    assert (code, err) == (0, "")
    found = one_object(out)
    assert (found["k"], found["bank"]) == (5, None)
    scores = cosines(side)
    order = best(scores, 5)
    assert [result["query"] for result in found["results"]] == list(range(len(scores)))
    assert [result["matches"] for result in found["results"]] == order.tolist()
    np.testing.assert_allclose(
        [result["scores"] for result in found["results"]],
        np.take_along_axis(scores, order, axis=1),
        atol=1e-5,
    )


@pytest.mark.parametrize("side", ["x", "y"])
def test_search_with_a_bank_is_the_inverted_softmax(
    fitted_files: Path, cli: Cli, side: str, tmp_path: Path
) -> None:
    """Scores are b cos - log sum exp(b cos) over the bank, of the queries' side."""
    np.save(tmp_path / "bank.npy", getattr(GIVEN, side)[20:])
    queries, gallery = ("x.npy", "y.npy") if side == "x" else ("y.npy", "x.npy")
    code, out, err = cli(
        *("search", "run", "--queries", queries, "--gallery", gallery, "--side", side),
        *("--k", "4", "--bank", tmp_path / "bank.npy", "--json"),
    )
    assert (code, err) == (0, "")
    kept = fitted().bank
    assert kept is not None
    logits = kept.beta * cosines(side)
    scores = logits - logsumexp(logits[20:], axis=0)[None, :]
    order = best(scores, 4)
    found = one_object(out)
    assert [result["matches"] for result in found["results"]] == order.tolist()
    np.testing.assert_allclose(
        [result["scores"] for result in found["results"]],
        np.take_along_axis(scores, order, axis=1),
        atol=1e-4,
    )
    np.testing.assert_allclose(
        [result["cosines"] for result in found["results"]],
        np.take_along_axis(cosines(side), order, axis=1),
        atol=1e-5,
    )
    assert not np.array_equal(order, best(logits, 4))


def test_search_with_the_models_own_bank(fitted_files: Path, cli: Cli) -> None:
    """`--bank model` takes the part of the pool kept with the model."""
    arguments = ["search", "run", "--queries", "x.npy", "--gallery", "y.npy"]
    code, out, err = cli(*arguments, "--k", "4", "--bank", "model")
    assert (code, err) == (0, "")
    lines = list(csv.DictReader(io.StringIO(out)))
    kept = fitted().bank
    assert kept is not None
    bank = kept.x.astype(np.float64) @ fitted().embed_y(GIVEN.y).T
    logits = kept.beta * cosines("x")
    scores = logits - logsumexp(kept.beta * bank, axis=0)[None, :]
    order = best(scores, 4)
    assert [int(line["match"]) for line in lines] == order.ravel().tolist()
    for line, i, j in zip(
        lines, np.repeat(np.arange(40), 4), order.ravel(), strict=True
    ):
        assert float(line["score"]) == pytest.approx(scores[i, j], abs=1e-4)
        assert float(line["cosine"]) == pytest.approx(cosines("x")[i, j], abs=1e-5)


def test_a_model_without_a_bank_says_so(cli: Cli, tmp_path: Path) -> None:
    """`--bank model` of a model that keeps none is refused."""
    dataclasses.replace(fitted(), bank=None).save(tmp_path / "m")
    np.save(tmp_path / "x.npy", GIVEN.x)
    files = ["--queries", tmp_path / "x.npy", "--gallery", tmp_path / "x.npy"]
    code, out, err = cli("search", tmp_path / "m", *files, "--bank", "model")
    assert (code, out) == (2, "")
    assert err.endswith(
        "keeps no query bank; give --bank a file of unpaired x items.\n"
    )


def test_search_names_ids_and_writes_csv(
    fitted_files: Path, cli: Cli, tmp_path: Path
) -> None:
    """The CSV has one line a match, with the ids of both files, on stdout or in it."""
    arguments = ["search", "run", "--queries", "named.h5::x/image", "--k", "3"]
    arguments += ["--gallery", "named.h5::y/text"]
    code, out, err = cli(*arguments)
    assert (code, err) == (0, "")
    lines = list(csv.reader(io.StringIO(out)))
    assert lines[0] == ["query", "rank", "match", "score"]
    assert len(lines) == 1 + 40 * 3
    scores = cosines("x")
    order = best(scores, 3)
    for (query, rank, match, score), i, j in zip(
        lines[1:], np.repeat(np.arange(40), 3), order.ravel(), strict=True
    ):
        assert (query, match) == (f"picture {i}", str(1000 + j))
        assert order[i, int(rank) - 1] == j
        assert float(score) == pytest.approx(scores[i, j], abs=1e-5)

    out_file = tmp_path / "new" / "matches.csv"
    code, said, err = cli(*arguments, "--out", out_file)
    assert (code, said, err) == (0, f"Matches: {out_file}\n", "")
    assert out_file.read_text(encoding="utf-8") == out


def test_search_gives_no_more_than_there_is(fitted_files: Path, cli: Cli) -> None:
    """A k above the gallery's size gives the whole gallery, each item once."""
    arguments = ["--queries", "x.npy", "--gallery", "y.npy", "--k", "99", "--json"]
    found = one_object(cli("search", "run", *arguments).out)
    for result in found["results"]:
        assert sorted(result["matches"]) == list(range(46))


def test_inspect_finds_nothing_wrong(files: Path, cli: Cli) -> None:
    """Sizes of the files, the pairs and the pools; exit code 0."""
    pairs = ["--pairs", "pairs.csv", "--test-pairs", "test.csv"]
    code, out, err = cli("inspect", *XY, *pairs, "--json")
    assert (code, err) == (0, "")
    found = one_object(out)
    assert [found["x"][name] for name in ("n", "d", "dtype")] == [40, 12, "float32"]
    assert found["y"]["has_ids"] is False
    norms = np.linalg.norm(GIVEN.y.astype(np.float64), axis=1)
    assert found["y"]["norm_max"] == pytest.approx(norms.max())
    # 14 anchors span all dimensions of either side.
    assert found["pairs"] == {
        "anchors": 14,
        "test_pairs": 10,
        "pool_x": 16,
        "pool_y": 22,
        "anchor_rank_x": 12,
        "anchor_rank_y": 9,
        "coordinates": 9,
        "cost_bytes_if_stored": 4 * 16 * 22,
    }
    assert found["problems"] == []
    flat = GIVEN.y.copy()
    flat[:, 4:] = 0
    np.save(files / "y.npy", flat)
    code, out, _ = cli("inspect", *XY, *pairs)
    assert code == 0
    assert "The anchors span 12 and 4 dimensions" in out
    assert out.endswith("No problem found.\n")


def test_inspect_names_what_a_fit_would_refuse(files: Path, cli: Cli) -> None:
    """NaN and zero rows are counted and named; exit code 2, also with --json."""
    spoilt = GIVEN.x.copy()
    spoilt[[30, 33]] = np.nan
    spoilt[38] = 0
    np.save(files / "x.npy", spoilt)
    code, out, err = cli("inspect", "--x", "x.npy")
    assert (code, err) == (2, "")
    assert "problem: 2 rows of x hold NaN or infinity (first: 30, 33); remove or" in out
    assert "problem: 1 rows of x hold only zeros (first: 38); remove or repair" in out
    code, out, _ = cli("inspect", "--x", "x.npy", "--json")
    assert code == 2
    found = one_object(out)
    assert found["x"]["n_nonfinite"] == 2
    assert found["x"]["first_zero"] == [38]
    assert len(found["problems"]) == 2


def test_inspect_without_a_finite_row_is_still_json(files: Path, cli: Cli) -> None:
    """Norms that do not exist are null."""
    np.save(files / "x.npy", np.full((3, 4), np.nan, np.float32))
    code, out, _ = cli("inspect", "--x", "x.npy", "--json")
    assert code == 2
    assert one_object(out)["x"]["norm_mean"] is None


def test_a_reader_that_leaves_is_no_fault(files: Path) -> None:
    """When the pipe is closed, as by `head`, no traceback follows."""
    process = subprocess.Popen(
        [sys.executable, "-m", "anchordot_jax", "inspect", "--x", "x.npy", "--json"],
        cwd=files,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=60), err) == (1, "")


@pytest.mark.slow
def test_demo_beats_training_on_the_pairs_alone(cli: Cli) -> None:
    """The demo gives chance, its rivals, and AnchorDOT, whose recalls are higher."""
    code, out, err = cli("demo", "--json")
    assert (code, err) == (0, "")
    found = one_object(out)
    methods = found["methods"]
    chance = methods["chance"]
    assert chance == {name: pytest.approx(int(name[11:]) / 400) for name in RECALLS}
    mean = {
        name: np.mean([values[recall] for recall in RECALLS])
        for name, values in methods.items()
    }
    rivals = [mean[f"contrastive, {steps} steps"] for steps in (200, 400)]
    assert min(rivals) > 5 * mean["chance"]
    assert mean["AnchorDOT"] > max(rivals)
    assert mean["AnchorDOT, hubs corrected"] > max(rivals)
    assert set(CHOSEN) < set(found)
    stages = ["selection", "coupling", "distillation", "contrastive fits"]
    assert list(found["seconds"]) == stages
    assert all(seconds > 0 for seconds in found["seconds"].values())


def test_demo_prints_tables(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compared, on how much, the recalls in percent and the seconds."""
    from anchordot_jax import alignment
    from anchordot_jax.baselines.trained import contrastive

    class Scored:
        """A model of known recalls, higher with its bank."""

        def __init__(self, recall: float) -> None:
            self.recall = recall

        def evaluate(self, x: Any, y: Any, pairs: Any) -> dict[str, float]:
            assert (len(x), len(pairs)) == (2786, 50)
            return dict.fromkeys(RECALLS, self.recall)

        def evaluate_both(self, x: Any, y: Any, pairs: Any) -> dict[str, float]:
            corrected = {f"bank/{name}": self.recall + 0.25 for name in RECALLS}
            return self.evaluate(x, y, pairs) | corrected

    def fit(data: Any, config: Any, **rest: Any) -> alignment.FitResult:
        assert (len(data.anchors_x), config.seed) == (40, 3)
        assert config.recipe == "paper"
        choice = Selection(0.75, 0.02, (), 30, "Chosen so.")
        seconds = {"selection": 1.0, "coupling": 2.0, "distillation": 3.0}
        model: Any = Scored(0.5)
        return alignment.FitResult(model, choice, None, seconds)  # type: ignore[arg-type]

    monkeypatch.setattr(alignment, "fit_data", fit)

    def fit_rival(x: Any, y: Any, config: Any, *, steps: int) -> Scored:
        assert (len(x), len(y), config.seed) == (40, 40, 3)
        return Scored(steps / 1000)

    monkeypatch.setattr(contrastive, "fit_contrastive", fit_rival)
    code, out, err = cli(
        "demo", "--anchors", "40", "--test", "50", "--seed", "3", "--recipe", "paper"
    )
    assert (code, err) == (0, "")
    assert out.startswith("Open Clip Art: 40 pairs of a picture (x) and its title (y)")
    rows = {
        cells[1].strip(): [cell.strip() for cell in cells[2:-1]]
        for line in out.splitlines()
        if len(cells := line.split("│")) > 3
    }
    chance = [f"{100 * chance_recall(50, 1, k):.1f}" for k in (1, 5, 10)]
    assert rows == {
        "chance": 2 * chance,
        "contrastive, 200 steps": 6 * ["20.0"],
        "contrastive, 400 steps": 6 * ["40.0"],
        "AnchorDOT": 6 * ["50.0"],
        "AnchorDOT, hubs corrected": 6 * ["75.0"],
    }
    assert "gamma 0.75, eta 0.02. Chosen so.\n" in out
    assert "Seconds: selection 1.0, coupling 2.0, distillation 3.0, contrast" in out


def test_verbs_leave_the_run_as_it_is(
    fitted_files: Path, cli: Cli, tmp_path: Path
) -> None:
    """Nothing but a fit writes into a run folder."""
    before = tree(fitted_files)
    cli("eval", "run", *XY)
    cli("embed", "run", "--x", "x.npy", "--out", tmp_path / "e.npy")
    cli("search", "run", "--queries", "x.npy", "--gallery", "y.npy")
    cli("inspect", *XY, "--pairs", "pairs.csv")
    assert tree(fitted_files) == before
    assert (tmp_path / "e.npy").is_file()
