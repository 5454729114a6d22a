"""SpectralNet: a network whose outputs are a graph's smallest eigenvectors.

Shaham et al. (2018), "SpectralNet: spectral clustering using deep neural networks",
as SUE's code configures it. The outputs are made orthonormal over a batch by a linear
map, and the network lowers sum_ij W_ij |y_i - y_j|^2 / (2 b), which is least at the
eigenvectors of the Laplacian L = D - W.
"""

import functools
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float
from optax import tree_utils

from anchordot_jax.arrays import AnyArray
from anchordot_jax.baselines.sue.graph import batch_affinity
from anchordot_jax.baselines.sue.settings import SueSettings
from anchordot_jax.errors import InputError
from anchordot_jax.maps.spectral import tanh_net
from anchordot_jax.students import Params

HIGHEST = jax.lax.Precision.HIGHEST

# PyTorch's ReduceLROnPlateau: a loss counts as lower by this share of the best.
PLATEAU_THRESHOLD = 1e-4


class SpectralNet(NamedTuple):
    """A trained network with the last orthonormalisation it was trained under."""

    layers: Params
    """See `maps.spectral.tanh_net`."""
    orthonormal: Array
    """W, `[k, k]`; the embedding is tanh_net(x) W."""
    epochs: int
    """How many there were before the learning rate ran out."""
    loss: float
    """Validation loss of the last epoch."""


class Plateau(NamedTuple):
    """A learning rate that falls when the loss no longer does."""

    rate: float
    best: float = math.inf
    bad_epochs: int = 0


class _State(NamedTuple):
    layers: Params
    moments: optax.OptState
    orthonormal: Array


ADAM = optax.scale_by_adam()


def init_layers(widths: tuple[int, ...], *, key: jax.Array) -> Params:
    """Return dense layers from widths[0] to widths[-1], as PyTorch starts them.

    Kernels and biases are uniform in +-1/sqrt(d), d being the layer's input dimension.
    """
    layers: Params = {}
    for i, (before, after) in enumerate(itertools.pairwise(widths)):
        key_kernel, key_bias = jax.random.split(jax.random.fold_in(key, i))
        bound = 1 / math.sqrt(before)
        layers[str(i)] = {
            "kernel": jax.random.uniform(
                key_kernel, (before, after), minval=-bound, maxval=bound
            ),
            "bias": jax.random.uniform(key_bias, (after,), minval=-bound, maxval=bound),
        }
    return layers


def spectral_loss(
    affinity: Float[AnyArray, "b b"], outputs: Float[AnyArray, "b k"]
) -> Float[Array, ""]:
    """Return sum_ij W_ij |y_i - y_j|^2 / (2 b) = tr(Y^T L Y) / b, L = D - W.

    Args:
        affinity: W, symmetric.
        outputs: Y.
    """
    outputs = jnp.asarray(outputs)
    moved = jnp.sum(affinity, axis=1)[:, None] * outputs - jnp.matmul(
        affinity, outputs, precision=HIGHEST
    )
    return jnp.sum(outputs * moved) / len(outputs)


def orthonormalizer(outputs: Float[AnyArray, "b k"]) -> Float[Array, "k k"]:
    """Return W = sqrt(b) R^{-1} with Z = QR, so that (Z W)^T (Z W) = b I.

    Args:
        outputs: Z, of full column rank.
    """
    outputs = jnp.asarray(outputs)
    triangle = jnp.linalg.qr(outputs, mode="r")
    unit = jnp.eye(triangle.shape[0], dtype=triangle.dtype)
    inverse = jax.scipy.linalg.solve_triangular(triangle, unit)
    return jnp.sqrt(jnp.asarray(len(outputs), outputs.dtype)) * inverse


def next_plateau(
    plateau: Plateau, loss: float, *, patience: int, factor: float
) -> Plateau:
    """Return the learning rate after an epoch's loss (ReduceLROnPlateau, relative)."""
    if loss < plateau.best * (1 - PLATEAU_THRESHOLD):
        return Plateau(plateau.rate, loss)
    if plateau.bad_epochs + 1 > patience:
        return Plateau(plateau.rate * factor, plateau.best)
    return plateau._replace(bad_epochs=plateau.bad_epochs + 1)


def train_spectral_net(
    rows: Float[AnyArray, "n d"], *, settings: SueSettings, key: jax.Array
) -> SpectralNet:
    """Return the network of one modality.

    A random share of the rows measures the plateau. An epoch visits the others in
    random batches of one size, as many as its epochs' last batch may need (so fewer
    rows than batches are left out of an epoch); before every step the orthonormal map
    is found anew on a batch of another order; the last one belongs to the weights
    before the last step, as in SUE's code.

    Args:
        rows: `[n, d]`, unit-norm.
        settings: of the network, its graph and its schedule.
        key: of the split, the initial weights and the batches.

    Raises:
        InputError: too few rows for the eigenvectors, or a loss that is not finite.
    """
    key_split, key_init, key_batches = jax.random.split(key, 3)
    n = len(rows)
    n_valid = max(1, round(settings.validation * n))
    n_train = n - n_valid
    steps = -(-n_train // settings.batch_size)
    size = n_train // max(1, steps)
    if size < settings.eigenvectors:
        raise InputError(
            f"{n} items make batches of {size}, which cannot span "
            f"{settings.eigenvectors} spectral coordinates; give larger pools, or "
            "lower eigenvectors."
        )
    scaled = settings.input_gain * jnp.asarray(rows, jnp.float32)
    order = jax.random.permutation(key_split, n)
    train, valid = scaled[order[n_valid:]], scaled[order[:n_valid]]
    valid_affinity = _affinity(valid, settings)
    # One batch is always the same rows, and so the same graph.
    whole = _affinity(train, settings) if steps == 1 else None
    widths = (train.shape[1], *settings.hidden, settings.eigenvectors)
    layers = init_layers(widths, key=key_init)
    state = _State(layers, ADAM.init(layers), jnp.eye(settings.eigenvectors))
    plateau, loss, epoch = Plateau(settings.learning_rate), math.inf, 0
    while epoch < settings.epochs and plateau.rate > settings.least_learning_rate:
        state, found = _train_epoch(
            state,
            train,
            whole,
            valid,
            valid_affinity,
            jnp.asarray(plateau.rate, jnp.float32),
            settings=settings,
            steps=steps,
            key=jax.random.fold_in(key_batches, epoch),
        )
        loss, epoch = float(found), epoch + 1
        if not math.isfinite(loss):
            raise InputError(
                f"The spectral network's loss is {loss} in epoch {epoch}: its outputs "
                "are no longer independent; lower learning_rate or eigenvectors."
            )
        plateau = next_plateau(
            plateau, loss, patience=settings.patience, factor=settings.factor
        )
    return SpectralNet(
        _fold_gain(state.layers, settings.input_gain), state.orthonormal, epoch, loss
    )


@functools.partial(jax.jit, static_argnames=("settings", "steps"))
def _train_epoch(
    state: _State,
    train: Array,
    whole: Array | None,
    valid: Array,
    valid_affinity: Array,
    rate: Array,
    *,
    settings: SueSettings,
    steps: int,
    key: jax.Array,
) -> tuple[_State, Array]:
    """Return the state after an epoch, and its validation loss."""

    def step(state: _State, batch: tuple[Array, Array]) -> tuple[_State, None]:
        rows, others = train[batch[0]], train[batch[1]]
        return _step(state, rows, others, _affinity(rows, settings), rate), None

    if whole is not None:
        state = _step(state, train, None, whole, rate)
    else:
        state, _ = jax.lax.scan(step, state, _batches(len(train), steps, key))
    outputs = tanh_net(state.layers, valid) @ state.orthonormal
    return state, spectral_loss(valid_affinity, outputs)


def _step(
    state: _State, rows: Array, others: Array | None, affinity: Array, rate: Array
) -> _State:
    """Return the state after a step on `rows`, orthonormalised on `others`.

    The gradient passes through the orthonormal map, as it does in SUE's code; with the
    map held constant the outputs collapse.
    """

    def loss(layers: Params) -> tuple[Array, Array]:
        outputs = tanh_net(layers, rows)
        by = outputs if others is None else tanh_net(layers, others)
        orthonormal = orthonormalizer(by)
        return spectral_loss(affinity, outputs @ orthonormal), orthonormal

    gradient, orthonormal = jax.grad(loss, has_aux=True)(state.layers)
    updates, moments = ADAM.update(gradient, state.moments)
    layers = optax.apply_updates(state.layers, tree_utils.tree_scale(-rate, updates))
    return _State(layers, moments, orthonormal)


def _batches(n: int, steps: int, key: jax.Array) -> tuple[Array, Array]:
    """Return row numbers of the batches and of the orthonormalising ones, `[s, b]`."""
    keys = jax.random.split(key)
    size = n // steps
    orders = [jax.random.permutation(k, n)[: steps * size] for k in keys]
    return orders[0].reshape(steps, size), orders[1].reshape(steps, size)


@functools.partial(jax.jit, static_argnames=("settings",))
def _affinity(rows: Array, settings: SueSettings) -> Array:
    return batch_affinity(
        rows, neighbours=settings.neighbours, scale_k=settings.scale_k
    )


def _fold_gain(layers: Params, gain: float) -> dict[str, Any]:
    """Return the layers for rows that are not scaled by the gain."""
    first = {**layers["0"], "kernel": gain * layers["0"]["kernel"]}
    return {**layers, "0": first}
