"""Products of factors rounded to bfloat16: what is rounded, and what is not."""

import dataclasses

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import anchordot_jax as ad
from anchordot_jax import distillation, many_seeds
from anchordot_jax.config import DistillationConfig
from anchordot_jax.parallel.mesh import make_mesh, replicate, shard_rows
from anchordot_jax.training import spread_distillation
from anchordot_jax.training.rounded_matmul import product

N, M, R, N_ANCHORS, DIM_X, DIM_Y = 24, 20, 6, 12, 10, 8
CONFIG = DistillationConfig(
    dim=16, epochs=2, chunk_size=16, warmup_steps=2, matmul="bfloat16"
)
CHUNKS = distillation.plan_chunks(N, M, N_ANCHORS, CONFIG.chunk_size)
# The relative error of a number rounded to bfloat16's 8 bits.
ROUNDING = 2.0**-8


def rows(n, d, seed):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def problem():
    """Return random pools and anchors."""
    unit = [z / np.linalg.norm(z, axis=1, keepdims=True) for z in
            (rows(N, R, 2), rows(M, R, 3))]  # fmt: skip
    zeros = np.zeros(N, np.float32), np.zeros(M, np.float32), np.float32(0.1)
    arrays = (rows(N, DIM_X, 0), rows(M, DIM_Y, 1), *unit, *zeros)
    pools = distillation.Pools(*map(jnp.asarray, arrays))
    anchors = rows(N_ANCHORS, DIM_X, 4), rows(N_ANCHORS, DIM_Y, 5)
    return pools, distillation.Anchors(*map(jnp.asarray, anchors))


def start(config=CONFIG, seed=0):
    return distillation.init_training(
        DIM_X, DIM_Y, config, total_steps=8, key=jax.random.key(seed)
    )


def product_types(jaxpr):
    """Yield the types of both factors and of the result of every matrix product."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            ends = *equation.invars, *equation.outvars
            yield tuple(str(end.aval.dtype) for end in ends)
        for value in equation.params.values():
            inside = getattr(value, "jaxpr", value)
            if hasattr(inside, "eqns"):
                yield from product_types(inside)


def test_factors_are_rounded_and_sums_are_not():
    """The float64 product of rounded factors, where a bfloat16 sum stands still."""
    a, b = rows(5, 700, 0), rows(700, 3, 1)
    rounded = [part.astype(ml_dtypes.bfloat16).astype(np.float64) for part in (a, b)]
    found = product(a, b, "bfloat16")
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, rounded[0] @ rounded[1], rtol=1e-5, atol=1e-4)
    assert np.abs(found - a.astype(np.float64) @ b).max() > 1e-3
    # In bfloat16 256 + 1 is 256.
    ones = np.ones((1, 1000), np.float32)
    assert float(product(ones, ones.T, "bfloat16")[0, 0]) == 1000
    np.testing.assert_array_equal(product(a, b, "float32"), jnp.matmul(a, b))


def test_the_gradients_products_are_rounded_too():
    """Each of the three products multiplies bfloat16 numbers and sums in float32."""

    def total(a, b):
        return jnp.sum(jnp.sin(product(a, b, "bfloat16")))

    a, b = rows(5, 7, 0), rows(7, 3, 1)
    program = jax.make_jaxpr(jax.grad(total, argnums=(0, 1)))(a, b)
    types = list(product_types(program.jaxpr))
    assert types == 3 * [("bfloat16", "bfloat16", "float32")]
    rounded = jax.grad(total, argnums=(0, 1))(a, b)
    exact = jax.grad(lambda a, b: jnp.sum(jnp.sin(a @ b)), argnums=(0, 1))(a, b)
    for one, other in zip(rounded, exact, strict=True):
        error = np.abs(one - other).max()
        assert 0 < error < 8 * ROUNDING * np.abs(other).max()


@pytest.mark.parametrize("weighted", [False, True])
def test_loss_and_gradient_are_near_those_of_float32(weighted):
    """The chunk's loss and every gradient, within the rounding of the factors."""
    pools, _ = problem()
    if weighted:
        pools = pools._replace(weights_x=jnp.ones(N), weights_y=jnp.ones(M))
    plain = dataclasses.replace(CONFIG, matmul="float32")
    params = start().params
    value = jax.value_and_grad(distillation.chunk_loss)
    loss, gradient = value(params, pools, CONFIG)
    exact_loss, exact = value(params, pools, plain)
    assert 0 < abs(float(loss - exact_loss)) < ROUNDING * float(exact_loss)
    flat, flat_exact = (jax.tree.leaves(tree) for tree in (gradient, exact))
    for one, other in zip(flat, flat_exact, strict=True):
        assert one.dtype == jnp.float32
        error = jnp.linalg.norm(one - other) / jnp.linalg.norm(other)
        assert float(error) < 6 * ROUNDING


def test_many_seeds_and_several_devices_round_alike():
    """Seeds in one program, and pools spread over a mesh: the numbers of one device."""
    pools, anchors = problem()
    key = jax.random.key(7)
    keys = jax.random.split(jax.random.key(0), 2)
    together = many_seeds.train_many(
        pools, anchors, config=CONFIG, keys_students=keys, key_chunks=key
    )
    for one, own in zip(many_seeds.unstack(together), keys, strict=True):
        alone = distillation.train(
            pools, anchors, config=CONFIG, key_students=own, key_chunks=key
        )
        for a, b in zip(*map(jax.tree.leaves, (one, alone.params)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)

    mesh = make_mesh("1")
    spread = distillation.Pools(
        *(shard_rows(part, mesh) for part in pools[:4]), *replicate(pools[4:7], mesh)
    )
    common = {"config": CONFIG, "chunks": CHUNKS, "key": key}
    ours, _ = spread_distillation.train_epoch(
        *replicate((start(),), mesh), spread, anchors, mesh=mesh, **common
    )
    theirs, _ = distillation.train_epoch(start(), pools, anchors, **common)
    for a, b in zip(*map(jax.tree.leaves, (ours.params, theirs.params)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_clip_art_is_found_as_well():
    """Rounded products cost less than a point of recall at 10 on real embeddings."""
    art = ad.load_openclipart()
    split = ad.protocol_split(len(art.image), seed=0, anchors=300, test=400)
    found = {}
    for matmul in ("float32", "bfloat16"):
        training = DistillationConfig(
            dim=128, epochs=40, chunk_size=300, warmup_steps=40, matmul=matmul
        )
        config = ad.Config(
            recipe="paper", gamma=0.75, eta=0.02, bank_size=0, distillation=training
        )
        model = ad.AnchorDOT(config).fit(
            art.image,
            art.text,
            split.anchors,
            test_pairs=split.test_pairs,
            pool_x=art.image[split.pool_x[:600]],
            pool_y=art.text[split.pool_y[:600]],
        )
        metrics = model.evaluate(art.image, art.text, split.test_pairs)
        found[matmul] = np.mean([metrics[f"{way}/recall@10"] for way in ("x2y", "y2x")])
    assert found["float32"] > 0.2
    assert abs(found["bfloat16"] - found["float32"]) < 0.01
