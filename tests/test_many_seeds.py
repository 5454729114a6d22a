"""Many seeds in one program: the students of the same fits one by one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
from anchordot_jax import many_seeds
from anchordot_jax.config import DistillationConfig
from anchordot_jax.distillation import Anchors, Pools, train
from anchordot_jax.errors import InputError

N, M, N_ANCHORS, DIM_X, DIM_Y, SEEDS = 40, 33, 12, 10, 8, 3
CONFIG = DistillationConfig(
    dim=6, epochs=4, chunk_size=10, warmup_steps=2, learning_rate=1e-2
)


def planted(seed):
    """Return pools and anchors of one seed: two linear views of latent rows."""
    random = np.random.default_rng(seed)
    views = random.normal(size=(4, DIM_X)), random.normal(size=(4, DIM_Y))
    z_x, z_y, z_a = (
        reference.unit_rows(n, 4, 10 * seed + n) for n in (N, M, N_ANCHORS)
    )
    given = (z_x @ views[0], z_y @ views[1], z_x, z_y, np.zeros(N), np.zeros(M))
    pools = Pools(*(jnp.asarray(a, jnp.float32) for a in (*given, np.asarray(0.1))))
    sides = (z_a @ view for view in views)
    return pools, Anchors(*(jnp.asarray(side, jnp.float32) for side in sides))


def keys(seed, count=SEEDS):
    """Return some keys."""
    return jax.random.split(jax.random.key(seed), count)


def assert_close(one, two):
    """Fail unless all arrays are the same to float32 rounding."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), one, two)


def test_shared_data_and_order_one_by_one():
    """Entry s is the training with the students' key s, the pools being the same."""
    pools, anchors = planted(0)
    together = many_seeds.train_many(
        pools, anchors, config=CONFIG, keys_students=keys(1), key_chunks=keys(2)[0]
    )
    alone = [
        train(pools, anchors, config=CONFIG, key_students=key, key_chunks=keys(2)[0])
        for key in keys(1)
    ]
    found = many_seeds.unstack(together)
    for one, other in zip(found, alone, strict=True):
        assert_close(one, other.params)
    kernels = [one["x"]["linear"]["kernel"] for one in found]
    assert float(jnp.max(jnp.abs(kernels[0] - kernels[1]))) > 0.1


@pytest.mark.slow
def test_own_data_and_order_one_by_one():
    """The same where every seed has pools, anchors and a chunk order of its own."""
    pools, anchors = zip(*map(planted, range(SEEDS)), strict=True)
    together = many_seeds.train_many(
        many_seeds.stack(pools),
        many_seeds.stack(anchors),
        config=CONFIG,
        keys_students=keys(1),
        key_chunks=keys(2),
    )
    for s, found in enumerate(many_seeds.unstack(together)):
        alone = train(
            pools[s],
            anchors[s],
            config=CONFIG,
            key_students=keys(1)[s],
            key_chunks=keys(2)[s],
        )
        assert_close(found, alone.params)


def test_one_order_for_all_computes_only_its_own_branch(monkeypatch):
    """With one chunk key the step branches; with a key a seed it computes both."""
    pools, anchors = planted(0)

    def branches(key):
        def epoch(key):
            return many_seeds.train_many(
                pools,
                anchors,
                config=dataclasses.replace(CONFIG, epochs=1),
                keys_students=keys(1),
                key_chunks=key,
            )

        return str(jax.make_jaxpr(epoch)(key)).count("cond[")

    # The loss of an epoch that is only traced has no value to look at.
    monkeypatch.setattr(many_seeds, "_check_finite", lambda *arguments: None)
    assert branches(keys(2)[0]) == branches(keys(2)) + 1


@pytest.mark.slow
def test_a_diverging_seed_is_named():
    """The seed whose loss is not finite is named, and the epoch."""
    pools, anchors = planted(0)
    spoilt = pools._replace(x=pools.x.at[:].set(jnp.nan))
    with pytest.raises(FloatingPointError, match=r"seed number 1 .* after epoch 1"):
        many_seeds.train_many(
            many_seeds.stack([pools, spoilt, pools]),
            many_seeds.stack([anchors] * SEEDS),
            config=CONFIG,
            keys_students=keys(1),
            key_chunks=keys(2),
        )


def test_what_does_not_fit_is_refused():
    """Different shapes, no seeds, and keys of different numbers are refused."""
    pools, anchors = planted(0)
    shorter = pools._replace(x=pools.x[1:])
    with pytest.raises(InputError, match="the same shapes"):
        many_seeds.stack([pools, shorter])
    with pytest.raises(InputError, match="0 trees"):
        many_seeds.stack([])
    with pytest.raises(InputError, match="3 keys for the students and 2 for"):
        many_seeds.train_many(
            pools,
            anchors,
            config=CONFIG,
            keys_students=keys(1),
            key_chunks=keys(2, 2),
        )
