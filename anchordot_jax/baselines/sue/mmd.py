"""Maximum mean discrepancy, and the residual network that lowers it on one side.

The loss compares two clouds of points and ignores which point belongs to which, so all
items of both modalities train it. The recipe is that of SUE's code.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from anchordot_jax.arrays import AnyArray
from anchordot_jax.baselines.sue.settings import SueSettings
from anchordot_jax.baselines.sue.spectral_net import init_layers
from anchordot_jax.errors import InputError
from anchordot_jax.maps.spectral import residual_net
from anchordot_jax.students import Params

HIGHEST = jax.lax.Precision.HIGHEST

# Factors of the mean squared distance in the three Gaussian kernels.
SCALES = (0.5, 1.0, 2.0)

# Keeps 0/0 out where all points are equal, and is no denormal after a division.
TINY = 1e-30


class ResidualNet(NamedTuple):
    """The network of the best validation loss, which may be the initial one's."""

    layers: Params
    """See `maps.spectral.residual_net`."""
    loss: float
    """Its validation loss."""


def squared_mmd(
    x: Float[AnyArray, "n c"], y: Float[AnyArray, "m c"]
) -> Float[Array, ""]:
    """Return the biased squared MMD, mean K_xx - 2 mean K_xy + mean K_yy.

    K = sum_s exp(-d^2 / (c s)) over `SCALES`, where c is the sum of all squared
    distances of the joint sample of M points over M^2 - M; no gradient passes through
    c. Diagonals count.
    """
    n = len(x)
    joint = jnp.concatenate([jnp.asarray(x), jnp.asarray(y)])
    norms = jnp.sum(joint**2, axis=1)
    products = jnp.matmul(joint, joint.T, precision=HIGHEST)
    squares = jnp.maximum(norms[:, None] + norms[None, :] - 2 * products, 0)
    total = len(joint)
    width = jax.lax.stop_gradient(jnp.sum(squares) / (total**2 - total))
    width = jnp.maximum(width, TINY)
    kernel = sum(
        (jnp.exp(-squares / (width * scale)) for scale in SCALES),
        jnp.zeros_like(squares),
    )
    return (
        jnp.mean(kernel[:n, :n])
        - 2 * jnp.mean(kernel[:n, n:])
        + jnp.mean(kernel[n:, n:])
    )


def train_residual_net(
    x: Float[AnyArray, "n c"],
    y: Float[AnyArray, "m c"],
    *,
    settings: SueSettings,
    key: jax.Array,
) -> ResidualNet:
    """Return the residual network that moves the x points onto the y points.

    A random share of each side only validates. Every epoch draws as many points of the
    longer side as the shorter has, in random batches; partial batches are left out.

    Args:
        x: `[n, c]`, projected spectral coordinates.
        y: `[m, c]`.
        settings: of the network and its schedule.
        key: of the split, the initial weights and the batches.

    Raises:
        InputError: too few points for one batch and its validation, or no finite loss.
    """
    key_x, key_y, key_init, key_batches = jax.random.split(key, 4)
    train_x, valid_x = _split(x, settings.validation, key=key_x)
    train_y, valid_y = _split(y, settings.validation, key=key_y)
    size = min(settings.residual_batch_size, len(train_x), len(train_y))
    valid_size = min(size, len(valid_x), len(valid_y))
    if valid_size < 2:
        raise InputError(
            f"{len(x)} and {len(y)} items leave fewer than 2 to validate the residual "
            "network with; give larger pools, or set residual to false."
        )
    columns = train_x.shape[1]
    widths = (columns, *settings.residual_hidden, columns)
    layers = init_layers(widths, key=key_init)
    optimizer = _optimizer(settings)
    count = min(len(valid_x), len(valid_y)) // valid_size
    valid = _batched(valid_x, count, valid_size), _batched(valid_y, count, valid_size)
    best = ResidualNet(layers, math.inf)
    state = (layers, optimizer.init(layers))
    for epoch in range(settings.residual_epochs):
        state, loss = _train_epoch(
            state,
            (train_x, train_y),
            valid,
            settings=settings,
            size=size,
            key=jax.random.fold_in(key_batches, epoch),
        )
        if float(loss) < best.loss:
            best = ResidualNet(state[0], float(loss))
    if not math.isfinite(best.loss):
        raise InputError(
            "The residual network's loss was never finite; lower "
            "residual_learning_rate, or set residual to false."
        )
    return best


@functools.partial(jax.jit, static_argnames=("settings", "size"))
def _train_epoch(
    state: tuple[Params, optax.OptState],
    train: tuple[Array, Array],
    valid: tuple[Array, Array],
    *,
    settings: SueSettings,
    size: int,
    key: jax.Array,
) -> tuple[tuple[Params, optax.OptState], Array]:
    """Return the state after an epoch, and its validation loss."""
    optimizer = _optimizer(settings)

    def step(
        state: tuple[Params, optax.OptState], batch: tuple[Array, Array]
    ) -> tuple[tuple[Params, optax.OptState], None]:
        layers, moments = state
        gradient = jax.grad(_loss)(layers, batch)
        updates, moments = optimizer.update(gradient, moments, layers)
        return (optax.apply_updates(layers, updates), moments), None

    count = min(len(side) for side in train) // size
    drawn_x, drawn_y = (
        _batched(side[jax.random.permutation(k, len(side))], count, size)
        for side, k in zip(train, jax.random.split(key), strict=True)
    )
    state, _ = jax.lax.scan(step, state, (drawn_x, drawn_y))
    losses = jax.lax.map(functools.partial(_loss, state[0]), valid)
    return state, jnp.mean(losses)


def _loss(layers: Params, batch: tuple[Array, Array]) -> Array:
    return squared_mmd(residual_net(layers, batch[0]), batch[1])


def _optimizer(settings: SueSettings) -> optax.GradientTransformation:
    return optax.adamw(
        settings.residual_learning_rate, weight_decay=settings.residual_weight_decay
    )


def _split(
    rows: Float[AnyArray, "n c"], share: float, *, key: jax.Array
) -> tuple[Array, Array]:
    """Return rows to train on and a random share to validate on."""
    order = jax.random.permutation(key, len(rows))
    shuffled = jnp.asarray(rows, jnp.float32)[order]
    count = max(1, round(share * len(rows)))
    return shuffled[count:], shuffled[:count]


def _batched(rows: Array, count: int, size: int) -> Array:
    """Return the first rows in batches, `[count, size, c]`."""
    return rows[: count * size].reshape(count, size, rows.shape[1])
