"""CSA: the authors' scaling, their degeneracy, and the regularised variant."""

import dataclasses

import jax
import numpy as np
import pytest

import reference
from anchordot_jax import AlignedModel
from anchordot_jax.baselines.closed_form import cca, csa
from anchordot_jax.baselines.closed_form.csa import CsaRidgeSettings, CsaSettings
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.errors import InputError
from anchordot_jax.maps.linear import linear_side

KEY = jax.random.key(0)
T = np.arange(8.0)
TOY_X = np.stack([np.cos(T), np.sin(2 * T), T / 4], axis=1)
TOY_Y = np.stack([np.sin(T + 0.3), np.cos(2 * T)], axis=1)
METHODS = {method.name: method for method in csa.METHODS}


def paired(n, dx, dy, seed=0, latent=4, noise=0.3):
    """Return unit rows of both sides that share some latent factors."""
    maps = np.random.default_rng(99)
    to_x, to_y = maps.normal(size=(latent, dx)), maps.normal(size=(latent, dy))
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, latent))
    x = z @ to_x + noise * rng.normal(size=(n, dx))
    y = z @ to_y + noise * rng.normal(size=(n, dy))
    return (reference.unit(side).astype(np.float32) for side in (x, y))


def fit(name, anchors, **changes):
    method = METHODS[name]
    empty = Pools(anchors.x[:0], anchors.y[:0])
    chosen = dataclasses.replace(method.settings, **changes)
    return method.fit(anchors, empty, settings=chosen, key=KEY)


def test_weights_and_variances_are_the_authors():
    """cca-zoo 2.6 gives these weights, u a variance of 1 and v of (N / (N - 1))^2."""
    found = csa.unregularised_cca(cca.factorize(TOY_X, TOY_Y))
    np.testing.assert_allclose(found.correlations, [0.599460, 0.147787], atol=1e-6)
    u = (TOY_X - found.mean_x) @ found.kernel_x
    v = (TOY_Y - found.mean_y) @ found.kernel_y
    np.testing.assert_allclose((u**2).mean(0), np.ones(2), atol=1e-9)
    np.testing.assert_allclose((v**2).mean(0), np.full(2, (8 / 7) ** 2), atol=1e-9)
    np.testing.assert_allclose((u * v).mean(0), found.correlations, atol=1e-9)


def test_similarity_hand_value():
    """With rho = (.9, .5): S((3, 4), (4, 3)) = .672, S((3, 4), (3, 4)) = .644."""
    params = {
        "x": linear_side(np.eye(2), weights=np.array([0.9, 0.5])),
        "y": linear_side(np.eye(2)),
    }
    model = AlignedModel(params=params, info={"map": {"kind": "linear"}})
    found = model.scores([[3.0, 4.0]], [[4.0, 3.0], [3.0, 4.0]]).x2y
    np.testing.assert_allclose(found, [[0.672, 0.644]], atol=1e-6)


def similarity(found, x, y, kept):
    """Return CSA's similarity in float64, from the formula."""
    u = ((x - found.mean_x) @ found.kernel_x)[:, :kept]
    v = ((y - found.mean_y) @ found.kernel_y)[:, :kept]
    return reference.unit(u) * found.correlations[:kept] @ reference.unit(v).T


@pytest.mark.parametrize("kept", [2, 5])
def test_fits_score_by_the_formula(kept):
    """Both methods: truncate, scale to unit norm, then weigh once."""
    anchors = Anchors(*paired(60, 8, 6))
    x, y = paired(9, 8, 6, seed=1)
    literal = fit("csa", anchors, kept=kept)
    found = csa.unregularised_cca(cca.factorize(*anchors))
    np.testing.assert_allclose(
        literal.scores(x, y).x2y, similarity(found, x, y, kept), atol=1e-4
    )
    ridge = fit("csa-ridge", anchors, kept=kept, ridge=0.5)
    found = cca.fit_cca(*anchors, ridge_x=0.5, ridge_y=0.5, relative=True)
    scores = ridge.scores(x, y)
    np.testing.assert_allclose(scores.x2y, similarity(found, x, y, kept), atol=1e-5)
    np.testing.assert_array_equal(scores.y2x, scores.x2y.T)


def test_weights_are_on_one_side():
    """The correlations enter a score once."""
    params = fit("csa-ridge", Anchors(*paired(60, 8, 6)), ridge=1.0).params
    assert params["x"]["weights"].max() < 1
    assert np.all(np.diff(params["x"]["weights"]) < 0)
    np.testing.assert_array_equal(params["y"]["weights"], np.ones(6))


def test_the_authors_setting_is_degenerate_at_500_anchors():
    """500 pairs of 384 + 384 unrelated columns: 269 correlations equal 1."""
    x, y = reference.unit_rows(500, 384, 0), reference.unit_rows(500, 384, 1)
    found = csa.unregularised_cca(cca.factorize(x, y))
    correlations = found.correlations * 499 / 500
    assert np.count_nonzero(correlations > 1 - 1e-9) == 269
    assert correlations[269] < 0.9999


def test_fewer_anchors_than_columns_give_no_nan():
    """N <= d: N - 1 coordinates at most, all finite."""
    anchors = Anchors(*paired(10, 30, 12))
    model = fit("csa", anchors)
    assert model.dim == 9
    x, y = paired(5, 30, 12, seed=1)
    assert np.isfinite(model.scores(x, y).x2y).all()


def test_no_more_coordinates_than_fitted():
    """Of the fitted ones some are kept, as in the authors' code."""
    anchors = Anchors(*paired(60, 8, 6))
    assert fit("csa", anchors, fitted=3, kept=5).dim == 3
    assert fit("csa", anchors, fitted=5, kept=3).dim == 3
    assert fit("csa-ridge", anchors, kept=4).dim == 4


def test_sharing_the_factors_changes_nothing():
    """Candidates fitted together are those fitted alone, in order."""
    anchors = Anchors(*paired(20, 8, 6))
    empty = Pools(anchors.x[:0], anchors.y[:0])
    for name, candidates in (
        ("csa", [CsaSettings(kept=3), CsaSettings(kept=1)]),
        ("csa-ridge", [CsaRidgeSettings(ridge=r) for r in (1.0, 0.1)]),
    ):
        method = METHODS[name]
        together = list(method.fit_candidates(anchors, empty, candidates, key=KEY))
        assert len(together) == len(candidates)
        for model, chosen in zip(together, candidates, strict=True):
            alone = method.fit(anchors, empty, settings=chosen, key=KEY)
            for side in ("x", "y"):
                for part in ("kernel", "mean", "weights"):
                    np.testing.assert_array_equal(
                        model.params[side][part], alone.params[side][part]
                    )
            assert model.info == alone.info
            assert model.info["method"] == name


def test_a_ridge_mends_the_degeneracy():
    """At N < dx + dy the literal CSA overfits what the ridge still finds."""
    anchors = Anchors(*paired(50, 40, 36, latent=6))
    x, y = paired(60, 40, 36, seed=1, latent=6)
    pairs = np.stack([np.arange(60)] * 2, axis=1)
    literal = fit("csa", anchors, kept=30).evaluate(x, y, pairs)
    ridge = fit("csa-ridge", anchors, kept=30, ridge=0.5).evaluate(x, y, pairs)
    for direction in ("x2y", "y2x"):
        assert ridge[f"{direction}/recall@1"] > 0.6
        assert literal[f"{direction}/recall@1"] < 0.3


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: CsaSettings(fitted=0), "fitted must be a whole number >= 1"),
        (lambda: CsaSettings(kept=1.5), "kept must be a whole number >= 1"),
        (lambda: CsaRidgeSettings(kept=0), "kept must be a whole number >= 1"),
        (lambda: CsaRidgeSettings(ridge=-1), "ridge must be a finite number >= 0"),
    ],
)
def test_settings_are_checked(make, match):
    """Counts below 1 and negative ridges are refused."""
    with pytest.raises(InputError, match=match):
        make()
