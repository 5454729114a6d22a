"""The unbalanced solve: three independent solvers, its limits, its evidence."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ot import unbalanced as pot  # type: ignore[import-untyped]
from ott.geometry import geometry as ott_geometry
from ott.problems.linear import linear_problem
from ott.solvers.linear import sinkhorn

import unbalanced_reference as reference
from anchordot_jax import coupling
from anchordot_jax.config import CouplingConfig
from anchordot_jax.diagnostics import unbalanced
from anchordot_jax.diagnostics.settings import UnbalancedConfig
from anchordot_jax.errors import InputError

X, Y = reference.clouds()
COST = 1 - X.astype(np.float64) @ Y.T.astype(np.float64)
SETTINGS = [
    (0.08, 0.8, None),
    (0.02, 3.0, None),
    (0.2, 0.2, None),
    (0.08, 0.3, 2.0),
    (0.08, 0.8, math.inf),
]


def solve(x: np.ndarray = X, y: np.ndarray = Y, **settings: object):
    return unbalanced.solve_unbalanced(x, y, config=UnbalancedConfig(**settings))


def plan_of(solved: unbalanced.Unbalanced) -> np.ndarray:
    return np.asarray(
        coupling.plan_block(X, Y, solved.f, solved.g, solved.epsilon), np.float64
    )


@pytest.mark.parametrize("memory", [None, 0], ids=["stored", "streamed"])
@pytest.mark.parametrize(("epsilon", "rho", "rho_y"), SETTINGS)
def test_plan_is_the_float64_one(
    epsilon: float, rho: float, rho_y: float | None, memory: int | None
) -> None:
    solved = solve(epsilon=epsilon, rho=rho, rho_y=rho_y, cost_memory=memory)
    assert bool(solved.converged)
    assert float(solved.error) < 1e-7
    expected = reference.solve(COST, epsilon, rho, rho if rho_y is None else rho_y)
    # An error of a potential is 1/eps times as large in an entry.
    np.testing.assert_allclose(
        plan_of(solved), expected.plan, rtol=1e-5 / epsilon, atol=1e-9
    )


@pytest.mark.parametrize(("epsilon", "rho"), [(0.08, 0.8), (0.2, 0.2), (0.05, 2.0)])
def test_plan_is_pots(epsilon: float, rho: float) -> None:
    a, b = np.full(len(X), 1 / len(X)), np.full(len(Y), 1 / len(Y))
    expected = pot.sinkhorn_unbalanced(
        a, b, COST, epsilon, rho, reg_type="kl", numItermax=50_000, stopThr=1e-13
    )
    np.testing.assert_allclose(
        plan_of(solve(epsilon=epsilon, rho=rho)), expected, rtol=2e-5
    )


def test_plan_is_that_of_otts_own_tau() -> None:
    """OTT's tau solves for the reference measure 1: the cost is shifted to ab^T's."""
    epsilon, rho = 0.08, 0.8
    shifted = COST + epsilon * math.log(len(X) * len(Y))
    tau = rho / (rho + epsilon)
    problem = linear_problem.LinearProblem(
        ott_geometry.Geometry(jnp.asarray(shifted, jnp.float32), epsilon=epsilon),
        tau_a=tau,
        tau_b=tau,
    )
    with jax.numpy_rank_promotion("allow"):
        out = sinkhorn.Sinkhorn(threshold=1e-6, max_iterations=2000)(problem)
        expected = np.asarray(out.matrix)
    np.testing.assert_allclose(plan_of(solve()), expected, rtol=1e-4)


def test_weights_are_the_reference_measure() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.dirichlet(np.ones(len(X))), rng.dirichlet(np.ones(len(Y)))
    solved = unbalanced.solve_unbalanced(X, Y, a=a, b=b)
    expected = reference.solve(COST, 0.08, 0.8, 0.8, a=a, b=b)
    np.testing.assert_allclose(plan_of(solved), expected.plan, rtol=1e-4, atol=1e-9)


def test_infinite_rho_is_the_balanced_coupling() -> None:
    balanced = coupling.solve_coupling(
        X, Y, 0.08, config=CouplingConfig(tolerance=1e-6)
    )
    expected = np.asarray(coupling.plan_block(X, Y, balanced.f, balanced.g, 0.08))
    np.testing.assert_allclose(
        plan_of(solve(rho=math.inf)), expected, rtol=1e-4, atol=1e-9
    )
    np.testing.assert_allclose(plan_of(solve(rho=1e4)), expected, rtol=1e-3, atol=1e-9)


def test_row_sums_are_what_the_potentials_say() -> None:
    """The first-order condition: pi 1 = a exp(-f'/rho)."""
    solved = solve()
    a = np.asarray(solved.a, np.float64)
    potential = np.asarray(solved.f, np.float64) - 0.08 * np.log(a)
    np.testing.assert_allclose(
        plan_of(solved).sum(axis=1), a * np.exp(-potential / 0.8), rtol=1e-5
    )


def test_large_rho_needs_no_more_iterations_than_balanced() -> None:
    """The shared constant is set in closed form; without it rho = 50 takes 10 000."""
    assert int(solve(rho=50.0).n_iterations) <= 2 * int(
        solve(rho=math.inf).n_iterations
    )
    for rho in (3.0, 10.0, 40.0, 200.0, 700.0, 3000.0, 10_000.0):
        assert bool(solve(rho=rho, epsilon=0.05).converged), rho


def test_small_epsilon_falls_back_to_logarithms() -> None:
    """A plan whose sums underflow is no kernel; the answer is the streamed one."""
    settings = {"epsilon": 1e-3, "rho": 0.01, "threshold": 1e-6}
    solved, streamed = solve(**settings), solve(**settings, cost_memory=0)
    assert bool(solved.converged)
    np.testing.assert_allclose(solved.f, streamed.f, atol=2e-6)
    np.testing.assert_allclose(solved.g, streamed.g, atol=2e-6)


def test_an_unfinished_solve_says_so() -> None:
    solved = solve(epsilon=0.02, rho=3.0, max_iterations=10)
    assert not bool(solved.converged)
    assert int(solved.n_iterations) == 10
    assert 1e-7 < float(solved.error) < 1


def test_many_settings_at_once_are_each_of_them_alone() -> None:
    settings = [(0.08, 0.8), (0.02, 3.0), (0.2, 0.2)]
    values = np.asarray(settings, np.float32)
    many = unbalanced.solve_many(X, Y, values[:, 0], values[:, 1])
    assert many.f.shape == (3, len(X))
    for k, (epsilon, rho) in enumerate(settings):
        one = solve(epsilon=epsilon, rho=rho)
        assert bool(many.converged[k])
        np.testing.assert_allclose(many.f[k], one.f, atol=2e-6)
        np.testing.assert_allclose(many.g[k], one.g, atol=2e-6)


def test_another_epsilon_or_rho_compiles_nothing() -> None:
    solve()
    before = unbalanced._solve._cache_size()
    solve(epsilon=0.1, rho=1.2, rho_y=0.4, threshold=1e-6)
    assert unbalanced._solve._cache_size() == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 0}, "epsilon must be a number > 0, got 0"),
        ({"epsilon": math.inf}, "epsilon must be a number > 0"),
        ({"epsilon": True}, "epsilon must be a number > 0, got True"),
        ({"rho": -1.0}, "rho must be a number > 0, got -1.0"),
        ({"rho": math.nan}, "rho must be a number > 0, got nan"),
        ({"rho_y": 0.0}, "rho_y must be a number > 0, got 0.0"),
        ({"threshold": 0.0}, "threshold must be a number > 0"),
        ({"max_iterations": 0}, "max_iterations must be a whole number >= 1, got 0"),
        ({"check_every": 1.5}, "check_every must be a whole number >= 1, got 1.5"),
        ({"cost_memory": -1}, "cost_memory must be a whole number >= 0, got -1"),
    ],
)
def test_settings_out_of_range_are_named(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        UnbalancedConfig(**settings)  # type: ignore[arg-type]
