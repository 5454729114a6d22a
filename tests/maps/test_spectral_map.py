"""The spectral maps: against float64, their pieces, and damaged arrays."""

import copy
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anchordot_jax import maps
from anchordot_jax.maps import spectral

DX, DY, K, C = 5, 4, 3, 2


def dense(rng, widths):
    return {
        str(i): {
            "kernel": rng.normal(size=(a, b)).astype(np.float32),
            "bias": rng.normal(size=b).astype(np.float32),
        }
        for i, (a, b) in enumerate(itertools.pairwise(widths))
    }


def spectral_params(seed=0):
    rng = np.random.default_rng(seed)

    def side(d):
        return {
            "layers": dense(rng, (d, 6, 7, K)),
            "orthonormal": rng.normal(size=(K, K)).astype(np.float32),
            "rotation": rng.normal(size=(K, K)).astype(np.float32),
            "projection": rng.normal(size=(K, C)).astype(np.float32),
            "shift": rng.normal(size=C).astype(np.float32),
        }

    params = {"x": side(DX), "y": side(DY)}
    params["x"]["residual"] = dense(rng, (C, 4, C))
    return params


def nystrom_params(seed=0, m=9):
    rng = np.random.default_rng(seed)
    return {
        name: {
            "points": unit(rng.normal(size=(m, d))).astype(np.float32),
            "vectors": rng.normal(size=(m, K)).astype(np.float32),
            "bandwidth": np.float32(0.7) * np.ones((), np.float32),
            "projection": rng.normal(size=(K, C)).astype(np.float32),
            "shift": rng.normal(size=C).astype(np.float32),
        }
        for name, d in (("x", DX), ("y", DY))
    }


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def some_rows(d, n=11):
    return np.random.default_rng(5).normal(size=(n, d)).astype(np.float32)


def net(layers, rows, slope):
    for i in range(len(layers)):
        rows = rows @ layers[str(i)]["kernel"].astype(np.float64)
        rows = rows + layers[str(i)]["bias"]
        if i + 1 < len(layers):
            rows = np.where(rows > 0, rows, slope * rows)
    return rows


@pytest.mark.parametrize("side", ["x", "y"])
def test_spectral_equals_float64(side):
    """Net, three matrices, shift, residual on x alone, unit norm."""
    params = spectral_params()
    own, rows = params[side], some_rows(DX if side == "x" else DY)
    z = np.tanh(net(own["layers"], unit(rows.astype(np.float64)), 0.01))
    z = z @ own["orthonormal"] @ own["rotation"] @ own["projection"] + own["shift"]
    if side == "x":
        z = z + net(own["residual"], z, 0)
    kind = maps.KINDS["spectral"]
    found = jax.jit(kind.embed, static_argnums=2)(params, rows, side, {})
    np.testing.assert_allclose(found, unit(z), atol=2e-4)
    assert kind.dims(params, side) == (rows.shape[1], C)


@pytest.mark.parametrize("neighbours", [1, 4, 9, 50])
def test_nystrom_equals_float64(neighbours):
    """A kernel mean over the nearest points; too many neighbours are all of them."""
    params = nystrom_params()
    own, rows = params["y"], unit(some_rows(DY).astype(np.float64))
    distances = np.linalg.norm(rows[:, None] - own["points"][None, :], axis=2)
    weights = np.exp(-((distances / 0.7) ** 2))
    cut = np.sort(distances, axis=1)[:, min(neighbours, 9) - 1]
    weights[distances > cut[:, None]] = 0
    z = weights / weights.sum(axis=1, keepdims=True) @ own["vectors"]
    z = z @ own["projection"] + own["shift"]
    kind = maps.KINDS["nystrom"]
    embed = jax.jit(lambda p, r: kind.embed(p, r, "y", {"neighbours": neighbours}))
    np.testing.assert_allclose(embed(params, some_rows(DY)), unit(z), atol=1e-4)
    assert kind.dims(params, "y") == (DY, C)


def test_nystrom_extends_the_eigenvectors():
    """On the complete graph's own points it returns the walk's vectors exactly."""
    rng = np.random.default_rng(0)
    points = unit(rng.normal(size=(15, 3)))
    squares = np.sum((points[:, None] - points[None, :]) ** 2, axis=2)
    kernel = np.exp(-squares)
    walk = kernel / kernel.sum(axis=1, keepdims=True)
    values, vectors = np.linalg.eig(walk)
    kept = np.argsort(-values.real)[:4]
    psi, mu = vectors[:, kept].real, values[kept].real
    found = spectral.nystrom(points, points, psi / mu, np.float32(1), 15)
    np.testing.assert_allclose(found, psi, atol=1e-4)


def test_nystrom_takes_more_rows_than_a_block(monkeypatch):
    """Blocks of rows give what each row gives alone, the last block being partial."""
    own = nystrom_params()["x"]
    rows = unit(some_rows(DX, 10)).astype(np.float32)
    arrays = own["points"], own["vectors"], own["bandwidth"]
    whole = spectral.nystrom(rows, *arrays, 4)
    monkeypatch.setattr(spectral, "BLOCK_ROWS", 4)
    np.testing.assert_allclose(spectral.nystrom(rows, *arrays, 4), whole, atol=1e-6)
    alone = spectral.nystrom(rows[3:4], *arrays, 4)
    np.testing.assert_allclose(alone, whole[3:4], atol=1e-6)


def test_far_rows_do_not_underflow():
    """Where every weight underflows, the nearest point still counts most."""
    points = np.eye(3, dtype=np.float32)
    row = np.array([[0.1, 0.0, 0.99]], np.float32)
    found = spectral.nystrom(row, points, np.eye(3), np.float32(0.01), 3)
    np.testing.assert_allclose(found, [[0, 0, 1]], atol=1e-6)


def test_a_zero_last_layer_is_the_identity():
    """The residual net is x where the last layer is zero, and not otherwise."""
    layers = dense(np.random.default_rng(0), (C, 4, C))
    rows = jnp.asarray(some_rows(C))
    assert not np.allclose(spectral.residual_net(layers, rows), rows)
    layers["1"] = jax.tree.map(np.zeros_like, layers["1"])
    np.testing.assert_array_equal(spectral.residual_net(layers, rows), rows)


SPECTRAL_DAMAGE = {
    "x.layers": ("x", "layers", {}),
    "y.orthonormal": ("y", "orthonormal", np.zeros((K, K + 1))),
    "x.rotation": ("x", "rotation", None),
    "y.projection": ("y", "projection", np.zeros(K)),
    "x.shift": ("x", "shift", np.zeros(C + 1)),
    "x.residual.0.kernel": ("x", "residual", dense(np.random.default_rng(0), (3, 2))),
    "x.residual": ("x", "residual", dense(np.random.default_rng(0), (2, 3))),
}


@pytest.mark.parametrize("name", SPECTRAL_DAMAGE)
def test_spectral_check_names_the_array(name):
    """Whole params pass; each damage is named."""
    params = spectral_params()
    maps.KINDS["spectral"].check(params)
    side, array, value = SPECTRAL_DAMAGE[name]
    params[side][array] = value
    with pytest.raises(ValueError, match=f"^{name}$"):
        maps.KINDS["spectral"].check(params)


def test_spectral_check_follows_the_layers():
    """Layers that do not chain, a bias of another length, and a lost side are found."""
    params = spectral_params()
    broken = copy.deepcopy(params)
    broken["y"]["layers"]["1"]["kernel"] = np.zeros((5, 7))
    with pytest.raises(ValueError, match=r"^y.layers.1.kernel$"):
        maps.KINDS["spectral"].check(broken)
    broken = copy.deepcopy(params)
    broken["y"]["layers"]["2"]["bias"] = np.zeros(1)
    with pytest.raises(ValueError, match=r"^y.layers.2.bias$"):
        maps.KINDS["spectral"].check(broken)
    with pytest.raises(ValueError, match=r"^y.layers$"):
        maps.KINDS["spectral"].check({"x": params["x"]})
    params["y"] |= {"projection": np.zeros((K, C + 1)), "shift": np.zeros(C + 1)}
    with pytest.raises(ValueError, match=r"^y.projection$"):
        maps.KINDS["spectral"].check(params)


@pytest.mark.parametrize(
    ("side", "array", "value"),
    [
        ("x", "points", np.zeros(3)),
        ("y", "vectors", np.zeros((8, K))),
        ("x", "bandwidth", np.zeros(1)),
        ("x", "projection", np.zeros((K + 1, C))),
        ("y", "shift", np.zeros(C + 1)),
    ],
)
def test_nystrom_check_names_the_array(side, array, value):
    """Whole params pass; each damage is named."""
    params = nystrom_params()
    maps.KINDS["nystrom"].check(params)
    params[side][array] = value
    with pytest.raises(ValueError, match=f"^{side}.{array}$"):
        maps.KINDS["nystrom"].check(params)


def test_nystrom_sides_share_a_space():
    """Projections of different widths are found."""
    params = nystrom_params()
    params["y"] |= {"projection": np.zeros((K, C + 1)), "shift": np.zeros(C + 1)}
    with pytest.raises(ValueError, match=r"^y.projection$"):
        maps.KINDS["nystrom"].check(params)
