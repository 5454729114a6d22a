"""Ridge CCA: its formula, what it gains over its relatives, and its settings."""

import dataclasses

import jax
import numpy as np
import pytest

import reference
from anchordot_jax import AlignedModel
from anchordot_jax.baselines.closed_form import ridge_cca
from anchordot_jax.baselines.closed_form.cca import fit_cca
from anchordot_jax.baselines.closed_form.linear import CcaSettings, fit_linear_cca
from anchordot_jax.baselines.closed_form.ridge_cca import (
    RidgeCcaSettings,
    fit_ridge_cca,
)
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.errors import InputError

KEY = jax.random.key(0)
(METHOD,) = ridge_cca.METHODS


def paired(n, dx, dy, seed, latent=8, noise=1.0):
    """Return unit rows of both sides that share some latent factors."""
    maps = np.random.default_rng(99)
    to_x, to_y = maps.normal(size=(latent, dx)), maps.normal(size=(latent, dy))
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, latent))
    x = z @ to_x + noise * rng.normal(size=(n, dx))
    y = z @ to_y + noise * rng.normal(size=(n, dy))
    return (reference.unit(side).astype(np.float32) for side in (x, y))


def no_pools(anchors):
    return Pools(anchors.x[:0], anchors.y[:0])


@pytest.mark.parametrize("shape", [(40, 8, 6), (9, 12, 10)])
@pytest.mark.parametrize(("ridge", "balance"), [(0.1, 1.0), (4.0, 2.0)])
def test_scores_by_the_formula(shape, ridge, balance):
    """Both sides' coordinates times the correlations, then the cosine."""
    n, dx, dy = shape
    anchors = Anchors(*paired(n, dx, dy, 0))
    x, y = paired(7, dx, dy, 1)
    found = fit_cca(
        *anchors, ridge_x=ridge * balance, ridge_y=ridge / balance, relative=True
    )
    u = (x - found.mean_x) @ found.kernel_x * found.correlations
    v = (y - found.mean_y) @ found.kernel_y * found.correlations
    settings = RidgeCcaSettings(ridge=ridge, balance=balance)
    model = fit_ridge_cca(anchors, no_pools(anchors), settings=settings, key=KEY)
    expected = reference.unit(u) @ reference.unit(v).T
    np.testing.assert_allclose(model.scores(x, y).x2y, expected, atol=1e-5)
    assert model.info["settings"] == {"ridge": ridge, "balance": balance}
    assert model.info["method"] == "ridge-cca"


def test_weighting_beats_plain_coordinates():
    """At N < dx + dy noise coordinates drown a plain cosine."""
    anchors = Anchors(*paired(60, 40, 36, 0))
    x, y = paired(200, 40, 36, 1)
    pairs = np.stack([np.arange(200)] * 2, axis=1)
    weighted = fit_ridge_cca(
        anchors, no_pools(anchors), settings=RidgeCcaSettings(ridge=1.0), key=KEY
    ).evaluate(x, y, pairs)
    plain = fit_linear_cca(
        anchors,
        no_pools(anchors),
        settings=CcaSettings(ridge=1.0, relative=True),
        key=KEY,
    ).evaluate(x, y, pairs)
    for direction in ("x2y", "y2x"):
        name = f"{direction}/recall@1"
        assert weighted[name] > plain[name] + 0.1


def test_candidates_share_one_factorisation(monkeypatch):
    """All candidates, in order, from one factorisation; each as if fitted alone."""
    calls = []
    original = ridge_cca.cca.factorize

    def spy(x, y):
        calls.append(len(x))
        return original(x, y)

    monkeypatch.setattr(ridge_cca.cca, "factorize", spy)
    anchors = Anchors(*paired(20, 8, 6, 0))
    candidates = METHOD.candidates(METHOD.settings)
    pools = no_pools(anchors)
    models = list(METHOD.fit_candidates(anchors, pools, candidates, key=KEY))
    assert calls == [20]
    for model, chosen in zip(models, candidates, strict=True):
        assert model.info["settings"] == dataclasses.asdict(chosen)
        alone = METHOD.fit(anchors, pools, settings=chosen, key=KEY)
        for side in ("x", "y"):
            np.testing.assert_array_equal(
                model.params[side]["kernel"], alone.params[side]["kernel"]
            )


def test_grid_is_wide_and_starts_with_the_default():
    """Ridges from 0.03 to 64 mean eigenvalues, each once."""
    candidates = METHOD.candidates(METHOD.settings)
    ridges = {chosen.ridge for chosen in candidates}
    assert candidates[0] == METHOD.settings
    assert (min(ridges), max(ridges)) == (0.03, 64.0)
    assert {chosen.balance for chosen in candidates} == {0.5, 1.0, 2.0}
    assert len(set(candidates)) == len(candidates) == 12 * 3


def test_a_saved_model_scores_as_before(tmp_path):
    """The model folder holds everything."""
    anchors = Anchors(*paired(20, 8, 6, 0))
    x, y = paired(7, 8, 6, 1)
    model = fit_ridge_cca(
        anchors, no_pools(anchors), settings=RidgeCcaSettings(), key=KEY
    )
    model.save(tmp_path / "model")
    loaded = AlignedModel.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.scores(x, y).x2y, model.scores(x, y).x2y)


@pytest.mark.parametrize("ridge", [-1.0, float("inf")])
def test_ridge_is_checked(ridge):
    """Negative and infinite ridges are refused."""
    with pytest.raises(InputError, match="ridge must be a finite number >= 0"):
        RidgeCcaSettings(ridge=ridge)
    with pytest.raises(InputError, match="balance must be a number > 0"):
        RidgeCcaSettings(balance=ridge)
