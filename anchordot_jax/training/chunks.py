"""The chunks of an epoch: how many, how large, which rows, in which order.

They follow from a key alone, so that an interrupted run that resumes, or one that holds
its pools elsewhere, draws the same ones.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray


class ChunkPlan(NamedTuple):
    """How many steps an epoch has and how large their chunks are."""

    n: int
    """Rows of the x pool to draw from; rows after them only fill up the devices."""
    m: int
    """Rows of the y pool to draw from."""
    size_x: int
    size_y: int
    pool_steps: int
    anchor_size: int
    anchor_steps: int

    @property
    def steps(self) -> int:
        """Gradient steps an epoch."""
        return self.pool_steps + self.anchor_steps


def plan_chunks(n: int, m: int, n_anchors: int, chunk_size: int) -> ChunkPlan:
    """Return the sizes and numbers of an epoch's chunks.

    Each pool is cut into floor(n / B) chunks of B rows, or is one smaller chunk; the
    side with fewer chunks is shuffled again and reused until the other side is through.
    No pool (n or m = 0): no pool steps. More than B anchors are cut into equal chunks
    of at most B; no anchors, no anchor steps.
    """
    size_x, size_y = min(chunk_size, n), min(chunk_size, m)
    pool_steps = max(n // size_x, m // size_y) if size_x and size_y else 0
    anchor_steps = math.ceil(n_anchors / chunk_size)
    anchor_size = n_anchors // anchor_steps if anchor_steps else 0
    return ChunkPlan(n, m, size_x, size_y, pool_steps, anchor_size, anchor_steps)


class EpochRows(NamedTuple):
    """The rows of every chunk of an epoch, and the order of its steps."""

    order: Int[Array, " steps"]
    """Pool chunks count from 0, the anchors' chunks after them."""
    x: Int[Array, "pool_steps size_x"]
    y: Int[Array, "pool_steps size_y"]
    anchors: Int[Array, "anchor_steps anchor_size"]


def draw_epoch(
    chunks: ChunkPlan,
    n_anchors: int,
    epoch: Int[Array, ""],
    *,
    redraw: bool,
    key: PRNGKeyArray,
) -> EpochRows:
    """Return the rows and the order of one epoch.

    Args:
        chunks: numbers and sizes.
        n_anchors: anchors to draw from.
        epoch: folded into the key.
        redraw: draw the rows anew in each epoch; else only the order changes.
        key: the same for all epochs.
    """
    key_order, key_chunks = jax.random.split(jax.random.fold_in(key, epoch))
    if not redraw:
        key_chunks = key
    key_x, key_y, key_anchors = jax.random.split(key_chunks, 3)
    return EpochRows(
        order=jax.random.permutation(key_order, chunks.steps),
        x=draw_chunks(chunks.n, chunks.size_x, chunks.pool_steps, key=key_x),
        y=draw_chunks(chunks.m, chunks.size_y, chunks.pool_steps, key=key_y),
        anchors=draw_chunks(
            n_anchors, chunks.anchor_size, chunks.anchor_steps, key=key_anchors
        ),
    )


def draw_chunks(
    n: int, size: int, n_chunks: int, *, key: PRNGKeyArray
) -> Int[Array, "chunks size"]:
    """Return row numbers: the pool reshuffled until there are enough chunks."""
    if size == 0 or n_chunks == 0:
        return jnp.zeros((0, size), jnp.int32)
    a_shuffle = n // size
    keys = jax.random.split(key, math.ceil(n_chunks / a_shuffle))
    shuffles = jax.vmap(lambda key: jax.random.permutation(key, n))(keys)
    rows = shuffles[:, : a_shuffle * size].reshape(-1, size)
    return rows[:n_chunks]
