"""The distillation of one epoch with pools that do not fit on the device.

The same chunks, loss and steps as `distillation.train_epoch`. Only the pools' rows come
from elsewhere: a thread reads those of the next chunk while the device works on the
present one. The coordinates, the potentials and the anchors stay on the device.
"""

import functools
from contextlib import closing
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from anchordot_jax.config import DistillationConfig
from anchordot_jax.distillation import (
    Anchors,
    ChunkPlan,
    EpochMetrics,
    Pools,
    TrainState,
    anchor_chunk_loss,
    chunk_loss,
    epoch_metrics,
    take_chunk,
)
from anchordot_jax.students import Params
from anchordot_jax.training.chunks import draw_epoch
from anchordot_jax.training.optimizer import apply_gradient, make_optimizer
from anchordot_jax.training.prefetch import prefetched


class StoredRows(Protocol):
    """Rows that are read by their numbers: an array, or a pool in its file."""

    def __getitem__(self, rows: np.ndarray, /) -> np.ndarray:
        """Return some rows, `[k, d]`."""


class _Read(NamedTuple):
    """One pool chunk on the device."""

    i: Int[Array, " b"]
    j: Int[Array, " c"]
    x: Float[Array, "b dx"]
    y: Float[Array, "c dy"]


def train_epoch(
    state: TrainState,
    pools: Pools,
    anchors: Anchors,
    *,
    rows: tuple[StoredRows, StoredRows],
    config: DistillationConfig,
    chunks: ChunkPlan,
    key: PRNGKeyArray,
) -> tuple[TrainState, EpochMetrics]:
    """Return what `distillation.train_epoch` does, to float32 rounding.

    Args:
        state: donated.
        pools: coordinates, potentials and weights; x and y are not looked at.
        anchors: on the device.
        rows: both pools' rows, where they lie.
        config: the schedule.
        chunks: of the pools.
        key: fixes the chunks.

    Raises:
        InputError: rows that cannot be read any more.
    """
    drawn = _draw_epoch(
        chunks, len(anchors.x), state.epoch, redraw=config.redraw_chunks, key=key
    )
    order = np.asarray(drawn.order)
    numbers = np.asarray(drawn.x), np.asarray(drawn.y)

    def read(step: int) -> _Read | None:
        if step >= chunks.pool_steps:
            return None
        i, j = numbers[0][step], numbers[1][step]
        x, y = rows[0][i], rows[1][j]
        return _Read(*(jnp.asarray(part) for part in (i, j, x, y)))

    params, opt_state = state.params, state.opt_state
    losses: list[Array] = []
    with closing(prefetched(read, order.tolist())) as chunks_read:
        for step, chunk in zip(order.tolist(), chunks_read, strict=True):
            if chunk is None:
                k = drawn.anchors[step - chunks.pool_steps]
                given = functools.partial(_anchor_step, anchors=anchors, k=k)
            else:
                given = functools.partial(_pool_step, pools=pools, chunk=chunk)
            params, opt_state, loss = given(
                params, opt_state, config=config, steps=chunks.steps
            )
            # Chunks queue up on the device unless the step before this one is over.
            if losses:
                losses[-1].block_until_ready()
            losses.append(loss)
    is_pool = jnp.asarray(order < chunks.pool_steps)
    # Stacked on the host: a program of so many inputs takes longer to compile.
    every_loss = jnp.asarray(np.array([np.asarray(loss) for loss in losses]))
    metrics = epoch_metrics(every_loss, is_pool, params)
    return TrainState(params, opt_state, state.epoch + 1), metrics


_draw_epoch = jax.jit(draw_epoch, static_argnames=("chunks", "n_anchors", "redraw"))
_step = functools.partial(
    jax.jit,
    static_argnames=("config", "steps"),
    donate_argnames=("params", "opt_state"),
)
_Stepped = tuple[Params, optax.OptState, Array]


@_step
def _pool_step(
    params: Params,
    opt_state: optax.OptState,
    *,
    pools: Pools,
    chunk: _Read,
    config: DistillationConfig,
    steps: int,
) -> _Stepped:
    """Return the state after one chunk of the pools, and its loss."""
    # Without columns nothing is taken of the rows, which are at hand.
    empty = pools._replace(x=pools.x[:, :0], y=pools.y[:, :0])
    given = take_chunk(empty, chunk.i, chunk.j)._replace(x=chunk.x, y=chunk.y)
    loss, grads = jax.value_and_grad(chunk_loss)(params, given, config)
    return *_applied(params, opt_state, grads, config, steps), loss


@_step
def _anchor_step(
    params: Params,
    opt_state: optax.OptState,
    *,
    anchors: Anchors,
    k: Array,
    config: DistillationConfig,
    steps: int,
) -> _Stepped:
    """Return the state after one chunk of the anchors, and its loss."""
    loss, grads = jax.value_and_grad(anchor_chunk_loss)(params, anchors, k, config)
    return *_applied(params, opt_state, grads, config, steps), loss


def _applied(
    params: Params,
    opt_state: optax.OptState,
    grads: Params,
    config: DistillationConfig,
    steps: int,
) -> tuple[Params, optax.OptState]:
    optimizer = make_optimizer(config, config.epochs * steps)
    return apply_gradient(optimizer, params, opt_state, grads, config)
