"""The three theorems of UOT-Gap as tests, on plans solved here."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unbalanced_reference as reference
from anchordot_jax.diagnostics import bounds, corrections, pairs
from anchordot_jax.diagnostics.decomposition import decompose, plan_rows
from anchordot_jax.diagnostics.settings import UnbalancedConfig
from anchordot_jax.diagnostics.unbalanced import solve_unbalanced
from reference import unit

N, M, DIM = 17, 29, 6


def solve(x: np.ndarray, y: np.ndarray, **options: float):
    solved = solve_unbalanced(x, y, config=UnbalancedConfig(**options))  # type: ignore[arg-type]
    rows = plan_rows(solved, x, y)
    return solved, rows, decompose(solved, rows)


def clouds(seed: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    direction = np.eye(DIM)[0] * shift
    x = unit(rng.normal(size=(N, DIM)) + direction)
    y = unit(rng.normal(size=(M, DIM)) - direction)
    return x.astype(np.float32), y.astype(np.float32)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 999), shift=st.floats(0, 8), rho=st.sampled_from([0.2, 2.0]))
def test_transport_bounds_the_mean_gap(seed: int, shift: float, rho: float) -> None:
    """Theorem 4.1 for the balanced plan, and its form for an unbalanced one."""
    x, y = clouds(seed, shift)
    gap = pairs.mean_gap(x, y)
    _, _, balanced = solve(x, y, rho=math.inf)
    assert gap**2 <= 2 * balanced.transport + 1e-5
    solved, rows, _ = solve(x, y, rho=rho)
    bound = bounds.mean_gap_bound(rows, np.asarray(solved.a), np.asarray(solved.b))
    assert gap <= bound + 1e-5


def test_the_bound_is_met_by_two_points() -> None:
    """All mass from one point to another: |x - y|^2 = 2 C exactly."""
    x = np.tile(np.eye(DIM, dtype=np.float32)[0], (N, 1))
    y = np.tile(unit(np.array([3.0, 4, 0, 0, 0, 0])).astype(np.float32), (M, 1))
    _, rows, terms = solve(x, y, rho=math.inf)
    assert terms.transport == pytest.approx(0.4, abs=1e-6)
    assert pairs.mean_gap(x, y) == pytest.approx(bounds.transport_bound(0.4), abs=1e-6)
    uniform = np.full(N, 1 / N), np.full(M, 1 / M)
    assert bounds.mean_gap_bound(rows, *uniform) == pytest.approx(
        math.sqrt(0.8), abs=1e-3
    )


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 999),
    private=st.integers(1, N - 1),
    rho=st.sampled_from([0.1, 0.8, 3.0]),
)
def test_private_mass_costs_at_least_the_bound(
    seed: int, private: int, rho: float
) -> None:
    """<C, pi> + rho KL(pi 1 | a) >= rho eta (1 - exp(-delta/rho)) for every plan."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(N, DIM)), rng.normal(size=(M, DIM))
    # Private rows have no part in y's directions: their cost is 1 to all of y.
    x[:private, :3], x[private:, 3:] = 0, 0
    y[:, 3:] = 0
    x, y = unit(x).astype(np.float32), unit(y).astype(np.float32)
    _, _, terms = solve(x, y, rho=rho)
    bound = bounds.private_mass_bound(private / N, 1.0, rho)
    assert terms.transport + terms.variation_x >= bound - 1e-6
    assert terms.total >= bound - 1e-6


def test_private_mass_bound_is_met_where_nothing_else_costs() -> None:
    """Private rows retain exp(-delta/rho) where y's marginal is free.

    With eps and rho_y near 0 only <C, pi> + rho KL(pi 1 | a) is left.
    """
    x = np.zeros((N, DIM), np.float32)
    x[:5, 1], x[5:, 0] = 1, 1
    y = np.zeros((M, DIM), np.float32)
    y[:, 0] = 1
    _, rows, terms = solve(x, y, epsilon=1e-4, rho=0.8, rho_y=1e-4, threshold=1e-6)
    bound = bounds.private_mass_bound(5 / N, 1.0, 0.8)
    assert terms.transport + terms.variation_x == pytest.approx(bound, rel=2e-3)
    np.testing.assert_allclose(rows.row_sums[:5] * N, math.exp(-1 / 0.8), rtol=5e-3)
    assert bounds.private_mass_bound(0.5, 1.0, 1.0) == pytest.approx(
        0.5 * (1 - math.exp(-1))
    )


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_a_barycentric_step_decreases_the_objective_at_the_stated_rate(
    shift: float,
) -> None:
    """Theorem 4.5: dJ/dalpha at 0 is -sum_i r_i |P_i b_i|^2; float64 objective."""
    x, y = clouds(3, shift)
    _, rows, terms = solve(x, y)
    rate = corrections.descent_rate(x, rows.barycentres, rows.row_sums)
    assert rate > 1e-3
    step = 1e-2

    def value(alpha: float) -> float:
        moved = corrections.barycentric(x, rows.barycentres, alpha)
        cost = 1 - moved.astype(np.float64) @ y.astype(np.float64).T
        return float(sum(reference.solve(cost, 0.08, 0.8, 0.8)[1:]))

    assert value(0) == pytest.approx(terms.total, abs=1e-6)
    assert value(step) < value(0)
    slope = (value(step) - value(-step)) / (2 * step)
    assert slope == pytest.approx(-rate, rel=5e-3)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 999))
def test_repairing_raises_the_pair_residual_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = unit(rng.normal(size=(N, DIM))).astype(np.float32)
    y = unit(x + 0.3 * rng.normal(size=(N, DIM))).astype(np.float32)
    # No row keeps its partner.
    other = np.roll(y, 1 + seed % (N - 1), axis=0)
    found = [solve(x, side)[2] for side in (y, other)]
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    assert pairs.mean_gap(x, y) == pytest.approx(pairs.mean_gap(x, other), abs=1e-6)
    residuals = [
        pairs.pair_residual(float(pairs.pair_costs(x, side).mean()), t.unit_transport)
        for side, t in zip((y, other), found, strict=True)
    ]
    assert residuals[0] < residuals[1]
