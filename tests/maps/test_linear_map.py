"""Linear maps: the formula, model folders, and arrays that are not such maps."""

import jax.numpy as jnp
import numpy as np
import pytest

import reference
from anchordot_jax import AlignedModel
from anchordot_jax.maps import KINDS
from anchordot_jax.maps.linear import check, dims, embed, linear_side


def sides(dx=5, dy=4, k=3):
    rng = np.random.default_rng(0)
    return {
        "x": linear_side(
            rng.normal(size=(dx, k)), mean=rng.normal(size=dx), weights=np.arange(k)
        ),
        "y": linear_side(rng.normal(size=(dy, k))),
    }


def test_embeds_by_the_formula():
    """Unit norm, minus the mean, projected, unit norm, weighted."""
    params = sides()
    rows = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
    own = {name: array.astype(np.float64) for name, array in params["x"].items()}
    projected = (reference.unit(rows) - own["mean"]) @ own["kernel"]
    found = embed(params, jnp.asarray(rows), "x", {})
    np.testing.assert_allclose(
        found, reference.unit(projected) * own["weights"], atol=1e-5
    )
    plain = embed(params, jnp.asarray(rows[:, :4]), "y", {})
    np.testing.assert_allclose(np.linalg.norm(plain, axis=1), np.ones(7), rtol=1e-5)


def test_length_of_a_row_does_not_matter():
    """Rows are scaled to unit norm before the mean is subtracted."""
    params = sides()
    rows = jnp.asarray(np.random.default_rng(1).normal(size=(7, 5)), jnp.float32)
    np.testing.assert_allclose(
        embed(params, 100 * rows, "x", {}), embed(params, rows, "x", {}), atol=1e-5
    )


def test_rows_at_the_mean_stay_zero():
    """No direction, no NaN."""
    mean = np.array([0.6, 0.8])
    params = {"x": linear_side(np.eye(2), mean=mean), "y": linear_side(np.eye(2))}
    found = np.asarray(embed(params, jnp.asarray([[0.6, 0.8]]), "x", {}))
    assert np.isfinite(found).all()
    padding = np.asarray(embed(params, jnp.zeros((2, 2)), "y", {}))
    np.testing.assert_array_equal(padding, np.zeros((2, 2)))


def test_model_folder_keeps_the_maps(tmp_path):
    """A saved model embeds as before and knows its dimensions."""
    info = {"method": "some", "map": {"kind": "linear"}}
    model = AlignedModel(params=sides(), info=info)
    assert (model.dim_x, model.dim_y, model.dim) == (5, 4, 3)
    model.save(tmp_path / "model")
    loaded = AlignedModel.load(tmp_path / "model")
    rows = reference.unit_rows(6, 5, 0)
    np.testing.assert_array_equal(loaded.embed_x(rows), model.embed_x(rows))
    assert loaded.kind == "linear"
    assert KINDS["linear"].dims is dims


def test_arrays_are_float32():
    """Maps computed in float64 are stored in single precision."""
    assert {array.dtype for array in sides()["x"].values()} == {np.dtype(np.float32)}
    check(sides())


@pytest.mark.parametrize(
    ("side", "name", "array"),
    [
        ("x", "kernel", np.ones(5)),
        ("y", "mean", np.ones(3)),
        ("x", "weights", np.ones(5)),
        ("y", "weights", None),
        ("y", "kernel", np.ones((4, 2))),
    ],
)
def test_names_the_array_that_is_wrong(side, name, array):
    """Missing, or of a shape that does not fit."""
    params = sides()
    if array is None:
        del params[side][name]
    else:
        params[side][name] = array
    if name == "kernel" and array.ndim == 2:
        params[side]["weights"] = np.ones(2)
    with pytest.raises(ValueError, match=f"^{side}.{name}$"):
        check(params)


def test_a_side_is_missing():
    """The first of its arrays is named."""
    with pytest.raises(ValueError, match=r"^y\.kernel$"):
        check({"x": sides()["x"]})
    with pytest.raises(ValueError, match=r"^x\.kernel$"):
        check({"x": np.ones(3), "y": sides()["y"]})
