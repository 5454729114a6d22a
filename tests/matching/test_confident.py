"""The plan's most certain pairs against the dense plan in float64."""

import numpy as np
import pytest

from anchordot_jax.matching.confident import best_matches, best_of_rows

EPSILON = 0.1


@pytest.fixture(scope="module")
def problem() -> tuple[np.ndarray, ...]:
    """Return coordinates and potentials of pools of 23 and 31 items."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(23, 5)), rng.normal(size=(31, 5))
    x, y = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, y))
    f, g = 0.1 * rng.normal(size=23), 0.1 * rng.normal(size=31)
    return tuple(np.asarray(part, np.float32) for part in (x, y, f, g))


def dense(problem: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return the whole plan, float64."""
    x, y, f, g = (part.astype(np.float64) for part in problem)
    return np.exp((f[:, None] + g[None, :] - (1 - x @ y.T)) / EPSILON)


def test_best_shares_and_margins_of_the_dense_plan(
    problem: tuple[np.ndarray, ...],
) -> None:
    x, y, _, g = problem
    rows = dense(problem)
    rows /= rows.sum(axis=1, keepdims=True)
    found = best_of_rows(x, y, g, EPSILON)
    assert np.array_equal(found.match, rows.argmax(axis=1))
    ordered = np.sort(rows, axis=1)
    assert np.allclose(found.log_share, np.log(ordered[:, -1]), atol=1e-4)
    margins = np.log(ordered[:, -1] / ordered[:, -2])
    assert np.allclose(found.margin, margins, atol=1e-4)


def test_confidence_and_mutuality_of_the_dense_plan(
    problem: tuple[np.ndarray, ...],
) -> None:
    plan = dense(problem)
    by_row = plan / plan.sum(axis=1, keepdims=True)
    by_column = plan / plan.sum(axis=0, keepdims=True)
    found = best_matches(*problem, EPSILON)
    assert np.array_equal(np.sort(found.x), np.arange(23))
    assert np.array_equal(found.y, plan.argmax(axis=1)[found.x])
    assert np.array_equal(found.mutual, plan.argmax(axis=0)[found.y] == found.x)
    shares = by_row[found.x, found.y] * by_column[found.x, found.y]
    assert np.allclose(found.confidence, np.sqrt(shares), rtol=1e-4)
    assert 0 < found.mutual.sum() < 23


def test_mutual_ones_come_first_then_the_more_confident(
    problem: tuple[np.ndarray, ...],
) -> None:
    found = best_matches(*problem, EPSILON)
    assert (np.diff(found.mutual.astype(int)) <= 0).all()
    for part in (found.mutual, ~found.mutual):
        assert (np.diff(found.confidence[part]) <= 0).all()


def test_tiles_change_nothing(problem: tuple[np.ndarray, ...]) -> None:
    one, other = (best_matches(*problem, EPSILON, tile=tile) for tile in (4, 64))
    for name in ("x", "y", "mutual"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert np.allclose(one.confidence, other.confidence, rtol=1e-5)


def test_a_side_of_one_item(problem: tuple[np.ndarray, ...]) -> None:
    """Its share is everything, and there is no second."""
    x, y, f, g = problem
    found = best_matches(x, y[:1], f, g[:1], EPSILON)
    assert found.mutual.sum() == 1
    assert np.isinf(best_of_rows(x, y[:1], g[:1], EPSILON).margin).all()
