"""SpectralNet: its loss, its orthonormalisation, its schedule, and what it learns."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from anchordot_jax.baselines.sue import spectral_net
from anchordot_jax.baselines.sue.graph import affinity_graph, laplacian_form
from anchordot_jax.baselines.sue.settings import GraphSettings, SueSettings
from anchordot_jax.baselines.sue.spectral_net import (
    Plateau,
    init_layers,
    next_plateau,
    orthonormalizer,
    spectral_loss,
    train_spectral_net,
)
from anchordot_jax.errors import InputError
from anchordot_jax.maps.spectral import tanh_net

SETTINGS = SueSettings(
    hidden=(32, 32),
    eigenvectors=3,
    components=2,
    neighbours=6,
    scale_k=4,
    epochs=60,
    batch_size=500,
    learning_rate=5e-3,
)


def circle(n=120, seed=0):
    """Return unit rows around a closed curve, with a little noise."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n)
    curve = np.stack([np.cos(angle), np.sin(angle), 0.3 * np.cos(2 * angle)], axis=1)
    x = curve + 0.02 * rng.normal(size=curve.shape)
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def net():
    with jax.numpy_rank_promotion("raise"):
        return train_spectral_net(circle(), settings=SETTINGS, key=jax.random.key(0))


def test_loss_is_the_laplacian_form():
    """The worked example: 0.4, as a sum over pairs and as a trace."""
    weights = np.array([[1, 0.5, 0], [0.5, 1, 0.2], [0, 0.2, 1]])
    outputs = np.array([[1.0, 0], [0, 1], [1, 1]])
    squares = np.sum((outputs[:, None] - outputs[None, :]) ** 2, axis=2)
    assert np.sum(weights * squares) / 6 == pytest.approx(0.4)
    assert float(spectral_loss(weights, outputs)) == pytest.approx(0.4)


def test_orthonormal_outputs():
    """Z W has W^T Z^T Z W = b I, and W is triangular."""
    z = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32) + 1
    w = np.asarray(orthonormalizer(z))
    np.testing.assert_allclose((z @ w).T @ (z @ w), 40 * np.eye(5), atol=1e-3)
    np.testing.assert_array_equal(w, np.triu(w))


def test_layers_start_like_pytorch():
    """Kernels and biases are uniform within 1/sqrt(inputs)."""
    layers = init_layers((100, 50, 7), key=jax.random.key(1))
    shapes = [layers[i][leaf].shape for i in "01" for leaf in ("kernel", "bias")]
    assert shapes == [(100, 50), (50,), (50, 7), (7,)]
    kernel = np.asarray(layers["0"]["kernel"])
    assert 0.098 < np.abs(kernel).max() <= 0.1
    assert kernel.std() == pytest.approx(0.1 / np.sqrt(3), rel=0.03)
    assert np.abs(layers["1"]["bias"]).max() <= 1 / np.sqrt(50)


def test_plateau_divides_after_patience():
    """Two epochs are waited, the third bad one divides; a better one resets."""
    options = {"patience": 2, "factor": 0.1}
    plateau = Plateau(1.0)
    rates = []
    for loss in (5.0, 5.0, 4.9999, 4.0, 4.1, 4.1, 4.1, 4.1):
        plateau = next_plateau(plateau, loss, **options)
        rates.append(plateau.rate)
    assert rates == pytest.approx([1.0] * 6 + [0.1] * 2)
    assert plateau.best == 4.0
    assert plateau.bad_epochs == 1


def test_a_step_is_adams():
    """A step descends through the other batch's orthonormal map, too."""
    x, others = circle(60), circle(60, seed=1)
    layers = init_layers((3, 8, 2), key=jax.random.key(0))
    start = spectral_net._State(layers, spectral_net.ADAM.init(layers), jnp.eye(2))
    weights = jnp.asarray(affinity_graph(x, neighbours=5, scale_k=3).weights.toarray())
    state = spectral_net._step(start, x, others, weights, jnp.asarray(0.01))
    z = np.asarray(tanh_net(layers, others))
    w = np.sqrt(60) * np.linalg.inv(np.linalg.qr(z, mode="r"))
    np.testing.assert_allclose(state.orthonormal, w, rtol=2e-3, atol=1e-2)

    def loss(layers):
        # W W^T is the inverse Gram matrix of the other batch over its size.
        z, other = tanh_net(layers, x), tanh_net(layers, others)
        degrees = jnp.diag(weights.sum(axis=1))
        form = z.T @ (degrees - weights) @ z / 60
        return jnp.trace(jnp.linalg.solve(other.T @ other / 60, form))

    optimizer = optax.adam(0.01)
    updates, _ = optimizer.update(jax.grad(loss)(layers), optimizer.init(layers))
    expected = optax.apply_updates(layers, updates)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), state.layers, expected
    )


def test_it_learns_the_smallest_eigenvectors(net):
    """The loss of all points comes near the sum of the smallest eigenvalues."""
    x = circle()
    graph = affinity_graph(x, neighbours=6, scale_k=4)
    outputs = np.asarray(tanh_net(net.layers, x)) @ np.asarray(net.orthonormal)
    outputs = np.linalg.qr(outputs)[0] * np.sqrt(len(x))
    dense = graph.weights.toarray()
    values = np.linalg.eigvalsh(np.diag(dense.sum(axis=1)) - dense)
    loss = np.trace(laplacian_form(graph, outputs)) / len(x)
    assert values[:3].sum() <= loss + 1e-9
    assert loss < values[:3].sum() + 0.1 * values[3:].mean()


def test_the_key_fixes_it(net):
    """The same key gives the same bits, another key another net."""
    again = train_spectral_net(circle(), settings=SETTINGS, key=jax.random.key(0))
    other = train_spectral_net(circle(), settings=SETTINGS, key=jax.random.key(1))
    np.testing.assert_array_equal(again.orthonormal, net.orthonormal)
    np.testing.assert_array_equal(
        again.layers["1"]["kernel"], net.layers["1"]["kernel"]
    )
    assert not np.array_equal(other.layers["1"]["kernel"], net.layers["1"]["kernel"])
    assert again.epochs == net.epochs <= 60


def test_batches_are_equal_and_cover():
    """The batches of an epoch share no row, and the orthonormalising order differs."""
    rows, others = spectral_net._batches(23, 3, jax.random.key(0))
    assert rows.shape == others.shape == (3, 7)
    assert len(np.unique(rows)) == 21
    assert not np.array_equal(rows, others)


def test_many_batches_train_too():
    """Where rows do not fit one batch the graph is the batch's, and the loss falls."""
    small = dataclasses.replace(SETTINGS, batch_size=60, epochs=1)
    first = train_spectral_net(circle(), settings=small, key=jax.random.key(0))
    longer = dataclasses.replace(small, epochs=40)
    last = train_spectral_net(circle(), settings=longer, key=jax.random.key(0))
    assert last.loss < 0.9 * first.loss


def test_training_stops_when_the_rate_runs_out():
    """With an impatient schedule far fewer epochs are run than allowed."""
    impatient = dataclasses.replace(
        SETTINGS, epochs=1000, patience=1, least_learning_rate=1e-3
    )
    net = train_spectral_net(circle(), settings=impatient, key=jax.random.key(0))
    assert 2 < net.epochs < 300


def test_the_gain_is_folded_into_the_first_layer():
    """A net of scaled rows takes unscaled ones: gain g starts as g times the kernel."""
    scaled = dataclasses.replace(
        SETTINGS, input_gain=3.0, epochs=1, learning_rate=1e-30, least_learning_rate=0.0
    )
    plain = dataclasses.replace(scaled, input_gain=1.0)
    nets = [
        train_spectral_net(circle(), settings=s, key=jax.random.key(0))
        for s in (scaled, plain)
    ]
    kernels = [np.asarray(net.layers["0"]["kernel"]) for net in nets]
    np.testing.assert_allclose(kernels[0], 3 * kernels[1], rtol=1e-6)


def test_refusals():
    """Too few rows and impossible settings are refused."""
    with pytest.raises(InputError, match="cannot span 3 spectral coordinates"):
        train_spectral_net(circle(3), settings=SETTINGS, key=jax.random.key(0))
    for change, said in (
        ({"hidden": (0,)}, "hidden must be widths"),
        ({"components": 4}, "components must be at most eigenvectors"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"batch_size": 1}, "batch_size"),
        ({"learning_rate": 0.0}, "learning_rate must be > 0"),
        ({"validation": 1.0}, "validation must lie strictly between"),
    ):
        with pytest.raises(InputError, match=said):
            dataclasses.replace(SETTINGS, **change)
    with pytest.raises(InputError, match="neighbours must be at least 1"):
        GraphSettings(neighbours=0)
    assert SueSettings(hidden=[8, 4]).hidden == (8, 4)
