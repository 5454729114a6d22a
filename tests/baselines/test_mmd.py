"""MMD and the residual network that lowers it."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from anchordot_jax.baselines.sue.mmd import squared_mmd, train_residual_net
from anchordot_jax.baselines.sue.settings import SueSettings
from anchordot_jax.errors import InputError
from anchordot_jax.maps.spectral import residual_net

SETTINGS = SueSettings(residual_hidden=(16,), residual_epochs=40)


def reference(x, y):
    """Return the biased squared MMD in float64."""
    joint = np.concatenate([x, y]).astype(np.float64)
    squares = cdist(joint, joint, "sqeuclidean")
    width = squares.sum() / (len(joint) * (len(joint) - 1))
    kernel = sum(np.exp(-squares / (width * scale)) for scale in (0.5, 1, 2))
    n = len(x)
    return kernel[:n, :n].mean() - 2 * kernel[:n, n:].mean() + kernel[n:, n:].mean()


def clouds(n=200, m=260, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)).astype(np.float32)
    y = (rng.normal(size=(m, 3)) + np.array([2, 0, 0])).astype(np.float32)
    return x, y


def test_hand_values():
    """{0, 1} against {2, 4}: c = 35/6 and 2.477953."""
    x, y = np.array([[0.0], [1.0]]), np.array([[2.0], [4.0]])
    joint = np.concatenate([x, y])
    assert cdist(joint, joint, "sqeuclidean").sum() / 12 == pytest.approx(35 / 6)
    assert reference(x, y) == pytest.approx(2.477953, abs=1e-6)
    assert float(squared_mmd(x, y)) == pytest.approx(2.477953, abs=1e-5)


def test_equal_sets_have_none():
    """The order of the points does not matter, and equal points give 0."""
    x, _ = clouds()
    assert float(squared_mmd(x, x[::-1])) == pytest.approx(0, abs=1e-5)
    same = np.ones((4, 2), np.float32)
    assert float(squared_mmd(same, same)) == pytest.approx(0, abs=1e-6)


def test_it_equals_float64():
    """Unequal sizes too, and either order of the arguments."""
    x, y = clouds()
    assert float(squared_mmd(x, y)) == pytest.approx(reference(x, y), rel=1e-4)
    assert float(squared_mmd(y, x)) == pytest.approx(reference(x, y), rel=1e-4)


def test_no_gradient_passes_through_the_width():
    """The gradient is that of a kernel of constant width."""
    x, y = clouds(6, 5)
    joint = np.concatenate([x, y]).astype(np.float64)
    squares = cdist(joint, joint, "sqeuclidean")
    width = squares.sum() / (11 * 10)

    def fixed(x):
        def mean(a, b):
            d = cdist(a, b, "sqeuclidean")
            return sum(np.exp(-d / (width * s)) for s in (0.5, 1, 2)).mean()

        return mean(x, x) - 2 * mean(x, y) + mean(y, y)

    found = np.asarray(jax.grad(squared_mmd)(x, y))
    nudge = np.zeros((6, 3))
    nudge[2, 1] = 1e-5
    expected = (fixed(x + nudge) - fixed(x - nudge)) / 2e-5
    assert found[2, 1] == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_the_net_lowers_it():
    """A cloud two units away is moved onto the other; the key fixes how."""
    x, y = clouds()
    net = train_residual_net(x, y, settings=SETTINGS, key=jax.random.key(0))
    before, after = reference(x, y), reference(residual_net(net.layers, x), y)
    assert after < 0.1 * before
    again = train_residual_net(x, y, settings=SETTINGS, key=jax.random.key(0))
    np.testing.assert_array_equal(
        again.layers["0"]["kernel"], net.layers["0"]["kernel"]
    )
    other = train_residual_net(x, y, settings=SETTINGS, key=jax.random.key(1))
    assert not np.array_equal(other.layers["0"]["bias"], net.layers["0"]["bias"])


def test_the_best_epoch_is_kept():
    """Longer training never returns a worse validation loss."""
    x, y = clouds(seed=3)
    losses = [
        train_residual_net(
            x,
            y,
            settings=dataclasses.replace(SETTINGS, residual_epochs=epochs),
            key=jax.random.key(0),
        ).loss
        for epochs in (1, 10, 40)
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[2] < losses[0]


def test_refusals():
    """Too few points to validate with, and a loss that is never finite, are refused."""
    x, y = clouds(12, 200)
    with pytest.raises(InputError, match="12 and 200 items leave fewer than 2"):
        train_residual_net(x, y, settings=SETTINGS, key=jax.random.key(0))
    x, y = clouds()
    wild = dataclasses.replace(SETTINGS, residual_learning_rate=1e30, residual_epochs=2)
    with pytest.raises(InputError, match="loss was never finite"):
        train_residual_net(x, y, settings=wild, key=jax.random.key(0))
