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
from jaxtyping import Array, Float, Int, PRNGKeyArray

from anchordot_jax import affinity, coupling
from anchordot_jax.arrays import AnyArray
from anchordot_jax.config import DistillationConfig
from anchordot_jax.students import Params, init_params


class TrainState(NamedTuple):
    """What the next step needs."""

    params: Params
    opt_state: optax.OptState
    epoch: Int[Array, ""]


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


def soft_contrastive_loss(
    logits: Float[AnyArray, "b c"],
    row_targets: Float[AnyArray, "b c"],
    column_targets: Float[AnyArray, "b c"],
    weights: tuple[Float[AnyArray, " b"], Float[AnyArray, " c"]] | None = None,
) -> Float[Array, ""]:
    """Return half the sum of the two directions' soft cross-entropies (Eq. 11-12).

    The targets and weights are constants: no gradient reaches them.

    Args:
        logits: of every x with every y.
        row_targets: rows that sum to one.
        column_targets: columns that sum to one.
        weights: of the rows' and of the columns' cross-entropies; None: all 1.
    """
    b, c = logits.shape
    if weights is None:
        return _cross_entropies(logits, row_targets / b + column_targets / c, None)
    by_row, by_column = weights[0][:, None], weights[1][None, :]
    targets = by_row * row_targets / b + by_column * column_targets / c
    return _cross_entropies(logits, targets, (by_row, by_column))


_Weights = tuple[Array, Array] | None


@jax.custom_vjp
def _cross_entropies(logits: Array, targets: Array, weights: _Weights) -> Array:
    """Return (mean_i w_i lse_j l_ij + mean_j v_j lse_i l_ij - <T, l>) / 2.

    With rows of the row targets, and columns of the column targets, that sum to one,
    this is the loss for T = w R / b + v K / c. Its gradient by hand reads the logits
    once more where the transposed program keeps and reads both softmaxes. No weights
    are weights of 1, without the products.
    """
    return _cross_entropies_forward(logits, targets, weights)[0]


def _cross_entropies_forward(
    logits: Array, targets: Array, weights: _Weights
) -> tuple[Array, tuple[Array, Array, _Weights, Array, Array]]:
    rows = jax.nn.logsumexp(logits, axis=1, keepdims=True)
    columns = jax.nn.logsumexp(logits, axis=0, keepdims=True)
    sums = [rows, columns]
    if weights is not None:
        sums = [sum_ * own for sum_, own in zip(sums, weights, strict=True)]
    loss = (jnp.mean(sums[0]) + jnp.mean(sums[1]) - jnp.sum(targets * logits)) / 2
    return loss, (logits, targets, weights, rows, columns)


def _cross_entropies_backward(
    residuals: tuple[Array, Array, _Weights, Array, Array], cotangent: Array
) -> tuple[Array, None, None]:
    logits, targets, weights, rows, columns = residuals
    b, c = logits.shape
    by_row, by_column = jnp.exp(logits - rows), jnp.exp(logits - columns)
    if weights is not None:
        by_row, by_column = by_row * weights[0], by_column * weights[1]
    softmaxes = by_row / b + by_column / c
    return cotangent * (softmaxes - targets) / 2, None, None


_cross_entropies.defvjp(_cross_entropies_forward, _cross_entropies_backward)


def info_nce(logits: Float[AnyArray, "b b"]) -> Float[Array, ""]:
    """Return the soft contrastive loss for the identity plan: the symmetric InfoNCE."""
    diagonal = jnp.diagonal(logits)
    x_to_y = jax.nn.logsumexp(logits, axis=1) - diagonal
    y_to_x = jax.nn.logsumexp(logits, axis=0) - diagonal
    return (jnp.mean(x_to_y) + jnp.mean(y_to_x)) / 2


def make_optimizer(
    config: DistillationConfig, total_steps: int
) -> optax.GradientTransformation:
    """Return AdamW with a linear warm-up; weight decay touches matrices only.

    LayerNorm's gains, biases and the logit scale are never decayed.
    """
    rate, warmup = config.learning_rate, config.warmup_steps
    # The first step already moves: its rate is rate / warmup, not 0.
    rise = optax.linear_schedule(rate / max(1, warmup), rate, max(1, warmup - 1))
    if config.schedule == "cosine":
        after = optax.cosine_decay_schedule(rate, max(1, total_steps - warmup))
    else:
        after = optax.constant_schedule(rate)
    return optax.adamw(
        optax.join_schedules([rise, after], [warmup]),
        weight_decay=config.weight_decay,
        mask=lambda params: jax.tree.map(lambda leaf: leaf.ndim >= 2, params),
    )


def init_training(
    dim_x: int,
    dim_y: int,
    config: DistillationConfig,
    *,
    total_steps: int,
    key: PRNGKeyArray,
    start: Params | None = None,
) -> TrainState:
    """Return the state before the first step, from given parameters or drawn ones."""
    # The state is donated to the first epoch, so the given ones are copied.
    params = (
        init_params(dim_x, dim_y, config.dim, temperature=config.temperature, key=key)
        if start is None
        else jax.tree.map(jnp.array, start)
    )
    optimizer = make_optimizer(config, total_steps)
    return TrainState(params, optimizer.init(params), jnp.asarray(0, jnp.int32))


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
        row_targets, column_targets = _targets(pools, i, j)
        logits = pair_logits(params, pools.x[i], pools.y[j])
        weights = _weights(pools, i, j)
        return soft_contrastive_loss(logits, row_targets, column_targets, weights)

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
    key_order, key_chunks = jax.random.split(jax.random.fold_in(key, state.epoch))
    if not config.redraw_chunks:
        key_chunks = key
    key_x, key_y, key_anchors = jax.random.split(key_chunks, 3)
    rows_x = _draw_chunks(chunks.n, chunks.size_x, chunks.pool_steps, key=key_x)
    rows_y = _draw_chunks(chunks.m, chunks.size_y, chunks.pool_steps, key=key_y)
    rows_anchors = _draw_chunks(
        len(anchors.x), chunks.anchor_size, chunks.anchor_steps, key=key_anchors
    )

    def pool_step(params: Params, step: Array) -> tuple[Array, Params]:
        return pool_gradient(params, rows_x[step], rows_y[step])

    def anchor_loss(params: Params, step: Array) -> Array:
        k = rows_anchors[step - chunks.pool_steps]
        return info_nce(pair_logits(params, anchors.x[k], anchors.y[k]))

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
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return (clamp_scale(params, config.max_logit_scale), opt_state), loss

    order = jax.random.permutation(key_order, chunks.steps)
    (params, opt_state), losses = jax.lax.scan(
        step, (state.params, state.opt_state), order
    )
    is_pool = order < chunks.pool_steps
    metrics = EpochMetrics(
        pool_loss=jnp.mean(losses, where=is_pool),
        anchor_loss=jnp.mean(losses, where=~is_pool),
        logit_scale=jnp.exp(params["log_scale"]),
    )
    return TrainState(params, opt_state, state.epoch + 1), metrics


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
    params: Params, x: Float[AnyArray, "b dx"], y: Float[AnyArray, "c dy"]
) -> Float[Array, "b c"]:
    """Return the students' logits s f(x) . g(y) of every x with every y."""
    rows = affinity.standardized_sides(x, y)
    return jnp.exp(params["log_scale"]) * affinity.cosines(params, *rows)


def _targets(pools: Pools, i: Array, j: Array) -> tuple[Array, Array]:
    """Return the plan's block normalised by row, and by column (Eq. 10)."""
    if pools.log_plan is not None:
        block = pools.log_plan[i[:, None], j[None, :]]
        return jax.nn.softmax(block, axis=1), jax.nn.softmax(block, axis=0)
    return coupling.block_targets(
        pools.coordinates_x[i],
        pools.coordinates_y[j],
        pools.f[i],
        pools.g[j],
        pools.epsilon,
    )


def _weights(pools: Pools, i: Array, j: Array) -> tuple[Array, Array] | None:
    """Return the weights of a chunk's rows and columns, where there are any."""
    if pools.weights_x is None or pools.weights_y is None:
        return None
    return pools.weights_x[i], pools.weights_y[j]


def clamp_scale(params: Params, max_logit_scale: float) -> Params:
    """Return the parameters with the logit scale limited, after CLIP."""
    limit = jnp.asarray(math.log(max_logit_scale), jnp.float32)
    return {**params, "log_scale": jnp.minimum(params["log_scale"], limit)}


def _draw_chunks(
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
