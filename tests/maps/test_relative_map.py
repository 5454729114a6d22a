"""Relative maps: a NumPy reference, invariances, extreme powers, and bad arrays."""

import functools

import jax
import numpy as np
import pytest

import reference
from anchordot_jax import AlignedModel
from anchordot_jax.maps.relative import check, dims, embed

ANCHORS = {
    "x": {"anchors": reference.unit_rows(9, 5, 0)},
    "y": {"anchors": reference.unit_rows(9, 4, 1)},
}


def options(**changes):
    usual = {"non_zeros": 4, "exponent": 2, "clip": False, "normalize": True}
    return {**usual, **changes}


@functools.partial(jax.jit, static_argnames="settings")
def compiled(params, rows, settings):
    return embed(params, rows, "x", dict(settings))


def run(params, rows, settings):
    """Return the x side's representation of some rows."""
    rows = np.asarray(rows, np.float32)
    return np.asarray(compiled(params, rows, tuple(settings.items())))


def by_hand(rows, anchors, non_zeros, exponent, clip, normalize):
    """Return the representation in float64, one row at a time."""
    out = np.zeros((len(rows), len(anchors)))
    for row, similarities in zip(out, reference.unit(rows) @ anchors.T, strict=True):
        largest = np.argsort(-similarities, kind="stable")[:non_zeros]
        kept = similarities[largest]
        row[largest] = (np.maximum(kept, 0) if clip else kept) ** exponent
    return reference.unit(out) if normalize else out


@pytest.mark.parametrize(
    "changes",
    [
        {"non_zeros": 1, "exponent": 3, "normalize": False},
        {"exponent": 3},
        {"exponent": 8, "clip": True},
        {"non_zeros": 9, "exponent": 8, "normalize": False},
        {"non_zeros": 800, "clip": True},
    ],
)
def test_is_the_reference(changes):
    """All settings, with more non-zeros asked for than anchors among them."""
    rows = reference.unit_rows(40, 5, 2)
    anchors = ANCHORS["x"]["anchors"].astype(np.float64)
    chosen = options(**changes)
    expected = by_hand(rows, anchors, **chosen)
    np.testing.assert_allclose(
        run(ANCHORS, rows, chosen), expected, rtol=1e-4, atol=1e-5
    )


def test_negative_similarities_keep_their_sign_in_the_top_k():
    """The largest values are kept, not the largest magnitudes."""
    params = {"x": {"anchors": np.array([[1, 0], [-1, 0], [0, 1]], np.float32)}}
    found = run(params, [[0.8, 0.6]], options(non_zeros=2, normalize=False))
    np.testing.assert_allclose(found, [[0.64, 0, 0.36]], atol=1e-6)


def test_a_rotation_of_rows_and_anchors_does_not_matter():
    """Only angles to the anchors count; lengths of rows do not."""
    turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))
    rows = reference.unit_rows(6, 5, 3)
    turned = {"x": {"anchors": (ANCHORS["x"]["anchors"] @ turn).astype(np.float32)}}
    found = run(turned, 7 * rows @ turn, options())
    expected = run(ANCHORS, rows, options())
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_high_powers_of_small_similarities_do_not_vanish():
    """0.02^32 is below float32; scaled to unit norm the row still has a direction."""
    params = {"x": {"anchors": np.eye(3, dtype=np.float32)[:2]}}
    found = run(params, [[0.02, 0.01, 1.0]], options(non_zeros=2, exponent=32))
    np.testing.assert_allclose(found, [[1.0, 0.0]], atol=1e-6)


def test_rows_of_zeros_stay_zero():
    """The padding of a batch gives no NaN."""
    found = run(ANCHORS, np.zeros((6, 5)), options())
    np.testing.assert_array_equal(found, np.zeros((6, 9)))


def test_model_folder_keeps_the_maps(tmp_path):
    """A saved model embeds as before, each side with its own settings."""
    kinds = {"kind": "relative", "x": options(), "y": options(normalize=False)}
    model = AlignedModel(params=ANCHORS, info={"method": "some", "map": kinds})
    assert (model.dim_x, model.dim_y, model.dim) == (5, 4, 9)
    assert dims(ANCHORS, "y") == (4, 9)
    model.save(tmp_path / "model")
    loaded = AlignedModel.load(tmp_path / "model")
    rows = reference.unit_rows(6, 4, 0)
    np.testing.assert_array_equal(loaded.embed_y(rows), model.embed_y(rows))
    unnormalised = by_hand(rows, ANCHORS["y"]["anchors"], 4, 2, False, False)
    np.testing.assert_allclose(loaded.embed_y(rows), unnormalised, atol=1e-5)


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"x": ANCHORS["x"]}, "y.anchors"),
        ({"x": {}, "y": ANCHORS["y"]}, "x.anchors"),
        ({"x": {"anchors": np.ones(3)}, "y": ANCHORS["y"]}, "x.anchors"),
        ({"x": np.ones((3, 2)), "y": ANCHORS["y"]}, "x.anchors"),
        ({"x": ANCHORS["x"], "y": {"anchors": np.ones((8, 4))}}, "y.anchors"),
    ],
)
def test_names_the_array_that_is_wrong(params, name):
    """Missing, not a matrix, or not paired."""
    with pytest.raises(ValueError, match=f"^{name}$"):
        check(params)


def test_paired_anchors_are_accepted():
    """The check returns nothing."""
    assert check(ANCHORS) is None
