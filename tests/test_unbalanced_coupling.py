"""The coupling with soft marginals: float64 references, limits, masses, outliers."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
import unbalanced_reference
from anchordot_jax import coupling, profiles, row_masses
from anchordot_jax.config import CouplingConfig
from anchordot_jax.coupling import solve_cost, solve_coupling
from anchordot_jax.transport import coupling_solve
from anchordot_jax.transport.sinkhorn_blocks import Marginals, Soft
from anchordot_jax.transport.unbalanced_sinkhorn import _log_total, _shift

N, M, N_ANCHORS, GAMMA, EPSILON = 31, 23, 14, 0.75, 0.05
STORED = CouplingConfig(tolerance=1e-5)
STREAMED = CouplingConfig(tolerance=1e-5, cost_memory=0)


def pools() -> tuple[jax.Array, jax.Array, np.ndarray]:
    """Return factored coordinates, and the cost of the whole profiles in float64."""
    anchors = reference.unit_rows(N_ANCHORS, 9, 0), reference.unit_rows(N_ANCHORS, 7, 1)
    x, y = reference.unit_rows(N, 9, 2), reference.unit_rows(M, 7, 3)
    bases = [profiles.fit_basis(jnp.asarray(side)) for side in anchors]
    maps = profiles.coordinate_maps(*bases, GAMMA)
    u, v = profiles.coordinates(jnp.asarray(x), jnp.asarray(y), maps)
    return u, v, 1 - reference.profile_cosine(x, anchors[0], y, anchors[1], GAMMA)


def marginals() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(4)
    a, b = random.uniform(0.3, 2, N), random.uniform(0.3, 2, M)
    return a / a.sum(), b / b.sum()


def plan_of(solved: coupling.Coupling, cost: np.ndarray) -> np.ndarray:
    return reference.plan(cost, solved.f, solved.g, EPSILON)


@pytest.mark.parametrize("config", [STORED, STREAMED], ids=["stored", "streamed"])
@pytest.mark.parametrize("rho", [1.0, 0.2])
def test_the_plan_and_its_masses_are_the_float64_ones(
    rho: float, config: CouplingConfig
) -> None:
    """With weights; the rows' masses are the plan's row sums over their marginal."""
    x, y, cost = pools()
    a, b = marginals()
    solved = solve_coupling(x, y, EPSILON, a=a, b=b, rho=rho, config=config)
    assert bool(solved.converged)
    expected = unbalanced_reference.solve(cost, EPSILON, rho, rho, a=a, b=b).plan
    np.testing.assert_allclose(plan_of(solved, cost), expected, rtol=1e-3, atol=1e-8)
    rows, columns = expected.sum(axis=1) / a, expected.sum(axis=0) / b
    assert solved.log_mass_x is not None
    assert solved.log_mass_y is not None
    np.testing.assert_allclose(solved.log_mass_x, np.log(rows), atol=2e-4)
    np.testing.assert_allclose(solved.log_mass_y, np.log(columns), atol=2e-4)
    weights_x, weights_y = row_masses.row_weights(solved)
    np.testing.assert_allclose(weights_x, rows / rows.mean(), rtol=5e-4)
    np.testing.assert_allclose(weights_y, columns / columns.mean(), rtol=5e-4)
    summary = row_masses.mass_summary(solved)
    assert summary["mass"] == pytest.approx(expected.sum(), rel=1e-3)
    assert summary["mass"] < 0.9
    assert summary["little_mass_x"] == (rows < 0.1 * rows.mean()).mean()
    assert summary["little_mass_y"] == (columns < 0.1 * columns.mean()).mean()


def test_the_targets_are_the_plans_rows_and_columns() -> None:
    """softmax_j((g_j - C_ij)/eps) is pi_ij / sum_j pi_ij for soft marginals too."""
    x, y, cost = pools()
    solved = solve_coupling(x, y, EPSILON, rho=0.2, config=STORED)
    plan = unbalanced_reference.solve(cost, EPSILON, 0.2, 0.2).plan
    i, j = jnp.arange(3, 12), jnp.arange(5, 16)
    found = coupling.block_targets(x[i], y[j], solved.f[i], solved.g[j], EPSILON)
    block = plan[np.ix_(i, j)]
    np.testing.assert_allclose(
        found[0], block / block.sum(1, keepdims=True), rtol=2e-3, atol=1e-6
    )
    np.testing.assert_allclose(
        found[1], block / block.sum(0, keepdims=True), rtol=2e-3, atol=1e-6
    )


def test_a_large_rho_is_the_balanced_coupling() -> None:
    """The plan's limit, every mass 1; and no rho is no mass at all."""
    x, y, cost = pools()
    balanced = solve_coupling(x, y, EPSILON, config=STORED)
    assert row_masses.row_weights(balanced) == (None, None)
    assert row_masses.mass_summary(balanced) == {}
    assert balanced[7:] == (None, None, None, None)
    for rho in (1e4, math.inf):
        solved = solve_coupling(x, y, EPSILON, rho=rho, config=STORED)
        assert bool(solved.converged)
        np.testing.assert_allclose(
            plan_of(solved, cost), plan_of(balanced, cost), rtol=1e-3, atol=1e-8
        )
        for weights in row_masses.row_weights(solved):
            np.testing.assert_allclose(weights, 1, atol=1e-3)
        assert float(solved.mass) == pytest.approx(1, abs=1e-3)  # type: ignore[arg-type]


def test_a_row_without_weight_has_no_mass() -> None:
    """Its potential and mass are minus infinity, and the others' as without it."""
    x, y, _ = pools()
    a = np.full(N, 1 / (N - 1))
    a[4] = 0
    kept = np.delete(np.arange(N), 4)
    without = solve_coupling(x[kept], y, EPSILON, rho=0.3, config=STORED)
    for config in (STORED, STREAMED):
        solved = solve_coupling(x, y, EPSILON, a=a, rho=0.3, config=config)
        assert bool(solved.converged)
        assert np.isneginf(solved.f[4])
        assert np.isneginf(solved.log_mass_x[4])  # type: ignore[index]
        np.testing.assert_allclose(solved.f[kept], without.f, atol=2e-6)
        np.testing.assert_allclose(solved.g, without.g, atol=2e-6)
        weights, _ = row_masses.row_weights(solved)
        assert weights is not None
        assert weights[4] == 0


@pytest.mark.parametrize("rho", [0.3, 0.05])
def test_rows_far_from_everything_keep_little_mass(rho: float) -> None:
    """Six rows that point away: their weight falls with rho, the others' does not."""
    random = np.random.default_rng(5)
    near = reference.unit(random.normal(size=(N, 6)) * 0.5 + 1).astype(np.float32)
    y = reference.unit(random.normal(size=(M, 6)) * 0.5 + 1).astype(np.float32)
    far = reference.unit(random.normal(size=(6, 6)) * 0.5 - 1).astype(np.float32)
    solved = solve_coupling(np.concatenate([near, far]), y, EPSILON, rho=rho)
    weights = np.asarray(row_masses.row_weights(solved)[0])
    assert weights.mean() == pytest.approx(1, abs=1e-5)
    assert weights[N:].max() < weights[:N].min()
    # A foreign row costs about 1.5 more: exp(-1.5/rho) were the dual of y fixed.
    assert weights[N:].mean() < 0.1 * weights[:N].mean()
    if rho < 0.1:
        assert weights[N:].mean() < 1e-6
        assert row_masses.mass_summary(solved)["little_mass_x"] == pytest.approx(
            6 / (N + 6)
        )


def test_a_cost_given_whole_and_a_start_are_the_same_problem() -> None:
    """solve_cost agrees, and a solve from the solution needs one check."""
    x, y, cost = pools()
    factored = solve_coupling(x, y, EPSILON, rho=0.4, config=STORED)
    start = factored.f, factored.g
    whole = solve_cost(
        cost.astype(np.float32), EPSILON, init=start, rho=0.4, config=STORED
    )
    np.testing.assert_allclose(whole.f, factored.f, atol=3e-6)
    np.testing.assert_allclose(whole.g, factored.g, atol=3e-6)
    assert int(whole.n_iterations) == 10
    assert int(factored.n_iterations) > 10


def test_an_unfinished_solve_says_so_and_reports_its_checks() -> None:
    """The error of the last check is in units of epsilon; each check is told."""
    x, y, _ = pools()
    told: list[tuple[int, float]] = []
    config = CouplingConfig(max_iterations=4, check_every=2, tolerance=1e-6)
    solved = solve_coupling(
        x,
        y,
        0.01,
        rho=2.0,
        config=config,
        progress=lambda i, error: told.append((int(i), float(error))),
    )
    jax.effects_barrier()
    assert not bool(solved.converged)
    assert int(solved.n_iterations) == 4
    assert [i for i, _ in told] == [2, 4]
    assert told[-1][1] == pytest.approx(float(solved.marginal_error), rel=1e-5)
    assert 1e-6 < float(solved.marginal_error) < 100


@pytest.mark.parametrize("rho", [1e4, 50.0, 0.02])
def test_the_total_of_the_masses_keeps_its_digits(rho: float) -> None:
    """Log sum a exp(-f'/rho): near 0 for a large rho, far below float32 for a small."""
    random = np.random.default_rng(0)
    a = random.dirichlet(np.ones(5)).astype(np.float32)
    a /= a.sum()
    f = (EPSILON * np.log(a) + random.uniform(0.5, 1.5, 5)).astype(np.float32)
    exponents = -(f.astype(np.float64) - EPSILON * np.log(a.astype(np.float64))) / rho
    top = exponents.max()
    # The weights' own sum is off by an ulp.
    expected = top + np.log(np.average(np.exp(exponents - top), weights=a))
    found = _log_total(*(jnp.asarray(v, jnp.float32) for v in (a, f, EPSILON, 1 / rho)))
    # log of the sum itself would be off by 1e-7, which a rho of 1e4 makes 1e-3.
    np.testing.assert_allclose(found, expected, rtol=3e-6)


@pytest.mark.parametrize("rhos", [(0.5, 0.5), (40.0, 3.0), (2000.0, math.inf)])
def test_the_shared_constant_is_the_duals_best(rhos: tuple[float, float]) -> None:
    """After the shift both sides' potentials stand for the same mass."""
    a, b = marginals()
    random = np.random.default_rng(1)
    f, g = random.uniform(-0.5, 1, N), random.uniform(-0.5, 1, M)
    numbers = (a, b, f, g, EPSILON, *rhos)
    a_, b_, f_, g_, epsilon, *both = (jnp.asarray(v, jnp.float32) for v in numbers)
    soft = Soft.of(epsilon, *both)
    marginals_ = Marginals(a_, b_, epsilon)
    moved_f, moved_g = _shift(marginals_, soft, f_, g_, least=jnp.asarray(1e-6))
    np.testing.assert_allclose(moved_f - f_, -(moved_g - g_)[0], rtol=1e-4)

    def log_total(weights: np.ndarray, potential: jax.Array, rho: float) -> float:
        density = np.asarray(potential, np.float64) - EPSILON * np.log(weights)
        return float(np.log(np.sum(weights * np.exp(-density / rho))))

    masses = log_total(a, moved_f, rhos[0]), log_total(b, moved_g, rhos[1])
    np.testing.assert_allclose(masses[0], masses[1], rtol=2e-3, atol=2e-6)
    assert float(jnp.abs(moved_f - f_).max()) > 1e-3


def test_another_rho_compiles_nothing() -> None:
    """Rho is a number of the program, not a part of it."""
    x, y, _ = pools()
    solve_coupling(x, y, EPSILON, rho=0.4, config=STORED)
    before = coupling_solve._solve_soft._cache_size()
    solve_coupling(x, y, 0.06, rho=0.7, config=STORED)
    assert coupling_solve._solve_soft._cache_size() == before
