"""Distillation: hand-worked losses, optimiser, chunks, epochs, resuming."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

import reference
from anchordot_jax.config import DistillationConfig
from anchordot_jax.distillation import (
    Anchors,
    ChunkPlan,
    Pools,
    given_plan,
    info_nce,
    init_training,
    plan_chunks,
    soft_contrastive_loss,
    train_epoch,
)
from anchordot_jax.distillation import train as train_all
from anchordot_jax.training.chunks import draw_chunks
from anchordot_jax.training.optimizer import clamp_scale, make_optimizer

N, M, N_ANCHORS, DIM_X, DIM_Y = 50, 35, 12, 10, 8
CONFIG = DistillationConfig(
    dim=16, epochs=30, chunk_size=16, warmup_steps=2, learning_rate=1e-2
)
CHUNKS = plan_chunks(N, M, N_ANCHORS, CONFIG.chunk_size)
# With this step size nothing moves: losses are those of the initial students.
STILL = dataclasses.replace(CONFIG, learning_rate=1e-30)

# Hand-worked features: Z = I and a rotation of two of its rows.
ROTATED = np.array([[1, 0, 0], [0, 0.8, 0.6], [0, -0.6, 0.8]], np.float32)


@functools.cache
def planted(seed=0):
    """Return pools and anchors that are two linear views of common latent rows."""
    random = np.random.default_rng(seed)
    view_x, view_y = random.normal(size=(4, DIM_X)), random.normal(size=(4, DIM_Y))
    z_x, z_y, z_a = (reference.unit_rows(n, 4, seed + n) for n in (N, M, N_ANCHORS))
    arrays = (z_x @ view_x, z_y @ view_y, z_x, z_y, np.zeros(N), np.zeros(M))
    pools = Pools(*(jnp.asarray(a, jnp.float32) for a in (*arrays, np.asarray(0.1))))
    anchors = Anchors(
        jnp.asarray(z_a @ view_x, jnp.float32), jnp.asarray(z_a @ view_y, jnp.float32)
    )
    return pools, anchors


@functools.cache
def drawn(config, chunks):
    total = config.epochs * chunks.steps
    key = jax.random.key(0)
    state = init_training(DIM_X, DIM_Y, config, total_steps=total, key=key)
    return jax.tree.map(np.array, state)


def start(config=CONFIG, chunks=CHUNKS):
    """Return a fresh copy of the initial state: an epoch uses its buffers up."""
    return jax.tree.map(jnp.array, drawn(config, chunks))


def train(epochs, state=None, *, config=CONFIG, chunks=CHUNKS, seed=1):
    """Return the state after some epochs on the planted data, and all metrics."""
    pools, anchors = planted()
    state = state or start(config, chunks)
    metrics = []
    for _ in range(epochs):
        state, last = train_epoch(
            state,
            pools,
            anchors,
            config=config,
            chunks=chunks,
            key=jax.random.key(seed),
        )
        metrics.append(last)
    return state, metrics


def steps_taken(state):
    """Return the optimiser's count of steps, the same in all its parts."""
    found = optax.tree_utils.tree_get_all_with_path(state.opt_state, "count")
    (count,) = {int(count) for _, count in found}
    return count


def assert_identical(one, two):
    jax.tree.map(np.testing.assert_array_equal, one, two)


# Losses.


def test_loss_of_orthonormal_pairs():
    """With f = g and orthonormal outputs, n = 3: L = log(1 + 2 exp(-s))."""
    for scale in (1.0, 3.0):
        logits = scale * jnp.eye(3)
        expected = np.log1p(2 * np.exp(-scale))
        np.testing.assert_allclose(info_nce(logits), expected, rtol=1e-6)
    # float32 resolves it to an ulp of the logit only.
    logits = jnp.eye(3) / 0.07
    np.testing.assert_allclose(info_nce(logits), 1.2497491e-6, atol=1e-6)


@pytest.mark.parametrize(("scale", "loss"), [(1.0, 0.632866), (1 / 0.07, 0.0186221)])
def test_loss_of_a_rotated_pair(scale, loss):
    """The worked example of two rotated rows."""
    logits = scale * jnp.asarray(ROTATED)
    np.testing.assert_allclose(info_nce(logits), loss, atol=1.5e-6)


@pytest.mark.parametrize("n", [2, 5])
def test_loss_at_chance(n):
    """Zero features: L = log n, for hard and for soft targets."""
    logits = jnp.zeros((n, n))
    np.testing.assert_allclose(info_nce(logits), np.log(n), rtol=1e-6)
    uniform = jnp.full((n, n), 1 / n)
    loss = soft_contrastive_loss(logits, uniform, uniform)
    np.testing.assert_allclose(loss, np.log(n), rtol=1e-6)


def test_soft_loss_by_hand():
    """The worked plan [[.5, .1], [.2, .2]] with f = g = I, s = 2: L = 0.769785."""
    plan = np.array([[0.5, 0.1], [0.2, 0.2]])
    rows = jnp.asarray(plan / plan.sum(axis=1, keepdims=True), jnp.float32)
    columns = jnp.asarray(plan / plan.sum(axis=0, keepdims=True), jnp.float32)
    loss = soft_contrastive_loss(2 * jnp.eye(2), rows, columns)
    np.testing.assert_allclose(loss, 0.769785, atol=1e-6)


def random_targets(n, m, seed):
    """Return logits and targets of some plan, float32."""
    random = np.random.default_rng(seed)
    plan = random.uniform(0.1, 1, (n, m)) ** 3
    rows, columns = plan / plan.sum(1, keepdims=True), plan / plan.sum(0, keepdims=True)
    arrays = (3 * random.normal(size=(n, m)), rows, columns)
    return tuple(jnp.asarray(array, jnp.float32) for array in arrays)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10_000), shape=st.sampled_from([(6, 6), (6, 4)]))
def test_soft_loss_is_the_reference(seed, shape):
    """The soft loss is the float64 cross-entropy, for n != m too."""
    logits, rows, columns = random_targets(*shape, seed)
    found = soft_contrastive_loss(logits, rows, columns)
    expected = reference.soft_loss(logits, np.asarray(rows), np.asarray(columns))
    np.testing.assert_allclose(found, expected, rtol=2e-6)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000))
def test_weighted_loss_is_the_reference(seed):
    """Each row's and each column's cross-entropy counts by its weight; 1 is none."""
    logits, rows, columns = random_targets(6, 4, seed)
    random = np.random.default_rng(seed)
    w, v = (jnp.asarray(random.uniform(0, 3, n), jnp.float32) for n in (6, 4))
    found = soft_contrastive_loss(logits, rows, columns, (w, v))
    expected = reference.soft_loss(
        logits, np.asarray(rows), np.asarray(columns), (w, v)
    )
    np.testing.assert_allclose(found, expected, rtol=5e-6)
    same = soft_contrastive_loss(logits, rows, columns, (jnp.ones(6), jnp.ones(4)))
    plain = soft_contrastive_loss(logits, rows, columns)
    np.testing.assert_allclose(same, plain, rtol=1e-6)


def test_gradient_of_the_weighted_loss():
    """It is that of plain differentiation; what weighs nothing has no part in it."""
    logits, rows, columns = random_targets(6, 4, 3)
    w = jnp.asarray([0.0, 3.0, 1.0, 0.5, 1.0, 0.5])
    v = jnp.asarray([2.0, 0.0, 1.0, 1.0])

    def plain(logits):
        x_to_y = -jnp.sum(rows * jax.nn.log_softmax(logits, axis=1), axis=1)
        y_to_x = -jnp.sum(columns * jax.nn.log_softmax(logits, axis=0), axis=0)
        return (jnp.mean(w * x_to_y) + jnp.mean(v * y_to_x)) / 2

    def loss(logits):
        return soft_contrastive_loss(logits, rows, columns, (w, v))

    np.testing.assert_allclose(
        jax.grad(loss)(logits), jax.grad(plain)(logits), atol=1e-7
    )
    assert float(jnp.abs(jax.grad(loss)(logits)[0, 1])) < 1e-8


def test_weights_of_one_train_the_same_students_and_zeros_leave_rows_out():
    """An epoch with weights of 1 is the plain one; rows of weight 0 could be any."""
    pools, anchors = planted()
    ones = pools._replace(weights_x=jnp.ones(N), weights_y=jnp.ones(M))
    # The last rows weigh nothing, and neither do the columns as targets of theirs.
    some = jnp.where(jnp.arange(N) < 40, N / 40, 0)
    weighted = pools._replace(weights_x=some, weights_y=jnp.zeros(M))
    losses = []
    for case in (pools, ones, weighted):
        _, metrics = train_epoch(
            start(STILL), case, anchors, config=STILL, chunks=CHUNKS,
            key=jax.random.key(1),
        )  # fmt: skip
        losses.append(float(metrics.pool_loss))
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    # Columns count nothing and rows as before on average: about half is left.
    assert losses[2] == pytest.approx(losses[0] / 2, rel=0.2)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000))
def test_info_nce_is_the_soft_loss_of_the_identity(seed):
    """InfoNCE is the soft loss with identity targets."""
    logits, _, _ = random_targets(6, 6, seed)
    soft = soft_contrastive_loss(logits, jnp.eye(6), jnp.eye(6))
    np.testing.assert_allclose(info_nce(logits), soft, rtol=1e-5)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000))
def test_common_order_and_rotation_change_nothing(seed):
    """A joint permutation of the pairs, or one rotation of both sides, leaves L."""
    random = np.random.default_rng(seed)
    f, g = reference.unit_rows(6, 4, seed), reference.unit_rows(6, 4, seed + 1)
    before = info_nce(jnp.asarray(5 * f @ g.T))
    order = random.permutation(6)
    after = info_nce(jnp.asarray(5 * f[order] @ g[order].T))
    np.testing.assert_allclose(after, before, rtol=1e-5)
    turn = np.linalg.qr(random.normal(size=(4, 4)))[0].astype(np.float32)
    after = info_nce(jnp.asarray(5 * (f @ turn) @ (g @ turn).T))
    np.testing.assert_allclose(after, before, rtol=1e-5)


@pytest.mark.parametrize("shape", [(6, 6), (6, 4)])
def test_gradient_of_the_soft_loss(shape):
    """dL/dlogits = 1/2 [(P_row - T_row)/n + (P_col - T_col)/m], and its sum is 0."""
    logits, rows, columns = random_targets(*shape, 3)
    found = jax.grad(soft_contrastive_loss)(logits, rows, columns)
    n, m = shape
    p_row, p_col = (jax.nn.softmax(logits, axis=axis) for axis in (1, 0))
    expected = ((p_row - rows) / n + (p_col - columns) / m) / 2
    np.testing.assert_allclose(found, expected, atol=1e-7)
    np.testing.assert_allclose(found.sum(), 0, atol=1e-6)


def test_gradient_by_finite_differences():
    """The soft loss's reverse-mode gradient agrees with finite differences."""
    logits, rows, columns = random_targets(6, 4, 3)
    loss = jax.jit(lambda logits: soft_contrastive_loss(logits, rows, columns))
    check_grads(loss, (logits,), order=1, modes=("rev",), rtol=1e-2, atol=1e-3)


def test_gradient_of_info_nce():
    """dL/dlogits = 1/(2n) [(P_row - I) + (P_col - I)]."""
    logits, _, _ = random_targets(6, 6, 4)
    found = jax.grad(info_nce)(logits)
    p_row, p_col = (jax.nn.softmax(logits, axis=axis) for axis in (1, 0))
    expected = (p_row + p_col - 2 * jnp.eye(6)) / 12
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_soft_loss_of_extreme_logits_is_finite():
    """Logits of the largest scale and one-hot targets give no NaN."""
    logits = 100 * (2 * jnp.eye(6) - 1)
    loss, gradient = jax.value_and_grad(soft_contrastive_loss)(
        -logits, jnp.eye(6), jnp.eye(6)
    )
    np.testing.assert_allclose(loss, 200 + np.log(5), rtol=1e-6)
    assert bool(jnp.isfinite(gradient).all())


# Chunks.


@pytest.mark.parametrize(
    ("n", "m", "n_anchors", "expected"),
    [
        pytest.param(50, 35, 12, (16, 16, 3, 12, 1), id="n != m"),
        pytest.param(7, 50, 12, (7, 16, 3, 12, 1), id="x pool < chunk"),
        pytest.param(7, 9, 12, (7, 9, 1, 12, 1), id="both pools < chunk"),
        pytest.param(16, 16, 16, (16, 16, 1, 16, 1), id="exactly a chunk"),
        pytest.param(50, 35, 40, (16, 16, 3, 13, 3), id="many anchors"),
        pytest.param(50, 35, 17, (16, 16, 3, 8, 2), id="one anchor too many"),
        pytest.param(50, 35, 2, (16, 16, 3, 2, 1), id="N = 2"),
        pytest.param(0, 0, 12, (0, 0, 0, 12, 1), id="no pools"),
        pytest.param(50, 0, 12, (16, 0, 0, 12, 1), id="one pool"),
        pytest.param(1, 1, 2, (1, 1, 1, 2, 1), id="pools of one"),
    ],
)
def test_plan_chunks(n, m, n_anchors, expected):
    """The sizes and numbers of an epoch's chunks of 16."""
    found = plan_chunks(n, m, n_anchors, 16)
    assert found == ChunkPlan(n, m, *expected)
    assert found.steps == found.pool_steps + found.anchor_steps


@settings(deadline=None, max_examples=25)
@given(
    n=st.integers(1, 300),
    m=st.integers(1, 300),
    n_anchors=st.integers(2, 100),
    size=st.integers(2, 64),
)
def test_chunks_fit_the_pools(n, m, n_anchors, size):
    """No chunk is larger than B or its pool; both pools are gone through."""
    found = plan_chunks(n, m, n_anchors, size)
    assert found.size_x == min(n, size)
    assert found.size_y == min(m, size)
    assert found.pool_steps == max(n // found.size_x, m // found.size_y)
    assert 1 <= found.anchor_size <= size
    assert found.anchor_size * found.anchor_steps <= n_anchors
    assert n_anchors - found.anchor_size * found.anchor_steps < found.anchor_steps


def test_drawn_chunks_are_disjoint_within_a_shuffle(next_key):
    """Each shuffle of 23 rows gives four disjoint chunks of 5; then comes the next."""
    rows = np.asarray(draw_chunks(23, 5, 10, key=next_key()))
    assert rows.shape == (10, 5)
    for shuffle in (rows[:4], rows[4:8], rows[8:]):
        values = shuffle.ravel()
        assert len(set(values)) == len(values)
        assert set(values) <= set(range(23))
    assert set(rows[:4].ravel()) != set(rows[4:8].ravel())


def test_drawn_chunks_of_a_whole_pool(next_key):
    """A chunk as large as the pool is the whole pool every time."""
    rows = np.asarray(draw_chunks(7, 7, 3, key=next_key()))
    np.testing.assert_array_equal(np.sort(rows, axis=1), np.tile(np.arange(7), (3, 1)))
    assert draw_chunks(0, 0, 0, key=next_key()).shape == (0, 0)


# Optimiser.


def test_weight_decay_touches_matrices_only():
    """At zero gradient the kernels shrink by rate x decay, all other leaves stay."""
    config = dataclasses.replace(CONFIG, weight_decay=0.3)
    optimizer = make_optimizer(config, 10)
    state = start(config)
    params = jax.tree.map(lambda leaf: leaf + 0.5, state.params)
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, _ = jax.jit(optimizer.update)(zeros, optimizer.init(params), params)
    after = optax.apply_updates(params, updates)
    rate = config.learning_rate / config.warmup_steps
    for side in ("x", "y"):
        kernel = params[side]["linear"].pop("kernel")
        np.testing.assert_allclose(
            after[side]["linear"].pop("kernel"), kernel * (1 - rate * 0.3), rtol=1e-6
        )
    assert_identical(after, params)


@pytest.mark.parametrize("warmup", [0, 1, 4])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_learning_rate_schedule(warmup, schedule):
    """Adam's step under a constant gradient is the rate: rising, then as asked."""
    config = dataclasses.replace(
        CONFIG, warmup_steps=warmup, schedule=schedule, weight_decay=0.0
    )
    total = 10
    optimizer = make_optimizer(config, total)
    params = {"w": jnp.zeros(3)}
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    steps = []
    for _ in range(total):
        updates, state = update({"w": jnp.ones(3)}, state, params)
        steps.append(-float(updates["w"][0]))
    k = np.arange(total)
    after = np.ones(total)
    if schedule == "cosine":
        after = (1 + np.cos(np.pi * (k - warmup) / (total - warmup))) / 2
    shape = np.where(k < warmup, (k + 1) / max(1, warmup), after)
    np.testing.assert_allclose(steps, config.learning_rate * shape, rtol=1e-4)


def test_logit_scale_is_clamped_at_100():
    """After an artificially large update the scale is 100, not more."""
    params = start().params
    large = {**params, "log_scale": jnp.asarray(9.0)}
    clamped = clamp_scale(large, 100.0)
    np.testing.assert_allclose(clamped["log_scale"], 4.605170, atol=5e-7)
    assert clamped["log_scale"].dtype == jnp.float32
    assert_identical(clamped["x"], large["x"])
    np.testing.assert_array_equal(
        clamp_scale(params, 100.0)["log_scale"], params["log_scale"]
    )
    state = start()
    state = state._replace(params={**state.params, "log_scale": jnp.float32(9.0)})
    state, metrics = train(1, state)
    assert float(metrics[0].logit_scale) <= 100 * (1 + 1e-6)
    assert float(state.params["log_scale"]) > 4.5


# Epochs.


def test_first_losses_are_the_reference():
    """With one chunk of each kind, the losses are those of the initial students."""
    config = dataclasses.replace(STILL, chunk_size=64)
    chunks = plan_chunks(N, M, N_ANCHORS, 64)
    assert chunks == ChunkPlan(N, M, N, M, 1, N_ANCHORS, 1)
    params = start(config, chunks).params
    _, (metrics,) = train(1, config=config, chunks=chunks)
    pools, anchors = planted()
    scale = np.exp(float(params["log_scale"]))

    def logits(x, y):
        return scale * (
            reference.student(x, params["x"]) @ reference.student(y, params["y"]).T
        )

    costs = reference.cost(pools.coordinates_x, pools.coordinates_y)
    plan = reference.plan(costs, pools.f, pools.g, float(pools.epsilon))
    rows = plan / plan.sum(axis=1, keepdims=True)
    columns = plan / plan.sum(axis=0, keepdims=True)
    expected = reference.soft_loss(logits(pools.x, pools.y), rows, columns)
    np.testing.assert_allclose(metrics.pool_loss, expected, rtol=2e-5)
    identity = np.eye(N_ANCHORS)
    expected = reference.soft_loss(logits(*anchors), identity, identity)
    np.testing.assert_allclose(metrics.anchor_loss, expected, rtol=2e-5)
    np.testing.assert_allclose(metrics.logit_scale, scale, rtol=1e-5)


def test_targets_follow_the_drawn_rows():
    """Potentials, coordinates and embeddings of a chunk are those of the same rows."""
    pools, anchors = planted()
    random = np.random.default_rng(3)
    pools = pools._replace(
        f=jnp.asarray(random.normal(scale=0.3, size=N), jnp.float32),
        g=jnp.asarray(random.normal(scale=0.3, size=M), jnp.float32),
    )
    order_x, order_y = random.permutation(N), random.permutation(M)
    shuffled = Pools(
        pools.x[order_x],
        pools.y[order_y],
        pools.coordinates_x[order_x],
        pools.coordinates_y[order_y],
        pools.f[order_x],
        pools.g[order_y],
        pools.epsilon,
    )
    config = dataclasses.replace(STILL, chunk_size=64)
    chunks = plan_chunks(N, M, N_ANCHORS, 64)
    losses = []
    for some in (pools, shuffled, pools._replace(f=pools.f[order_x])):
        _, metrics = train_epoch(
            start(config, chunks),
            some,
            anchors,
            config=config,
            chunks=chunks,
            key=jax.random.key(1),
        )
        losses.append(float(metrics.pool_loss))
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert abs(losses[2] - losses[0]) > 1e-3


@pytest.mark.slow
def test_chunks_are_redrawn_each_epoch():
    """With frozen students the mean pool loss changes only as the chunks do."""
    _, metrics = train(3, config=STILL)
    losses = [float(epoch.pool_loss) for epoch in metrics]
    assert min(abs(losses[0] - losses[1]), abs(losses[1] - losses[2])) > 1e-4
    kept = dataclasses.replace(STILL, redraw_chunks=False)
    _, metrics = train(3, config=kept)
    losses = [float(epoch.pool_loss) for epoch in metrics]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-6)


def test_epoch_counts_and_steps():
    """An epoch makes one step a chunk, and counts itself."""
    state, _ = train(2)
    assert ChunkPlan(N, M, 16, 16, 3, N_ANCHORS, 1) == CHUNKS
    assert int(state.epoch) == 2
    assert steps_taken(state) == 2 * CHUNKS.steps


def test_training_is_fixed_by_the_key():
    """The same key gives bit-identical parameters, another key others."""
    one, _ = train(2)
    two, _ = train(2)
    other, _ = train(2, seed=5)
    assert_identical(one, two)
    kernels = [state.params["x"]["linear"]["kernel"] for state in (one, other)]
    assert not np.array_equal(*kernels)


def test_resumed_is_uninterrupted():
    """Stopping, copying the state to the host and going on is bit-identical."""
    whole, metrics = train(4)
    half, _ = train(2)
    on_host = jax.tree.map(np.array, half)
    resumed, last = train(2, jax.tree.map(jnp.asarray, on_host))
    assert_identical(resumed, whole)
    assert_identical(last, metrics[2:])


def test_epochs_compile_once():
    """Several epochs, and a state that went through the host, use one compilation."""
    state, _ = train(1)
    before = train_epoch._cache_size()
    state, _ = train(2, state)
    train(1, jax.tree.map(lambda leaf: jnp.asarray(np.array(leaf)), state))
    assert train_epoch._cache_size() == before


def test_incoming_state_is_donated():
    """The old parameters' and moments' buffers are reused, not kept."""
    state = start()
    after, _ = train(1, state)
    old, new = state.params["x"]["linear"]["kernel"], jax.tree.leaves(after)
    assert old.is_deleted()
    assert not any(leaf.is_deleted() for leaf in new)


def test_no_leaf_becomes_weakly_typed():
    """Types stay what they were, so that every epoch is the same program."""
    after, _ = train(1)
    key = jax.random.key(0)
    before = init_training(DIM_X, DIM_Y, CONFIG, total_steps=99, key=key)
    assert jax.tree.structure(after) == jax.tree.structure(before)
    for new, old in zip(jax.tree.leaves(after), jax.tree.leaves(before), strict=True):
        assert (new.dtype, new.shape) == (old.dtype, old.shape)
        assert not new.aval.weak_type
        assert not old.aval.weak_type


def test_losses_fall_on_planted_pools():
    """On two views of common latent rows both losses fall well below chance."""
    _, metrics = train(CONFIG.epochs)
    pool_losses = [float(epoch.pool_loss) for epoch in metrics]
    anchor_losses = [float(epoch.anchor_loss) for epoch in metrics]
    assert np.isfinite(pool_losses + anchor_losses).all()
    assert pool_losses[-1] < 0.75 * min(pool_losses[0], np.log(16))
    assert anchor_losses[-1] < 0.5 * min(anchor_losses[0], np.log(N_ANCHORS))


def test_without_pools_only_anchors_teach():
    """No pools, anchors of three chunks: contrastive steps only, a falling loss."""
    _, anchors = planted()
    empty = (jnp.zeros((0, d)) for d in (DIM_X, DIM_Y, 4, 4))
    pools = Pools(*empty, jnp.zeros(0), jnp.zeros(0), jnp.asarray(1.0))
    config = dataclasses.replace(CONFIG, chunk_size=5)
    chunks = plan_chunks(0, 0, N_ANCHORS, 5)
    assert chunks == ChunkPlan(0, 0, 0, 0, 0, 4, 3)
    state, losses = start(config, chunks), []
    for _ in range(20):
        state, metrics = train_epoch(
            state,
            pools,
            anchors,
            config=config,
            chunks=chunks,
            key=jax.random.key(1),
        )
        losses.append(float(metrics.anchor_loss))
        assert np.isnan(metrics.pool_loss)
    assert steps_taken(state) == 20 * chunks.steps
    assert losses[-1] < 0.5 * losses[0]


def test_metrics_carry_the_scale():
    """The epoch's metrics carry the scale that its last step left."""
    state, (metrics,) = train(1)
    expected = np.exp(float(state.params["log_scale"]))
    np.testing.assert_allclose(metrics.logit_scale, expected, rtol=1e-6)


def whole_plan(log_plan):
    """Return the planted pools with a plan given whole."""
    pools, anchors = planted()
    return given_plan(pools.x, pools.y, log_plan), anchors


def test_a_plan_given_whole_teaches_the_same():
    """The log plan of the potentials, up to a constant, has the same targets."""
    pools, anchors = planted()
    cost = 1 - np.asarray(pools.coordinates_x) @ np.asarray(pools.coordinates_y).T
    log_plan = (
        np.asarray(pools.f)[:, None] + np.asarray(pools.g)[None, :] - cost
    ) / 0.1
    _, (expected,) = train(1)
    whole, _ = whole_plan(log_plan + 3.5)
    _, metrics = train_epoch(
        start(), whole, anchors, config=CONFIG, chunks=CHUNKS, key=jax.random.key(1)
    )
    np.testing.assert_allclose(metrics.pool_loss, expected.pool_loss, rtol=1e-5)
    np.testing.assert_allclose(metrics.anchor_loss, expected.anchor_loss, rtol=1e-5)
    other, _ = whole_plan(-log_plan)
    _, metrics = train_epoch(
        start(), other, anchors, config=CONFIG, chunks=CHUNKS, key=jax.random.key(1)
    )
    assert abs(metrics.pool_loss - expected.pool_loss) > 1e-3


def test_the_whole_training_is_its_epochs():
    """`train` is init_training and train_epoch, to the last bit."""
    pools, anchors = planted()
    keys = {"key_students": jax.random.key(0), "key_chunks": jax.random.key(1)}
    whole = train_all(pools, anchors, config=CONFIG, **keys)
    state, _ = train(CONFIG.epochs)
    assert int(whole.epoch) == CONFIG.epochs
    assert_identical(whole, state)


def test_a_plan_alone_can_teach():
    """Without anchors the pools' chunks are the only ones."""
    pools, _ = planted()
    assert plan_chunks(N, M, 0, CONFIG.chunk_size).anchor_steps == 0
    nobody = Anchors(jnp.zeros((0, DIM_X)), jnp.zeros((0, DIM_Y)))
    keys = {"key_students": jax.random.key(0), "key_chunks": jax.random.key(1)}
    state = train_all(pools, nobody, config=CONFIG, **keys)
    assert steps_taken(state) == CONFIG.epochs * CHUNKS.pool_steps
    start_kernel = start().params["x"]["linear"]["kernel"]
    assert not np.allclose(state.params["x"]["linear"]["kernel"], start_kernel)


def test_a_training_that_diverges_is_stopped():
    """A loss that is not finite ends the training with the epoch in the message."""
    pools, anchors = planted()
    spoilt = pools._replace(f=jnp.full(N, jnp.nan))
    keys = {"key_students": jax.random.key(0), "key_chunks": jax.random.key(1)}
    with pytest.raises(FloatingPointError, match="not finite after epoch 1"):
        train_all(spoilt, anchors, config=CONFIG, **keys)
