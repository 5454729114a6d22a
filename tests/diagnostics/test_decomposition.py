"""The terms of the optimum: float64 values, their sum, and what re-pairing changes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unbalanced_reference as reference
from anchordot_jax.diagnostics.decomposition import (
    decompose,
    generalized_kl,
    plan_rows,
)
from anchordot_jax.diagnostics.settings import UnbalancedConfig
from anchordot_jax.diagnostics.unbalanced import solve_unbalanced

X, Y = reference.clouds()
COST = 1 - X.astype(np.float64) @ Y.T.astype(np.float64)


def solve(x: np.ndarray, y: np.ndarray, **settings: object):
    solved = solve_unbalanced(x, y, config=UnbalancedConfig(**settings))  # type: ignore[arg-type]
    rows = plan_rows(solved, x, y)
    return solved, rows, decompose(solved, rows)


@pytest.mark.parametrize(
    ("epsilon", "rho", "rho_y"),
    [(0.08, 0.8, None), (0.02, 3.0, None), (0.08, 0.3, 2.0), (0.08, math.inf, 0.8)],
)
def test_terms_are_the_float64_ones(
    epsilon: float, rho: float, rho_y: float | None
) -> None:
    _, rows, terms = solve(X, Y, epsilon=epsilon, rho=rho, rho_y=rho_y)
    expected = reference.solve(COST, epsilon, rho, rho if rho_y is None else rho_y)
    for name in ("transport", "complexity", "variation_x", "variation_y"):
        assert getattr(terms, name) == pytest.approx(getattr(expected, name), abs=2e-6)
    assert terms.mass == pytest.approx(expected.plan.sum(), abs=2e-6)
    assert terms.total == pytest.approx(sum(expected[1:]), abs=1e-6)
    assert terms.dual == pytest.approx(terms.total, abs=1e-6)
    shares = expected.plan / expected.plan.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(rows.costs, (shares * COST).sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(
        rows.entropies, -(shares * np.log(shares)).sum(axis=1), atol=2e-4
    )
    np.testing.assert_allclose(rows.barycentres, shares @ Y, atol=2e-5)
    np.testing.assert_allclose(rows.column_sums, expected.plan.sum(axis=0), rtol=2e-5)


def test_the_optimum_is_below_every_other_plan() -> None:
    _, _, terms = solve(X, Y)
    a, b = np.full(len(X), 1 / len(X)), np.full(len(Y), 1 / len(Y))
    best = reference.solve(COST, 0.08, 0.8, 0.8).plan
    rng = np.random.default_rng(0)
    for scale in (0.01, 0.1, 1.0):
        plan = best * np.exp(scale * rng.normal(size=best.shape))
        other = reference.objective(plan, COST, a, b, 0.08, 0.8, 0.8)
        assert terms.total < sum(other)


@pytest.mark.parametrize("tile", [1, 4, 17, 64])
def test_tiles_do_not_matter(tile: int) -> None:
    solved, whole, _ = solve(X, Y)
    tiled = plan_rows(solved, X, Y, tile=tile)
    for one, other in zip(whole, tiled, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-7)


def test_unconverged_potentials_leave_a_duality_gap() -> None:
    _, _, terms = solve(X, Y, epsilon=0.02, rho=3.0, max_iterations=10)
    assert terms.total > terms.dual + 1e-7


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_repairing_leaves_every_distributional_term(seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(Y))
    _, rows, terms = solve(X, Y)
    _, others, shuffled = solve(X, Y[order])
    np.testing.assert_allclose(shuffled, terms, atol=1e-6)
    np.testing.assert_allclose(others.costs, rows.costs, atol=1e-6)
    np.testing.assert_allclose(others.column_sums, rows.column_sums[order], rtol=1e-5)


def test_generalized_kl_by_hand() -> None:
    # 0.5 log(0.5 / 0.25) - 0.5 + 0.25, and the 0.75 of a row that is empty.
    expected = 0.5 * math.log(2) - 0.25 + 0.75
    assert generalized_kl(np.array([0.5, 0]), np.array([0.25, 0.75])) == pytest.approx(
        expected
    )
    assert generalized_kl(np.ones(3), np.ones(3)) == 0
