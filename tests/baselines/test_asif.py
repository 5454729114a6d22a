"""ASIF: the worked example through a model, both normalisations, and the settings."""

import dataclasses

import jax
import numpy as np
import pytest

import reference
from anchordot_jax import AlignedModel
from anchordot_jax.baselines.closed_form import asif
from anchordot_jax.baselines.closed_form.asif import AsifSettings
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.errors import InputError

KEY = jax.random.key(0)
ANCHORS = Anchors(
    np.eye(3, dtype=np.float32),
    np.array([[1, 0], [0, 1], [-1, 0]], np.float32),
)
POOLS = Pools(np.zeros((0, 3), np.float32), np.zeros((0, 2), np.float32))
X = np.array([[0.8, 0.6, 0], [0, 0.6, 0.8]], np.float32)
Y = np.array([[0.6, 0.8], [-0.8, 0.6]], np.float32)
METHODS = {method.name: method for method in asif.METHODS}


def scores(name, **changes):
    """Return the x -> y scores of the worked example."""
    method = METHODS[name]
    chosen = dataclasses.replace(method.settings, **changes)
    return method.fit(ANCHORS, POOLS, settings=chosen, key=KEY).scores(X, Y).x2y


@pytest.mark.parametrize(
    ("non_zeros", "exponent", "expected"),
    [
        (2, 1, [[0.96, 0.36], [0.48, 1.0]]),
        (2, 8, [[0.033425, 0.001673], [0.016713, 0.168611]]),
        (3, 8, [[0.033261, 0.119523], [0.033261, 0.119523]]),
        (3, 1, [[0.823193, -0.218643], [0, 0.780869]]),
    ],
)
def test_literal_hand_values(non_zeros, exponent, expected):
    """Signed top-k, power, only y to unit norm; at k = N a negative flips query 0."""
    found = scores("asif-literal", non_zeros=non_zeros, exponent=exponent)
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_both_sides_hand_values():
    """With both sides at unit norm the scores are cosines."""
    found = scores("asif", non_zeros=2, exponent=8)
    np.testing.assert_allclose(
        found, [[0.198239, 0.009923], [0.099119, 1.0]], atol=2e-6
    )


def test_clipping_undoes_the_sign_failure():
    """Without negatives, keeping all equals keeping the two non-negative ones."""
    clipped = scores("asif", non_zeros=3, exponent=8, clip=True)
    np.testing.assert_allclose(
        clipped, scores("asif", non_zeros=2, exponent=8), atol=1e-6
    )
    assert np.abs(clipped - scores("asif", non_zeros=3, exponent=8)).max() > 0.1


def test_power_one_of_all_anchors_is_the_cosine_of_profiles():
    """AnchorDOT's profiles at gamma = 0, not whitened, are the same description."""
    anchors = Anchors(reference.unit_rows(9, 5, 0), reference.unit_rows(9, 4, 1))
    x, y = reference.unit_rows(6, 5, 2), reference.unit_rows(7, 4, 3)
    model = asif.fit_asif(anchors, POOLS, settings=AsifSettings(exponent=1), key=KEY)
    expected = reference.profile_cosine(x, anchors.x, y, anchors.y, 0.0)
    np.testing.assert_allclose(model.scores(x, y).x2y, expected, atol=1e-5)
    np.testing.assert_allclose(model.scores(x, y).y2x, expected.T, atol=1e-5)


def test_order_of_the_anchors_does_not_matter():
    """Permuting the pairs leaves the scores; permuting one side does not."""
    anchors = Anchors(reference.unit_rows(9, 5, 0), reference.unit_rows(9, 4, 1))
    x, y = reference.unit_rows(6, 5, 2), reference.unit_rows(7, 4, 3)
    order = np.random.default_rng(0).permutation(9)
    chosen = AsifSettings(non_zeros=4, exponent=2)

    def fitted(a_x, a_y):
        model = asif.fit_asif(Anchors(a_x, a_y), POOLS, settings=chosen, key=KEY)
        return model.scores(x, y).x2y

    plain = fitted(*anchors)
    together = fitted(anchors.x[order], anchors.y[order])
    np.testing.assert_allclose(together, plain, atol=1e-6)
    assert np.abs(fitted(anchors.x[order], anchors.y) - plain).max() > 0.05


def test_models_record_what_they_are(tmp_path):
    """Defaults of 800 meet fewer anchors; a saved model scores as before."""
    for name, normalize_x in (("asif", True), ("asif-literal", False)):
        method = METHODS[name]
        model = method.fit(ANCHORS, POOLS, settings=method.settings, key=KEY)
        assert model.info["method"] == name
        shared = {"non_zeros": 3, "exponent": 8, "clip": False}
        assert model.info["map"]["x"] == {**shared, "normalize": normalize_x}
        assert model.info["map"]["y"] == {**shared, "normalize": True}
        model.save(tmp_path / name)
        loaded = AlignedModel.load(tmp_path / name)
        np.testing.assert_array_equal(loaded.scores(X, Y).x2y, model.scores(X, Y).x2y)


def test_only_asif_is_tuned():
    """The literal method keeps the authors' settings; the other tries them first."""
    assert METHODS["asif-literal"].grid == {}
    candidates = METHODS["asif"].candidates(AsifSettings())
    assert candidates[0] == AsifSettings(non_zeros=800, exponent=8, clip=False)
    assert len(candidates) == 12


@pytest.mark.parametrize("name", ["non_zeros", "exponent"])
@pytest.mark.parametrize("value", [0, 1.5])
def test_settings_are_counts(name, value):
    """Zero or fractional sparsity and powers are refused."""
    with pytest.raises(InputError, match=f"{name} must be a whole number >= 1"):
        AsifSettings(**{name: value})
