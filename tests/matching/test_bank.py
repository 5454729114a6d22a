"""A model's query bank: its scale, its rows, and its place in the model folder."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest
import safetensors.numpy
from scipy.special import logsumexp  # type: ignore[import-untyped]

import reference
from anchordot_jax import AlignedModel
from anchordot_jax.errors import InputError
from anchordot_jax.matching.bank import bank_rows, cosine_spread, make_bank
from planted import fitted, problem

X, Y = reference.unit_rows(13, 4, 0), reference.unit_rows(9, 4, 1)
GIVEN = problem()


def test_spread_is_that_of_the_whole_matrix() -> None:
    """Two Gram matrices give the standard deviation of all cosines."""
    expected = (np.float64(X) @ np.float64(Y).T).std()
    assert cosine_spread(X, Y) == pytest.approx(expected, rel=1e-5)
    assert cosine_spread(X[:1].repeat(3, axis=0), Y[:1]) == pytest.approx(0, abs=1e-3)


def test_beta_is_in_units_of_the_spread() -> None:
    """1.5 standard deviations of the cosines are one unit of the exponent."""
    bank = make_bank(X, Y)
    assert bank.beta == pytest.approx(1.5 / cosine_spread(X, Y))
    assert bank.x.dtype == bank.y.dtype == np.float16
    np.testing.assert_allclose(bank.x, X, atol=1e-3)
    assert make_bank(X, Y, beta=7.0).beta == 7.0


@pytest.mark.parametrize(
    ("x", "y", "beta", "message"),
    [
        (X, Y[:, :3], None, "The banks have 4 and 3 columns"),
        (X[:0], Y, None, "bank x must be a matrix"),
        (X, Y * np.nan, None, "bank y has a value that is not finite"),
        (X, Y, -1.0, "beta must be a finite number > 0"),
    ],
)
def test_bad_banks_are_refused(
    x: np.ndarray, y: np.ndarray, beta: float | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make_bank(x, y, beta=beta)


def test_rows_are_a_random_part_of_a_large_pool() -> None:
    """A small pool is taken whole; of a large one, different rows by different keys."""
    key = jax.random.key(0)
    np.testing.assert_array_equal(bank_rows(5, 5, key=key), np.arange(5))
    rows = bank_rows(50, 10, key=key)
    assert len(set(rows.tolist())) == 10
    assert rows.max() < 50
    np.testing.assert_array_equal(rows, np.sort(rows))
    assert not np.array_equal(rows, bank_rows(50, 10, key=jax.random.key(1)))


def test_metrics_with_the_bank_are_the_inverted_softmax() -> None:
    """Keys of bank/ are the ranks of beta cos - log sum exp(beta cos), by hand."""
    model = fitted()
    assert model.bank is not None
    u = model.embed_x(GIVEN.x[GIVEN.test_pairs[:, 0]])
    v = model.embed_y(GIVEN.y[GIVEN.test_pairs[:, 1]])
    beta = model.bank.beta
    scores = beta * (u @ v.T) - logsumexp(beta * (model.bank.x @ v.T), axis=0)[None, :]
    ranks = [reference.rank(scores[i], i) for i in range(len(scores))]
    metrics = model.evaluate_both(GIVEN.x, GIVEN.y, GIVEN.test_pairs)
    assert metrics["bank/x2y/mean_rank"] == pytest.approx(np.mean(ranks))
    plain = model.evaluate(GIVEN.x, GIVEN.y, GIVEN.test_pairs)
    assert {k: v for k, v in metrics.items() if not k.startswith("bank/")} == plain


def test_a_direction_without_a_bank_has_no_metrics_of_it() -> None:
    """Of a model without a bank, only the direction of a given one is corrected."""
    model = dataclasses.replace(fitted(), bank=None)
    metrics = model.evaluate_both(GIVEN.x, GIVEN.y, GIVEN.pairs, bank_x=GIVEN.x)
    assert "bank/x2y/recall@1" in metrics
    assert not any(name.startswith("bank/y2x") for name in metrics)
    plain = model.evaluate_both(GIVEN.x, GIVEN.y, GIVEN.pairs)
    assert not any(name.startswith("bank/") for name in plain)


def test_the_bank_is_saved_with_the_model(tmp_path: Path) -> None:
    """A reloaded model scores as before; one without a bank leaves no file."""
    model = fitted()
    assert model.bank is not None
    model.save(tmp_path / "m")
    loaded = AlignedModel.load(tmp_path / "m")
    assert loaded.bank is not None
    np.testing.assert_array_equal(loaded.bank.x, model.bank.x)
    np.testing.assert_array_equal(loaded.bank.y, model.bank.y)
    assert loaded.bank.beta == model.bank.beta
    dataclasses.replace(model, bank=None).save(tmp_path / "m")
    assert not (tmp_path / "m" / "bank.safetensors").exists()
    assert AlignedModel.load(tmp_path / "m").bank is None


@pytest.mark.parametrize(
    "tensors",
    [
        {"x": X, "y": Y},
        {"x": X, "y": Y, "beta": np.float64(3)},
        {"x": np.ones((3, 8)), "y": np.ones((0, 8)), "beta": np.float64(3)},
        {"x": np.ones((3, 8)), "y": np.ones((3, 8)), "beta": np.float64(-3)},
    ],
)
def test_a_damaged_bank_is_named(
    tmp_path: Path, tensors: dict[str, np.ndarray]
) -> None:
    """Missing arrays, other widths, no rows or a bad scale are refused."""
    fitted().save(tmp_path / "m")
    path = tmp_path / "m" / "bank.safetensors"
    tensors = {k: np.asarray(v) for k, v in tensors.items()}
    safetensors.numpy.save_file(tensors, path)
    message = r"bank\.safetensors does not hold query banks of 8 columns and their beta"
    with pytest.raises(InputError, match=message):
        AlignedModel.load(tmp_path / "m")
    path.write_bytes(b"no")
    with pytest.raises(InputError, match=r"bank\.safetensors could not be read"):
        AlignedModel.load(tmp_path / "m")
