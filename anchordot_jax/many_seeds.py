"""Students of many seeds in one program: one epoch, vectorised over a leading axis.

A few seeds say how much a result owes to chance. One compiled program for all of them
is compiled once and keeps a large device busy where one seed's chunks would not; the
numbers are those of the same fits one by one, to float32 rounding.
"""

import functools
from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PRNGKeyArray

from anchordot_jax import distillation
from anchordot_jax.config import DistillationConfig
from anchordot_jax.distillation import Anchors, ChunkPlan, EpochMetrics, Pools
from anchordot_jax.errors import InputError
from anchordot_jax.students import Params

Tree = TypeVar("Tree")


def stack(trees: Sequence[Tree]) -> Tree:
    """Return one tree whose arrays have a leading axis: one entry a seed.

    Raises:
        InputError: no trees, or arrays of different shapes.
    """
    shapes = [[jnp.shape(leaf) for leaf in jax.tree.leaves(tree)] for tree in trees]
    if not shapes or any(shape != shapes[0] for shape in shapes):
        raise InputError(
            f"Seeds are stacked only where all their arrays have the same shapes, got "
            f"{len(shapes)} trees of shapes {shapes[:2]}; draw splits of one size."
        )
    stacked: Tree = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    return stacked


def unstack(tree: Tree) -> list[Tree]:
    """Return one tree a seed, the inverse of `stack`."""
    count = len(jax.tree.leaves(tree)[0])
    return [jax.tree.map(lambda leaf, i=i: leaf[i], tree) for i in range(count)]


def train_many(
    pools: Pools,
    anchors: Anchors,
    *,
    config: DistillationConfig,
    keys_students: Key[Array, " seeds"],
    key_chunks: Key[Array, "*one_or_own"],
) -> Params:
    """Return the trained students of every seed, arrays `[seeds, ...]`.

    Entry s is what `distillation.train` returns for `keys_students[s]`.

    Args:
        pools: the pools that all seeds share, or those of each seed, by `stack`.
        anchors: the anchors that all seeds share, or those of each seed, by `stack`.
        config: settings of the training. `pool_memory` does not apply: arrays given
            are in memory already.
        keys_students: one key a seed, `[seeds]`: the students' first weights.
        key_chunks: one key for all, or one a seed, `[seeds]`: the chunks and their
            order. Where the order differs from seed to seed every step computes a
            chunk of the pools and one of the anchors and keeps one of the two; with
            one order for all only the step's own is computed.

    Raises:
        InputError: `keys_students` and `key_chunks` of different lengths.
        FloatingPointError: a seed's training diverged.
    """
    if key_chunks.ndim and len(key_chunks) != len(keys_students):
        raise InputError(
            f"There are {len(keys_students)} keys for the students and "
            f"{len(key_chunks)} for the chunks; give one a seed, or one for all."
        )
    (n, dim_x), (m, dim_y) = pools.x.shape[-2:], pools.y.shape[-2:]
    chunks = distillation.plan_chunks(n, m, anchors.x.shape[-2], config.chunk_size)
    total = config.epochs * chunks.steps

    def start(key: PRNGKeyArray) -> distillation.TrainState:
        return distillation.init_training(
            dim_x, dim_y, config, total_steps=total, key=key
        )

    # The epoch is one number for all: a number a seed would make each one's chunk
    # order its own.
    axes = distillation.TrainState(0, 0, None)  # type: ignore[arg-type]
    state = jax.vmap(start, out_axes=axes)(keys_students)
    for epoch in range(1, config.epochs + 1):
        state, metrics = _train_epoch(
            state, pools, anchors, key_chunks, config=config, chunks=chunks
        )
        _check_finite(metrics, chunks, epoch, config)
    return state.params


@functools.partial(
    jax.jit, static_argnames=("config", "chunks"), donate_argnames=("state",)
)
def _train_epoch(
    state: distillation.TrainState,
    pools: Pools,
    anchors: Anchors,
    key: PRNGKeyArray,
    *,
    config: DistillationConfig,
    chunks: ChunkPlan,
) -> tuple[distillation.TrainState, EpochMetrics]:
    """Return the states and metrics of all seeds after one epoch."""

    def one(
        state: distillation.TrainState, pools: Pools, anchors: Anchors, key: jax.Array
    ) -> tuple[distillation.TrainState, EpochMetrics]:
        trained: tuple[distillation.TrainState, EpochMetrics]
        trained = distillation.train_epoch(
            state, pools, anchors, config=config, chunks=chunks, key=key
        )
        return trained

    axes = distillation.TrainState(0, 0, None)  # type: ignore[arg-type]
    shared_or_own = (
        0 if pools.x.ndim == 3 else None,
        0 if anchors.x.ndim == 3 else None,
        0 if key.ndim else None,
    )
    step = jax.vmap(one, in_axes=(axes, *shared_or_own), out_axes=(axes, 0))
    return step(state, pools, anchors, key)


def _check_finite(
    metrics: EpochMetrics, chunks: ChunkPlan, epoch: int, config: DistillationConfig
) -> None:
    losses = [metrics.pool_loss] * (chunks.pool_steps > 0)
    losses += [metrics.anchor_loss] * (chunks.anchor_steps > 0)
    for loss in losses:
        if not bool(jnp.all(jnp.isfinite(loss))):
            seed = int(jnp.argmin(jnp.isfinite(loss)))
            raise FloatingPointError(
                f"The training loss of seed number {seed} is not finite after epoch "
                f"{epoch}; lower the learning rate {config.learning_rate:g}."
            )
