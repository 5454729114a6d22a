"""The distillation of one epoch over many devices: the same chunks, loss and steps.

Both pools lie spread over the devices. For each chunk all devices put its rows
together, each works on an equal share of the x rows with all y rows, and the gradients
are summed. Only the columns' sums need a word in between.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, PRNGKeyArray

from anchordot_jax import geometry
from anchordot_jax.config import DistillationConfig
from anchordot_jax.distillation import (
    Anchors,
    ChunkPlan,
    EpochMetrics,
    Pools,
    TrainState,
    pair_logits,
    run_epoch,
)
from anchordot_jax.parallel.exchange import (
    fetch_rows,
    log_sum_over_devices,
    sum_over_devices,
)
from anchordot_jax.parallel.mesh import ROWS
from anchordot_jax.students import Params


@functools.partial(
    jax.jit, static_argnames=("config", "chunks", "mesh"), donate_argnames=("state",)
)
def train_epoch(
    state: TrainState,
    pools: Pools,
    anchors: Anchors,
    *,
    config: DistillationConfig,
    chunks: ChunkPlan,
    key: PRNGKeyArray,
    mesh: Mesh,
) -> tuple[TrainState, EpochMetrics]:
    """Return what `distillation.train_epoch` does, to float32 rounding.

    Args:
        state: on every device; donated.
        pools: rows and coordinates spread over the mesh (`mesh.shard_rows`), the
            potentials and weights on every device.
        anchors: on every device.
        config: the schedule.
        chunks: of the pools' own rows, without what fills them up.
        key: fixes the chunks.
        mesh: see `mesh.make_mesh`.
    """

    def epoch(
        state: TrainState, pools: Pools, anchors: Anchors, key: Array
    ) -> tuple[TrainState, EpochMetrics]:
        def gradient(params: Params, i: Array, j: Array) -> tuple[Array, Params]:
            return pool_gradient(
                params, pools, i, j, n_devices=mesh.size, matmul=config.matmul
            )

        return run_epoch(
            state, gradient, anchors, config=config, chunks=chunks, key=key
        )

    by_rows, whole = PartitionSpec(ROWS), PartitionSpec()
    places: list[Any] = [*4 * [by_rows], *3 * [whole]]
    where = Pools(*places)
    if pools.weights_x is not None:
        where = where._replace(weights_x=whole, weights_y=whole)  # type: ignore[arg-type]
    # Every device ends with the same, which JAX's check cannot see.
    shared = jax.shard_map(
        epoch,
        mesh=mesh,
        in_specs=(whole, where, whole, whole),
        out_specs=whole,
        check_vma=False,
    )
    after: tuple[TrainState, EpochMetrics] = shared(state, pools, anchors, key)
    return after


def pool_gradient(
    params: Params,
    pools: Pools,
    i: Array,
    j: Array,
    *,
    n_devices: int,
    matmul: str | None = None,
) -> tuple[Array, Params]:
    """Return a chunk's loss and gradient, inside `shard_map`, on every device.

    The loss of `distillation.soft_contrastive_loss` is a sum over rows, but for the
    log-sum-exp of each column. Rows that only make the devices' shares equal are left
    out of all sums.
    """
    b, c = len(i), len(j)
    share = -(-b // n_devices)
    # A number past the pool for the rows that fill up the last shares.
    filled = jnp.pad(i, (0, share * n_devices - b), constant_values=2**30)
    x, p, y, q = fetch_rows(
        (pools.x, filled),
        (pools.coordinates_x, filled),
        (pools.y, j),
        (pools.coordinates_y, j),
    )
    start = jax.lax.axis_index(ROWS) * share
    own_x, own_p, own_i = (
        jax.lax.dynamic_slice_in_dim(rows, start, share) for rows in (x, p, filled)
    )
    real = (start + jnp.arange(share) < b)[:, None]
    cost = geometry.cost_block(own_p, q)
    plan_rows = (pools.g[j][None, :] - cost) / pools.epsilon
    own_rows = jnp.where(real[:, 0], own_i, 0)
    f = pools.f[own_rows]
    plan_columns = (f[:, None] - cost) / pools.epsilon
    logits, pull_back = jax.vjp(
        lambda params: pair_logits(params, own_x, y, matmul=matmul), params
    )

    masked = [jnp.where(real, z, -jnp.inf) for z in (plan_columns, logits)]
    column_sums = log_sum_over_devices(
        jnp.stack([jax.nn.logsumexp(z, axis=0) for z in masked])
    )
    rows = jax.nn.logsumexp(logits, axis=1, keepdims=True)
    by_row, by_column = jnp.ones((share, 1)), jnp.ones((1, c))
    if pools.weights_x is not None and pools.weights_y is not None:
        by_row, by_column = (
            pools.weights_x[own_rows][:, None],
            pools.weights_y[j][None, :],
        )
    targets = jnp.where(
        real,
        by_row * jax.nn.softmax(plan_rows, axis=1) / b
        + by_column * jnp.exp(plan_columns - column_sums[0][None, :]) / c,
        0.0,
    )
    softmaxes = jnp.where(
        real,
        by_row * jnp.exp(logits - rows) / b
        + by_column * jnp.exp(logits - column_sums[1][None, :]) / c,
        0.0,
    )
    (gradient,) = pull_back((softmaxes - targets) / 2)
    own_loss = jnp.sum(by_row * rows, where=real) / b - jnp.sum(targets * logits)
    flat, unravel = ravel_pytree(gradient)
    total, summed = sum_over_devices(own_loss, flat)
    return (total + jnp.mean(by_column[0] * column_sums[1])) / 2, unravel(summed)
