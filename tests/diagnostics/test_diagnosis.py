"""The whole report: what it measures, what it leaves in a folder, what it refuses."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from anchordot_jax.diagnostics import diagnosis, report
from anchordot_jax.diagnostics.settings import UnbalancedConfig
from anchordot_jax.errors import InputError
from reference import unit

RNG = np.random.default_rng(0)
N = 24
X = RNG.normal(size=(N, 5)).astype(np.float32)
Y = (X + 0.2 * RNG.normal(size=X.shape) + 0.3).astype(np.float32)
EVERY = np.repeat(np.arange(N)[:, None], 2, axis=1)


@pytest.fixture(scope="module")
def found() -> diagnosis.Diagnosis:
    return diagnosis.diagnose(X, Y, EVERY)


def test_figures_are_those_of_the_parts(found: diagnosis.Diagnosis) -> None:
    x, y = unit(X), unit(Y)
    values = diagnosis.summary(found)
    cost = 1 - x @ y.T
    assert values["pairs"]["pair_cost"] == pytest.approx(np.diag(cost).mean(), abs=1e-6)
    residual = values["pairs"]["pair_cost"] - values["terms"]["unit_transport"]
    assert values["pairs"]["pair_residual"] == pytest.approx(residual)
    assert residual < 0
    hits = (cost.argmin(axis=1) == np.arange(N)).mean()
    assert values["pairs"]["x2y/recall@1"] == pytest.approx(hits)
    gap = np.linalg.norm(x.mean(axis=0) - y.mean(axis=0))
    assert values["mean_gap"] == pytest.approx(gap, abs=1e-6)
    assert values["mean_gap"] <= values["mean_gap_bound"]
    terms = values["terms"]
    parts = ("transport", "complexity", "variation_x", "variation_y")
    assert terms["total"] == pytest.approx(sum(terms[name] for name in parts))
    assert values["objective"]["converged"] is True
    json.dumps(values, allow_nan=False)


def test_only_paired_rows_are_compared_and_partners_may_be_several() -> None:
    """Row 3 of x has two partners; a repeated item is one query of two answers."""
    rows = np.array([[3, 3], [3, 4], [8, 8], [9, 9], [1, 1]])
    values = diagnosis.summary(diagnosis.diagnose(X, Y, rows))
    assert values["rows_x"] == values["pairs"]["pairs"] == 5
    scores = unit(X)[[3, 8, 9, 1]] @ unit(Y)[[3, 4, 8, 9, 1]].T
    best = scores.argmax(axis=1)
    expected = np.mean([best[0] in (0, 1), best[1] == 2, best[2] == 3, best[3] == 4])
    assert values["pairs"]["x2y/recall@1"] == pytest.approx(expected)


def test_without_pairs_there_are_no_pair_metrics() -> None:
    unpaired = diagnosis.diagnose(X, Y[:7])
    values = diagnosis.summary(unpaired)
    assert "pairs" not in values
    assert values["rows_y"] == 7
    assert report.worst_pairs(unpaired, None, None) == []


def test_few_rows_have_no_probe() -> None:
    assert diagnosis.diagnose(X[:4], Y).modality_auc is None


def test_report_lists_the_worst_pairs_by_id(
    found: diagnosis.Diagnosis, tmp_path: Path
) -> None:
    ids = np.array([f"item {i}" for i in range(N)])
    names = report.write_report(tmp_path, found, what={"x": "x"}, ids_y=ids)
    assert sorted(names) == sorted(path.name for path in tmp_path.iterdir())
    with (tmp_path / "pairs.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == N
    assert found.pairs is not None
    worst = int(found.pairs.residuals.argmax())
    assert (rows[0]["x"], rows[0]["y"]) == (str(worst), f"item {worst}")
    residuals = [float(row["residual"]) for row in rows]
    assert residuals == sorted(residuals, reverse=True)
    text = (tmp_path / "table.md").read_text()
    assert "| pair residual | " in text
    assert f"| {worst} | item {worst} | " in text
    stored = json.loads((tmp_path / "diagnosis.json").read_text())
    assert stored["compared"] == {"x": "x"}
    assert (tmp_path / "terms.svg").read_text().startswith("<?xml")
    assert (tmp_path / "plan_rows.png").read_bytes().startswith(b"\x89PNG")


def test_a_solve_that_did_not_converge_is_reported_with_its_error(
    tmp_path: Path,
) -> None:
    config = UnbalancedConfig(epsilon=0.02, rho=3.0, max_iterations=10)
    short = diagnosis.diagnose(X, Y, config=config)
    values = diagnosis.summary(short)["objective"]
    assert values["converged"] is False
    assert values["error"] > 1e-7
    sentence = report.how_it_ended(short)
    assert sentence.startswith("Warning: not converged. After 10 iterations")
    assert f"{values['error']:.1e}" in sentence


@pytest.mark.parametrize(
    ("x", "y", "rows", "message"),
    [
        (X, Y[:, :4], None, "x has 5 dimensions and y has 4"),
        (X[:1], Y, None, "x has 1 row; a diagnosis compares two distributions"),
        (X, Y[:1], None, "y has 1 row;"),
        (np.ones_like(X), Y, None, "x has the same direction in all of its 24 rows"),
        (X, 0 * Y, None, "y has 24 rows without a direction"),
        (X[0], Y, None, "x must be a matrix"),
        (X, Y, [[0, 0]], r"1 pair\(s\) were given; pair metrics need at least 2"),
        (X, Y, [[0, 0], [1, 24]], "The pairs name row 24 of y, which has 24 rows"),
        (X, Y, [0, 1], "Pairs must be whole numbers"),
    ],
)
def test_bad_input_is_refused(
    x: np.ndarray, y: np.ndarray, rows: list | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        diagnosis.diagnose(x, y, rows)
