"""Wasserstein Procrustes: matchings, the relaxation, the steps, planted rotations."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest
import scipy.stats

import reference
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.baselines.unpaired import wasserstein_procrustes as wp
from anchordot_jax.baselines.unpaired.clouds import procrustes
from anchordot_jax.errors import InputError
from planted import same_model

SINKHORN = wp.Sinkhorn(epsilon=0.05, tolerance=1e-3, max_iterations=1000)
EXACT = wp.Sinkhorn(epsilon=0.05, tolerance=1e-5, max_iterations=5000)
SETTINGS = wp.WassersteinProcrustesSettings(
    init_iterations=30, epochs=2, iterations=8, batch_size=60
)


def planted(n: int = 150, d: int = 8, seed: int = 0) -> tuple[Pools, np.ndarray]:
    """Return a cloud and its rotated, shuffled copy; y[order[i]] belongs to x[i]."""
    rng = np.random.default_rng(seed)
    x = reference.unit(rng.gamma(2.0, size=(n, d)) * np.linspace(1, 3, d))
    order = rng.permutation(n)
    y = np.empty_like(x)
    y[order] = x @ scipy.stats.ortho_group.rvs(d, random_state=seed)
    return Pools(x.astype(np.float32), y.astype(np.float32)), order


def fit(pools: Pools, anchors: Anchors | None = None, **changes: Any) -> Any:
    """Return the model of these settings."""
    return wp.fit_wasserstein_procrustes(
        anchors or Anchors(pools.x[:5], pools.y[:5]),
        pools,
        settings=dataclasses.replace(SETTINGS, **changes),
        key=jax.random.key(0),
    )


def accuracy(model: Any, pools: Pools, order: np.ndarray) -> float:
    """Return the share of x whose best y is its own."""
    found = model.scores(pools.x, pools.y).x2y.argmax(axis=1)
    return float((found == order).mean())


@pytest.mark.parametrize("scale", [0.5, 1.5])
def test_matchings_are_pots(scale: float) -> None:
    """POT's Sinkhorn with weights of one gives the same matching."""
    scores = scale * reference.unit_rows(12, 5, 0) @ reference.unit_rows(12, 5, 1).T
    found = np.asarray(wp.matching(jnp.asarray(scores), EXACT))
    ones = np.ones(12)
    expected = ot.sinkhorn(ones, ones, -scores, 0.05, numItermax=20000, stopThr=1e-9)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(found.sum(axis=0), ones, atol=1e-4)
    np.testing.assert_allclose(found.sum(axis=1), ones, atol=1e-4)


def test_matchings_survive_scores_far_beyond_the_range_of_exp() -> None:
    """Scores of thousands of epsilons give a permutation, not a division by zero."""
    order = np.array([2, 0, 3, 1])
    scores = 1000.0 * np.eye(4)[order] + np.array([[500.0], [0.0], [-800.0], [3.0]])
    np.testing.assert_allclose(wp.matching(scores, SINKHORN), np.eye(4)[order])


def test_root_gram() -> None:
    """The Gram matrix of the new rows is the square root of the old one."""
    rows = reference.unit_rows(9, 4, 0).astype(np.float64)
    new = wp.with_root_gram(rows)
    gram = new @ new.T
    np.testing.assert_allclose(gram @ gram, rows @ rows.T, atol=1e-10)
    assert np.linalg.eigvalsh(gram).min() > -1e-10


def test_one_step_of_the_relaxation_is_frank_wolfe() -> None:
    """The first two steps equal a float64 loop with Gram matrices and POT."""
    pools, _ = planted(20, 4)
    x, y = (wp.with_root_gram(rows) for rows in pools)
    gram_x, gram_y = x @ x.T, y @ y.T
    gram_y *= np.linalg.norm(gram_x) / np.linalg.norm(gram_y)
    plan, ones = np.full((20, 20), 1 / 20), np.ones(20)
    for step in (1, 2):
        gradient = plan @ gram_x @ gram_x + gram_y @ gram_y @ plan
        gradient -= 2 * gram_y @ plan @ gram_x
        best = ot.sinkhorn(ones, ones, gradient, 0.05, numItermax=9999, stopThr=1e-9)
        plan = (1 - 2 / (2 + step)) * plan + 2 / (2 + step) * best
    found = wp.convex_init(*pools, iterations=2, sinkhorn=EXACT)
    np.testing.assert_allclose(found, procrustes(plan @ x, y), atol=1e-3)


def test_four_points_on_a_circle() -> None:
    """From the identity, a turn by 0.3 rad is found in one step to 2e-6."""
    x = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    turn = np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    y = (x @ turn)[[2, 0, 3, 1]]
    once = wp.nearest_orthogonal(wp.cross_moment(x, y, np.eye(2), EXACT))
    np.testing.assert_allclose(once, turn, atol=3e-6)
    twice = wp.nearest_orthogonal(wp.cross_moment(x, y, once, EXACT))
    np.testing.assert_allclose(twice, turn, atol=1e-6)


def test_a_step_follows_the_gradient() -> None:
    """With whole pools as batches, a step is R + l x^T P y made orthogonal."""
    pools, _ = planted(20, 4)
    x, y = (rows.astype(np.float64) for rows in pools)
    ones = np.ones(20)
    plan = ot.sinkhorn(ones, ones, -x @ y.T, 0.05, numItermax=9999, stopThr=1e-9)
    left, _, right = np.linalg.svd(np.eye(4) + 0.1 * x.T @ plan @ y)
    found = wp.refine(
        pools.x,
        pools.y,
        np.eye(4, dtype=np.float32),
        jax.random.key(0),
        iterations=1,
        batch_size=20,
        step_length=0.1,
        sinkhorn=EXACT,
    )
    np.testing.assert_allclose(found, left @ right, atol=1e-4)


def test_weights_of_one_over_n_need_a_step_n_times_as_long() -> None:
    """A batch's mass is its size: POT's plan of mass one, times b, is the matching."""
    scores = reference.unit_rows(10, 4, 0) @ reference.unit_rows(10, 4, 1).T
    uniform = np.full(10, 0.1)
    plan = ot.sinkhorn(uniform, uniform, -scores, 0.05, numItermax=9999)
    np.testing.assert_allclose(wp.matching(scores, EXACT), 10 * plan, atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_rotation_is_found(seed: int) -> None:
    """The relaxation finds it, and the steps keep it."""
    pools, order = planted(seed=seed)
    assert accuracy(fit(pools, epochs=0), pools, order) > 0.9
    assert accuracy(fit(pools), pools, order) > 0.9


def test_sides_of_other_dimensions_are_reduced() -> None:
    """Three constant columns more on one side do not hinder it."""
    pools, order = planted()
    wide = np.pad(pools.x, ((0, 0), (0, 3)))
    model = fit(Pools(wide, pools.y))
    assert (model.dim_x, model.dim_y, model.dim) == (11, 8, 8)
    assert accuracy(model, Pools(wide, pools.y), order) > 0.9


def test_the_map_is_orthogonal() -> None:
    """R^T R is the identity to float32's rounding, where the model is stored."""
    model = fit(planted()[0])
    kernel = np.asarray(model.params["x"]["kernel"], np.float64)
    np.testing.assert_allclose(kernel.T @ kernel, np.eye(8), atol=1e-6)


def test_the_scale_of_a_side_does_not_matter() -> None:
    """Rows are scaled to unit norm, so y and 4 y give one model."""
    pools, _ = planted()
    assert same_model(fit(Pools(pools.x, 4 * pools.y)), fit(pools))


def test_the_pairing_is_not_looked_at() -> None:
    """Shuffled anchors, or no true anchors at all, give the same model bit by bit."""
    pools, _ = planted()
    shuffled = Anchors(pools.x[:5], pools.y[4::-1])
    assert same_model(fit(pools, shuffled), fit(pools))
    noise = Anchors(reference.unit_rows(3, 8, 0), reference.unit_rows(3, 8, 1))
    assert same_model(fit(pools, noise), fit(pools))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be a number > 0"),
        ({"batch_size": 1}, "batch_size must be a whole number >= 2"),
        ({"dim": 0}, "dim must be a whole number >= 1"),
        ({"epochs": 1.5}, "epochs must be a whole number >= 0"),
    ],
)
def test_settings_are_checked(changes: dict[str, Any], message: str) -> None:
    """Values out of range are refused by name."""
    with pytest.raises(InputError, match=message):
        dataclasses.replace(SETTINGS, **changes)


def test_the_method_says_what_it_needs() -> None:
    """Pools and no pairs; the short schedule is a valid one."""
    (method,) = wp.METHODS
    assert (method.needs.pairs, method.needs.pools) == (False, True)
    short = dataclasses.replace(method.settings, **method.short)
    assert short.iterations < method.settings.iterations
