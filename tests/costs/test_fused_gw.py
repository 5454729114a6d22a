"""Fused Gromov-Wasserstein: POT's plans, the two ends of alpha, laws, and bad input."""

import numpy as np
import ot
import pytest
from scipy.spatial.distance import cdist

from anchordot_jax.config import CouplingConfig
from anchordot_jax.costs.fused_gromov_wasserstein import (
    fused_gromov_wasserstein,
    solve,
)
from anchordot_jax.coupling import log_plan, solve_cost
from anchordot_jax.errors import InputError

# Every test solves problems of one size with one configuration: one compilation.
N, M = 9, 7
CONFIG = CouplingConfig(tolerance=1e-5, max_iterations=5000)
SETTLED = {"config": CONFIG, "threshold": 1e-7, "max_iterations": 500}


def structure(n, d, seed):
    points = np.random.default_rng(seed).normal(size=(n, d))
    distances = cdist(points, points)
    return distances / distances.mean()


CX, CY = structure(N, 3, 0), structure(M, 2, 1)
COST = np.random.default_rng(2).random((N, M))


def plan(cost_x, cost_y, cost, **options):
    found = fused_gromov_wasserstein(cost_x, cost_y, cost, **SETTLED, **options)
    return np.exp(np.asarray(found, np.float64))


@pytest.mark.parametrize(
    ("alpha", "epsilon"), [(0.0, 0.1), (0.2, 0.5), (0.5, 0.1), (0.5, 0.02), (0.9, 0.1)]
)
def test_equals_pot(alpha, epsilon):
    """POT's alpha weighs the structure; its epsilon is this one."""
    expected = ot.gromov.entropic_fused_gromov_wasserstein(
        COST,
        CX,
        CY,
        epsilon=epsilon,
        alpha=1 - alpha,
        tol=1e-12,
        max_iter=3000,
        numItermax=20_000,
        stopThr=1e-12,
    )
    found = plan(CX, CY, COST, alpha=alpha, epsilon=epsilon)
    np.testing.assert_allclose(found, expected, atol=3e-4 * expected.max())
    # The plan says something: it is far from the product of the marginals.
    assert np.abs(found - 1 / (N * M)).max() > 0.2 / (N * M)


def test_no_pairs_equals_pots_gromov_wasserstein():
    """With alpha = 0 no linear cost is needed, and one is ignored."""
    expected = ot.gromov.entropic_gromov_wasserstein(
        CX, CY, epsilon=0.1, tol=1e-12, max_iter=3000, stopThr=1e-12
    )
    found = plan(CX, CY, None, alpha=0.0, epsilon=0.1)
    np.testing.assert_allclose(found, expected, atol=3e-4 * expected.max())
    np.testing.assert_allclose(plan(CX, CY, COST, alpha=0, epsilon=0.1), found)


def test_alpha_one_is_plain_transport():
    """The structures are not looked at, and the plan is the entropic one."""
    expected = ot.sinkhorn(
        np.full(N, 1 / N), np.full(M, 1 / M), COST, 0.05, numItermax=10_000
    )
    found = solve(CX, CY, COST, alpha=1.0, epsilon=0.05, config=CONFIG)
    np.testing.assert_allclose(np.exp(found.log_plan), expected, atol=1e-5)
    assert bool(found.converged)
    other = solve(7 * CX, CY**2, COST, alpha=1.0, epsilon=0.05, config=CONFIG)
    np.testing.assert_array_equal(found.log_plan, other.log_plan)


def test_without_structure_it_is_transport_at_a_larger_epsilon():
    found = plan(0 * CX, 0 * CY, COST, alpha=0.4, epsilon=0.02)
    solved = solve_cost(COST, 0.05, config=CONFIG)
    expected = np.exp(log_plan(solved, COST.astype(np.float32)))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_nothing_to_tell_apart_gives_the_product():
    found = plan(0 * CX, 0 * CY, None, alpha=0.0, epsilon=0.1)
    np.testing.assert_allclose(found, np.full((N, M), 1 / (N * M)), rtol=1e-5)


def test_scale():
    """Structures times c and epsilon times c squared leave the plan."""
    one = plan(CX, CY, None, alpha=0.0, epsilon=0.1)
    other = plan(3 * CX, 3 * CY, None, alpha=0.0, epsilon=0.9)
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_permuted_items_permute_the_plan():
    rng = np.random.default_rng(3)
    i, j = rng.permutation(N), rng.permutation(M)
    one = plan(CX, CY, COST, alpha=0.5, epsilon=0.1)
    other = plan(
        CX[np.ix_(i, i)], CY[np.ix_(j, j)], COST[np.ix_(i, j)], alpha=0.5, epsilon=0.1
    )
    np.testing.assert_allclose(other, one[np.ix_(i, j)], atol=1e-5)


def test_finds_a_permuted_cloud_without_pairs():
    """A cloud and its shuffled copy are matched by their distances alone."""
    order = np.array([1, 2, 0])
    small = np.array([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]])
    copy = small[np.ix_(order, order)]
    found = fused_gromov_wasserstein(small, copy, None, alpha=0.0, epsilon=0.05)
    np.testing.assert_array_equal(np.argmax(found, axis=1), np.argsort(order))


def test_start():
    """The search goes on from a plan that is given: the solution stays."""
    first = solve(CX, CY, COST, alpha=0.5, epsilon=0.1, **SETTLED)
    start = np.exp(first.log_plan)
    again = solve(CX, CY, COST, alpha=0.5, epsilon=0.1, init=start, **SETTLED)
    assert bool(first.converged)
    assert int(again.n_iterations) < int(first.n_iterations)
    np.testing.assert_allclose(np.exp(again.log_plan), start, atol=1e-5)


def test_too_few_iterations_are_not_called_converged():
    short = solve(CX, CY, COST, alpha=0.5, epsilon=0.1, max_iterations=3)
    assert not bool(short.converged)
    assert int(short.n_iterations) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": 1.5}, r"alpha must be a number in \[0, 1\], got 1.5"),
        ({"alpha": float("nan")}, "alpha must be"),
        ({"epsilon": 0.0}, "epsilon must be a finite number > 0"),
        ({"cost": None}, "alpha = 0.5 weighs a linear cost, but none was given"),
        ({"cost": COST.T}, r"cost must have shape \(9, 7\)"),
        ({"init": COST.T}, r"init must have shape \(9, 7\)"),
        ({"cost_x": COST}, "cost_x must be square"),
        ({"cost_y": np.zeros(3)}, "cost_y must be square"),
    ],
)
def test_bad_input(changes, message):
    given = {"cost_x": CX, "cost_y": CY, "cost": COST, "alpha": 0.5, "epsilon": 0.1}
    with pytest.raises(InputError, match=message):
        fused_gromov_wasserstein(**(given | changes))
