"""Distilling the plan into the students: loss, step, epoch (Section 3.4, Appendix A).

An epoch visits every chunk of the pools once and the anchors once, in random order.
Each chunk's target is an exact block of the global plan, rebuilt from the potentials
inside the step; the anchors' target is the identity.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from anchordot_jax import coupling
from anchordot_jax.arrays import AnyArray
from anchordot_jax.config import DistillationConfig
from anchordot_jax.students import Params
from anchordot_jax.training import affinity
from anchordot_jax.training.chunks import ChunkPlan as ChunkPlan
from anchordot_jax.training.chunks import draw_epoch
from anchordot_jax.training.chunks import plan_chunks as plan_chunks
from anchordot_jax.training.contrastive import info_nce as info_nce
from anchordot_jax.training.contrastive import (
    soft_contrastive_loss as soft_contrastive_loss,
)
from anchordot_jax.training.optimizer import TrainState as TrainState
from anchordot_jax.training.optimizer import apply_gradient
from anchordot_jax.training.optimizer import clamp_scale as clamp_scale
from anchordot_jax.training.optimizer import init_training as init_training
from anchordot_jax.training.optimizer import make_optimizer as make_optimizer


class Pools(NamedTuple):
    """The unpaired items and the plan between them.

    The plan is known from the coordinates and potentials, or given whole.
    """

    x: Float[Array, "n dx"]
    y: Float[Array, "m dy"]
    coordinates_x: Float[Array, "n r"]
    coordinates_y: Float[Array, "m r"]
    f: Float[Array, " n"]
    g: Float[Array, " m"]
    epsilon: Float[Array, ""]
    log_plan: Float[Array, "n m"] | None = None
    """Logarithm of a plan of another cost, up to a constant a row and a column; then
    coordinates and potentials are not read."""
    weights_x: Float[Array, " n"] | None = None
    """Weight of each x row's loss, of mean 1; None: all the same."""
    weights_y: Float[Array, " m"] | None = None


class Anchors(NamedTuple):
    """The paired items; row k of x belongs to row k of y."""

    x: Float[Array, "N dx"]
    y: Float[Array, "N dy"]


class EpochMetrics(NamedTuple):
    """What a person reads after an epoch."""

    pool_loss: Float[Array, ""]
    """Mean loss of the pool chunks; log(chunk size) is chance."""
    anchor_loss: Float[Array, ""]
    """Mean loss of the anchor chunks."""
    logit_scale: Float[Array, ""]


PoolGradient = Callable[[Params, Array, Array], tuple[Array, Params]]
"""pool_gradient(params, i, j) -> loss of the chunk of rows i, j, and its gradient."""


@functools.partial(
    jax.jit, static_argnames=("config", "chunks"), donate_argnames=("state",)
)
def train_epoch(
    state: TrainState,
    pools: Pools,
    anchors: Anchors,
    *,
    config: DistillationConfig,
    chunks: ChunkPlan,
    key: PRNGKeyArray,
) -> tuple[TrainState, EpochMetrics]:
    """Return the state after one epoch, and its metrics.

    The chunks are drawn from `fold_in(key, epoch)`, so an interrupted run that resumes
    sees the same ones. The incoming state is donated: its buffers are reused.
    """

    def pool_loss(params: Params, i: Array, j: Array) -> Array:
        return chunk_loss(params, take_chunk(pools, i, j), config)

    gradient: PoolGradient = jax.value_and_grad(pool_loss)
    return run_epoch(state, gradient, anchors, config=config, chunks=chunks, key=key)


def run_epoch(
    state: TrainState,
    pool_gradient: PoolGradient,
    anchors: Anchors,
    *,
    config: DistillationConfig,
    chunks: ChunkPlan,
    key: PRNGKeyArray,
) -> tuple[TrainState, EpochMetrics]:
    """Return what `train_epoch` does, for any way to a chunk's gradient."""
    optimizer = make_optimizer(config, config.epochs * chunks.steps)
    rows = draw_epoch(
        chunks, len(anchors.x), state.epoch, redraw=config.redraw_chunks, key=key
    )

    def pool_step(params: Params, step: Array) -> tuple[Array, Params]:
        return pool_gradient(params, rows.x[step], rows.y[step])

    def anchor_loss(params: Params, step: Array) -> Array:
        return anchor_chunk_loss(
            params, anchors, rows.anchors[step - chunks.pool_steps], config
        )

    def step(
        carry: tuple[Params, optax.OptState], index: Array
    ) -> tuple[tuple[Params, optax.OptState], Array]:
        params, opt_state = carry
        if chunks.pool_steps == 0:
            loss, grads = jax.value_and_grad(anchor_loss)(params, index)
        elif chunks.anchor_steps == 0:
            loss, grads = pool_step(params, index)
        else:
            loss, grads = jax.lax.cond(
                index < chunks.pool_steps,
                pool_step,
                jax.value_and_grad(anchor_loss),
                params,
                index,
            )
        return apply_gradient(optimizer, params, opt_state, grads, config), loss

    (params, opt_state), losses = jax.lax.scan(
        step, (state.params, state.opt_state), rows.order
    )
    metrics = epoch_metrics(losses, rows.order < chunks.pool_steps, params)
    return TrainState(params, opt_state, state.epoch + 1), metrics


def epoch_metrics(
    losses: Float[Array, " steps"], is_pool: Bool[Array, " steps"], params: Params
) -> EpochMetrics:
    """Return the means of an epoch's losses by kind, and the logit scale at its end."""
    return EpochMetrics(
        pool_loss=jnp.mean(losses, where=is_pool),
        anchor_loss=jnp.mean(losses, where=~is_pool),
        logit_scale=jnp.exp(params["log_scale"]),
    )


def train(
    pools: Pools,
    anchors: Anchors,
    *,
    config: DistillationConfig,
    key_students: PRNGKeyArray,
    key_chunks: PRNGKeyArray,
) -> TrainState:
    """Return the state after all epochs.

    Raises:
        FloatingPointError: the training diverged.
    """
    chunks = plan_chunks(len(pools.x), len(pools.y), len(anchors.x), config.chunk_size)
    state = init_training(
        pools.x.shape[1],
        pools.y.shape[1],
        config,
        total_steps=config.epochs * chunks.steps,
        key=key_students,
    )
    for epoch in range(1, config.epochs + 1):
        state, metrics = train_epoch(
            state, pools, anchors, config=config, chunks=chunks, key=key_chunks
        )
        losses = [metrics.pool_loss] * (chunks.pool_steps > 0)
        losses += [metrics.anchor_loss] * (chunks.anchor_steps > 0)
        if not all(math.isfinite(loss) for loss in losses):
            raise FloatingPointError(
                f"The training loss is not finite after epoch {epoch}; lower the "
                f"learning rate {config.learning_rate:g}."
            )
    return state


def given_plan(
    x: Float[AnyArray, "n dx"],
    y: Float[AnyArray, "m dy"],
    log_plan: Float[AnyArray, "n m"] | None,
) -> Pools:
    """Return the pools of a plan given whole; None, with empty pools, is no plan."""
    n, m = len(x), len(y)
    return Pools(
        x=jnp.asarray(x, jnp.float32),
        y=jnp.asarray(y, jnp.float32),
        coordinates_x=jnp.zeros((n, 1), jnp.float32),
        coordinates_y=jnp.zeros((m, 1), jnp.float32),
        f=jnp.zeros(n, jnp.float32),
        g=jnp.zeros(m, jnp.float32),
        epsilon=jnp.asarray(1.0, jnp.float32),
        log_plan=None if log_plan is None else jnp.asarray(log_plan, jnp.float32),
    )


def pair_logits(
    params: Params,
    x: Float[AnyArray, "b dx"],
    y: Float[AnyArray, "c dy"],
    *,
    matmul: str | None = None,
) -> Float[Array, "b c"]:
    """Return the students' logits s f(x) . g(y) of every x with every y."""
    rows = affinity.standardized_sides(x, y)
    cosines = affinity.cosines(params, *rows, matmul=matmul)
    return jnp.exp(params["log_scale"]) * cosines


def take_chunk(pools: Pools, i: Array, j: Array) -> Pools:
    """Return some rows of both pools, with the plan between them."""
    whole, x, y = pools.log_plan, pools.weights_x, pools.weights_y
    return Pools(
        x=pools.x[i],
        y=pools.y[j],
        coordinates_x=pools.coordinates_x[i],
        coordinates_y=pools.coordinates_y[j],
        f=pools.f[i],
        g=pools.g[j],
        epsilon=pools.epsilon,
        log_plan=None if whole is None else whole[i[:, None], j[None, :]],
        weights_x=None if x is None else x[i],
        weights_y=None if y is None else y[j],
    )


def chunk_loss(
    params: Params, chunk: Pools, config: DistillationConfig
) -> Float[Array, ""]:
    """Return the loss of one chunk of both pools, of `take_chunk`."""
    row_targets, column_targets = _targets(chunk)
    logits = pair_logits(params, chunk.x, chunk.y, matmul=config.matmul)
    weights = None
    if chunk.weights_x is not None and chunk.weights_y is not None:
        weights = chunk.weights_x, chunk.weights_y
    return soft_contrastive_loss(logits, row_targets, column_targets, weights)


def anchor_chunk_loss(
    params: Params,
    anchors: Anchors,
    k: Int[Array, " size"],
    config: DistillationConfig,
) -> Float[Array, ""]:
    """Return the loss of one chunk of the anchors."""
    x, y = anchors.x[k], anchors.y[k]
    return info_nce(pair_logits(params, x, y, matmul=config.matmul))


def _targets(chunk: Pools) -> tuple[Array, Array]:
    """Return the plan's block normalised by row, and by column (Eq. 10)."""
    if chunk.log_plan is not None:
        block = chunk.log_plan
        return jax.nn.softmax(block, axis=1), jax.nn.softmax(block, axis=0)
    return coupling.block_targets(
        chunk.coordinates_x, chunk.coordinates_y, chunk.f, chunk.g, chunk.epsilon
    )
