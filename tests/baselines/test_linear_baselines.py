"""Procrustes, ridge regression and CCA: hand values, SciPy, scikit-learn."""

import dataclasses

import jax
import numpy as np
import pytest
import scipy.linalg
from sklearn.linear_model import Ridge

import reference
from anchordot_jax.baselines.closed_form import cca, linear
from anchordot_jax.baselines.closed_form.linear import (
    CcaSettings,
    RidgeMapSettings,
    procrustes_map,
    ridge_map,
)
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.errors import InputError

KEY = jax.random.key(0)
METHODS = {method.name: method for method in linear.METHODS}
TURN = np.array([[0.0, -1.0], [1.0, 0.0]])
TOY_X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


def paired(n, dx, dy, seed=0):
    """Return unit rows of both sides, linear in shared factors but for noise."""
    maps = np.random.default_rng(99)
    to_x, to_y = maps.normal(size=(4, dx)), maps.normal(size=(4, dy))
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 4)) + 0.5
    x = z @ to_x + 0.2 * rng.normal(size=(n, dx))
    y = z @ to_y + 0.2 * rng.normal(size=(n, dy))
    return (reference.unit(side).astype(np.float32) for side in (x, y))


def fit(name, anchors, **changes):
    method = METHODS[name]
    empty = Pools(anchors.x[:0], anchors.y[:0])
    chosen = dataclasses.replace(method.settings, **changes)
    return method.fit(anchors, empty, settings=chosen, key=KEY)


def cosines(x, y):
    return reference.unit(x) @ reference.unit(y).T


def test_procrustes_recovers_a_rotation():
    """Exactly; a scale of y does not matter."""
    np.testing.assert_allclose(procrustes_map(TOY_X, TOY_X @ TURN), TURN, atol=1e-12)
    scaled = procrustes_map(TOY_X, 7 * TOY_X @ TURN)
    np.testing.assert_allclose(scaled, TURN, atol=1e-12)


def test_procrustes_allows_a_reflection():
    """There is no correction of the determinant."""
    mirror = np.diag([1.0, -1.0])
    np.testing.assert_allclose(
        procrustes_map(TOY_X, TOY_X @ mirror), mirror, atol=1e-12
    )


def test_rectangular_procrustes_hand_values():
    """Three columns to two: orthonormal columns; the other way, orthonormal rows."""
    x = np.vstack([np.eye(3), np.ones(3)])
    y = np.array([[1.0, 0], [0, 1], [1, 1], [2, 2]])
    found = procrustes_map(x, y)
    expected = [[0.881246, -0.118754], [-0.118754, 0.881246], [0.457496, 0.457496]]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(found.T @ found, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(procrustes_map(y, x), found.T, atol=1e-12)


def test_procrustes_is_scipys():
    """Square maps equal scipy.linalg.orthogonal_procrustes."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 6)), rng.normal(size=(20, 6))
    expected, _ = scipy.linalg.orthogonal_procrustes(x, y)
    np.testing.assert_allclose(procrustes_map(x, y), expected, atol=1e-10)


@pytest.mark.parametrize(("dx", "dy"), [(6, 6), (8, 5), (5, 8)])
def test_procrustes_scores_centred_rows_in_ys_space(dx, dy):
    """The pairs' means are subtracted at fit and at test."""
    anchors = Anchors(*paired(40, dx, dy))
    x, y = paired(9, dx, dy, seed=1)
    mean_x, mean_y = anchors.x.mean(0), anchors.y.mean(0)
    turn = procrustes_map(anchors.x - mean_x, anchors.y - mean_y)
    expected = cosines((x - mean_x) @ turn, y - mean_y)
    model = fit("procrustes", anchors)
    np.testing.assert_allclose(model.scores(x, y).x2y, expected, atol=1e-5)
    assert model.dim == dy


def test_ridge_hand_values():
    """Penalty .5 on three uncentred rows, whose mean eigenvalue is 2."""
    left, values, right_t = np.linalg.svd(TOY_X, full_matrices=False)
    side = cca.Side(np.zeros(2), left, values, right_t.T)
    found = ridge_map(side, TOY_X @ TURN, 0.25)
    expected = [[0.095238, -0.761905], [0.761905, -0.095238]]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("shape", [(30, 5, 4), (7, 12, 9)])
@pytest.mark.parametrize("ridge", [0.01, 3.0])
@pytest.mark.parametrize("name", ["ridge-x2y", "ridge-y2x"])
def test_ridge_is_scikit_learns(name, ridge, shape):
    """Ridge regression with an intercept, N > d and N < d, scored in its targets."""
    anchors = Anchors(*paired(*shape))
    x, y = paired(9, *shape[1:], seed=1)
    sides = (anchors.x, anchors.y) if name == "ridge-x2y" else (anchors.y, anchors.x)
    source, target = (side.astype(np.float64) for side in sides)
    unit = ((source - source.mean(0)) ** 2).sum() / source.shape[1]
    regression = Ridge(alpha=ridge * unit).fit(source, target)
    if name == "ridge-x2y":
        expected = cosines(regression.predict(x) - target.mean(0), y - target.mean(0))
    else:
        expected = cosines(x - target.mean(0), regression.predict(y) - target.mean(0))
    model = fit(name, anchors, ridge=ridge)
    np.testing.assert_allclose(model.scores(x, y).x2y, expected, atol=2e-4)
    assert model.dim == target.shape[1]


def test_no_ridge_is_the_least_norm_solution():
    """No penalty with fewer pairs than columns equals the pseudo-inverse."""
    x, y = (np.asarray(side, np.float64) for side in paired(7, 12, 9))
    factors = cca.factorize(x, y)
    centred = x - x.mean(0), y - y.mean(0)
    found = ridge_map(factors.x, centred[1], 0.0)
    np.testing.assert_allclose(
        found, np.linalg.pinv(centred[0], rcond=1e-12) @ centred[1], atol=1e-8
    )


@pytest.mark.parametrize("relative", [False, True])
def test_cca_scores_plain_coordinates(relative):
    """The correlations do not weigh; the cosine of both sides' coordinates."""
    anchors = Anchors(*paired(40, 8, 6))
    x, y = paired(9, 8, 6, seed=1)
    found = cca.fit_cca(
        *anchors, ridge_x=0.1, ridge_y=0.1, relative=relative, floor=1e-3
    )
    expected = cosines(
        (x - found.mean_x) @ found.kernel_x, (y - found.mean_y) @ found.kernel_y
    )
    model = fit("cca", anchors, relative=relative, floor=1e-3)
    np.testing.assert_allclose(model.scores(x, y).x2y, expected, atol=1e-4)


def test_cca_defaults_are_sotaligns():
    """The first candidate is the README's: 0.1 on both, absolute, floor 1e-6."""
    method = METHODS["cca"]
    assert method.settings == CcaSettings(ridge=0.1, relative=False, floor=1e-6)
    for name in METHODS:
        if METHODS[name].grid:
            chosen = METHODS[name].candidates(METHODS[name].settings)
            assert chosen[0] == METHODS[name].settings
            assert len(set(chosen)) == len(chosen)


@pytest.mark.parametrize("name", ["ridge-x2y", "ridge-y2x", "cca"])
def test_sharing_the_factors_changes_nothing(name):
    """Candidates fitted together are those fitted alone, in order."""
    method = METHODS[name]
    anchors = Anchors(*paired(20, 8, 6))
    empty = Pools(anchors.x[:0], anchors.y[:0])
    candidates = method.candidates(method.settings)[:3]
    together = list(method.fit_candidates(anchors, empty, candidates, key=KEY))
    assert [m.info["settings"]["ridge"] for m in together] == [
        c.ridge for c in candidates
    ]
    for model, chosen in zip(together, candidates, strict=True):
        alone = method.fit(anchors, empty, settings=chosen, key=KEY)
        for side in ("x", "y"):
            np.testing.assert_array_equal(
                model.params[side]["kernel"], alone.params[side]["kernel"]
            )


@pytest.mark.parametrize("name", list(METHODS))
def test_finds_the_planted_pairs(name):
    """Held-out pairs of a linear world are found both ways; the model says its name."""
    anchors = Anchors(*paired(40, 8, 6))
    x, y = paired(30, 8, 6, seed=1)
    model = fit(name, anchors, **({"ridge": 0.01} if name != "procrustes" else {}))
    found = model.evaluate(x, y, np.stack([np.arange(30)] * 2, axis=1))
    assert min(found["x2y/recall@5"], found["y2x/recall@5"]) > 0.6
    assert model.info["method"] == name
    assert model.info["n_anchors"] == 40


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: RidgeMapSettings(ridge=-1.0), "ridge"),
        (lambda: CcaSettings(ridge=float("nan")), "ridge"),
        (lambda: CcaSettings(floor=-1e-6), "floor"),
    ],
)
def test_settings_are_checked(make, name):
    """Negative penalties and floors are refused."""
    with pytest.raises(InputError, match=f"{name} must be a finite number >= 0"):
        make()
