"""Synthetic clouds, the eps x rho sweep, and rank correlation."""

import numpy as np
import pytest

import unbalanced_reference as reference
from anchordot_jax.diagnostics import sensitivity, spheres
from anchordot_jax.errors import InputError


def test_clouds_are_where_they_are_said_to_be() -> None:
    x, y = spheres.sphere_clouds(
        400, 8, separation=1.0, spread_x=0.2, spread_y=0.2, seed=1
    )
    means = [side.mean(axis=0) / np.linalg.norm(side.mean(axis=0)) for side in (x, y)]
    assert np.arccos(means[0] @ means[1]) == pytest.approx(1.0, abs=0.03)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=1e-6)
    exact, _ = spheres.sphere_clouds(3, 4, separation=0, spread_x=0, spread_y=1)
    np.testing.assert_allclose(exact, np.tile(np.eye(4)[0], (3, 1)))


def test_mirrored_clouds_have_no_mean_gap() -> None:
    x, y = spheres.sphere_clouds(
        50, 8, separation=1.0, spread_x=0.2, spread_y=2.0, mirrored=True
    )
    assert x.shape == (100, 8)
    assert np.abs(x.mean(axis=0) - y.mean(axis=0)).max() < 1e-7


def test_separation_moves_the_gap_and_concentration_the_terms() -> None:
    near, far = spheres.sweep_spheres([(0, 1, 1), (1.2, 1, 1)], n=60, dim=8)
    assert far.mean_gap > near.mean_gap + 0.3
    assert far.terms.transport > near.terms.transport
    equal, loose = spheres.sweep_spheres(
        [(0, 0.3, 0.3), (0, 0.3, 3.0)], n=30, dim=8, mirrored=True
    )
    assert abs(loose.mean_gap - equal.mean_gap) < 1e-6
    assert loose.terms.total > equal.terms.total + 0.05
    assert loose.terms.variation_y > equal.terms.variation_y


@pytest.mark.parametrize("together", [True, False])
def test_sweep_is_every_setting_alone(together: bool) -> None:
    x, y = reference.clouds()
    cost = 1 - x.astype(np.float64) @ y.T.astype(np.float64)
    points = sensitivity.sweep(
        x, y, epsilons=(0.05, 0.2), rhos=(0.2, 1.5), together=together
    )
    assert [(p.epsilon, p.rho) for p in points] == [
        *((0.05, 0.2), (0.05, 1.5), (0.2, 0.2), (0.2, 1.5))
    ]
    for point in points:
        assert point.converged
        expected = reference.solve(cost, point.epsilon, point.rho, point.rho)
        assert point.terms.transport == pytest.approx(expected.transport, abs=3e-6)
        assert point.terms.total == pytest.approx(sum(expected[1:]), abs=3e-6)
    with pytest.raises(InputError, match="rho must be a number > 0, got 0"):
        sensitivity.sweep(x, y, rhos=(0,))


def test_spearman_is_that_of_ranks_and_0_for_a_constant() -> None:
    assert sensitivity.spearman([1, 5, 3], [10, 30, 20]) == pytest.approx(1)
    assert sensitivity.spearman([3, 2, 1], [1, 2, 4]) == pytest.approx(-1)
    assert sensitivity.spearman([1, 1, 1], [1, 2, 3]) == 0
    # Ranks 1, 2.5, 2.5 and 1, 2, 3: 1.5 / sqrt(1.5 * 2).
    assert sensitivity.spearman([1, 2, 2], [1, 2, 3]) == pytest.approx(0.75**0.5)
