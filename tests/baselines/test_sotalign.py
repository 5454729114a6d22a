"""SOTAlign: both stages, every switch, and what it must equal."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import planted
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.baselines.sotalign import fit as sotalign
from anchordot_jax.baselines.sotalign import klot, noise, teacher
from anchordot_jax.baselines.sotalign.fit import SotalignSettings, fit_sotalign
from anchordot_jax.baselines.trained import sail
from anchordot_jax.errors import InputError

SMALL = SotalignSettings(
    steps=100, learning_rate=1e-2, dim=8, ridge=0.01, alpha_klot=1.0
)


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def problem(seed=0):
    """Return 14 anchors and the pools of the rest, 26 and 32 rows, all paired."""
    given = planted.problem(seed)
    x, y = unit(given.x), unit(given.y)
    rest_x = np.setdiff1d(np.arange(len(x)), given.pairs[:, 0])
    rest_y = np.setdiff1d(np.arange(len(y)), given.pairs[:, 1])
    anchors = Anchors(x[given.pairs[:, 0]], y[given.pairs[:, 1]])
    return anchors, Pools(x[rest_x], y[rest_y])


@functools.cache
def fit(seed=0, **changes):
    """Return a fit of the problem, made once a session: most of it is compilation."""
    anchors, pools = problem()
    settings = dataclasses.replace(SMALL, **changes)
    return fit_sotalign(anchors, pools, settings=settings, key=jax.random.key(seed))


def kernels(model):
    return np.concatenate(
        [np.ravel(model.params[side]["linear"]["kernel"]) for side in ("x", "y")]
    )


def pool_divergence(model):
    """Return KLOT of a model's cosines between the pools to the CCA teacher's."""
    anchors, pools = problem()
    linear, _ = teacher.fit_teacher(
        anchors, pools, "cca", teacher.Ridges(0.01), key=jax.random.key(0)
    )
    own, taught = (m.embed_x(pools.x) @ m.embed_y(pools.y).T for m in (model, linear))
    return float(klot.klot(own, taught))


def test_without_klot_it_is_sail():
    """The same key gives the supervised fit to the last bit."""
    anchors, pools = problem()
    own = fit(alpha_klot=0.0)
    settings = sail.SailSettings(steps=100, learning_rate=1e-2, dim=8)
    other = sail.fit_sail(anchors, pools, settings=settings, key=jax.random.key(0))
    np.testing.assert_array_equal(kernels(own), kernels(other))


def test_klot_brings_the_students_to_the_teacher():
    """The pools' divergence to the teacher's plan falls well below SAIL's."""
    without, taught = pool_divergence(fit(alpha_klot=0.0)), pool_divergence(fit())
    assert taught < 0.75 * without


def test_warm_potentials_train_as_the_authors_do():
    """Five iterations a step from the last potentials, or a hundred from zero."""
    warm, cold = fit(), fit(warm_iterations=0)
    one, other = pool_divergence(warm), pool_divergence(cold)
    assert one == pytest.approx(other, rel=0.2)
    assert not np.array_equal(kernels(warm), kernels(cold))


def test_a_fit_is_fixed_by_its_key():
    """And another key draws other weights."""
    np.testing.assert_array_equal(kernels(fit()), kernels(fit.__wrapped__()))
    assert not np.allclose(kernels(fit()), kernels(fit(seed=1)))


def test_batches_smaller_than_the_pools():
    """Drawn rows, with the teacher's plan solved a step, teach as well."""
    taught = pool_divergence(fit(batch_size=26, batch_size_pairs=10))
    without = pool_divergence(fit(alpha_klot=0.0))
    assert taught < 0.85 * without


def test_the_model_tells_how_it_was_made():
    """Method, pools, the chosen ridge with its candidates."""
    info = fit(ridge="auto").info
    assert info["method"] == "sotalign"
    assert (info["n_anchors"], info["n_pool_x"], info["n_pool_y"]) == (14, 26, 32)
    assert info["teacher"]["affinity"] == "cca"
    tried = info["teacher"]["candidates"]
    assert len(tried) > 5
    least = min(one["log_rank"] for one in tried)
    chosen = [one for one in tried if one["ridge"] == info["teacher"]["ridge"]]
    assert min(one["log_rank"] for one in chosen) < least + 0.5


@pytest.mark.parametrize("affinity", ["procrustes", "ridge-x2y", "ridge-y2x"])
def test_other_teachers(affinity):
    """Every linear method can teach; the ridge reaches it."""
    anchors, pools = problem()
    model, facts = teacher.fit_teacher(
        anchors, pools, affinity, teacher.Ridges(0.5), key=jax.random.key(0)
    )
    assert model.info["method"] == facts["affinity"] == affinity
    assert facts.get("ridge", 0.5) == 0.5
    assert np.isfinite(kernels(fit(affinity=affinity))).all()


def test_cca_takes_a_ridge_a_side_and_its_unit():
    """Each changes the teacher, and the same ridge twice changes nothing."""
    anchors, pools = problem()

    def embedded(*ridges):
        model, _ = teacher.fit_teacher(
            anchors, pools, "cca", teacher.Ridges(*ridges), key=jax.random.key(0)
        )
        return np.asarray(model.embed_x(pools.x) @ model.embed_y(pools.y).T)

    plain = embedded(0.1)
    np.testing.assert_array_equal(plain, embedded(0.1, 0.1))
    assert np.abs(plain - embedded(0.1, 1e-3)).max() > 0.01
    assert np.abs(plain - embedded(0.1, None, True)).max() > 0.01


def test_pool_rows():
    """Limits, disjoint row numbers, and rows replaced by noise."""
    _, pools = problem()

    def used(**changes):
        settings = dataclasses.replace(SMALL, **changes)
        return sotalign._used_pools(pools, settings, key=jax.random.key(0))

    np.testing.assert_array_equal(used().x, pools.x)
    limited = used(max_pool=5)
    assert (len(limited.x), len(limited.y)) == (5, 5)
    disjoint = used(index_mode="disjoint")
    numbers_x = (disjoint.x[:, None] == pools.x[None]).all(axis=2).argmax(axis=1)
    numbers_y = (disjoint.y[:, None] == pools.y[None]).all(axis=2).argmax(axis=1)
    assert not np.intersect1d(numbers_x, numbers_y).size
    assert len(numbers_x) + len(numbers_y) >= len(pools.x)
    noisy = used(p_noise_unpaired=0.5)
    assert (noisy.x != pools.x).any(axis=1).sum() == 13
    np.testing.assert_allclose(np.linalg.norm(noisy.x, axis=1), np.ones(26), rtol=1e-5)


def test_corrupted_pairs_are_mismatched():
    """Exactly the drawn ones, and no y row is lost."""
    anchors, _ = problem()
    corrupted = noise.corrupt_pairs(anchors, 0.5, key=jax.random.key(0))
    changed = (corrupted.y != anchors.y).any(axis=1)
    assert changed.sum() == 7
    np.testing.assert_array_equal(np.unique(corrupted.y), np.unique(anchors.y))
    np.testing.assert_array_equal(corrupted.x, anchors.x)


def test_blur_has_the_given_deviation():
    """Of a zero affinity, nothing but the noise is left."""
    blurred = noise.blur(jnp.zeros((100, 100)), 0.3, key=jax.random.key(0))
    assert float(jnp.std(blurred)) == pytest.approx(0.3, rel=0.05)
    assert float(jnp.mean(blurred)) == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("switch", ["p_noise", "p_noise_unpaired", "sigma_k"])
def test_noise_reaches_the_fit(switch):
    """Each switch changes what is learned."""
    clean = fit(alpha_klot=1.0)
    assert not np.allclose(
        kernels(clean), kernels(fit(alpha_klot=1.0, **{switch: 0.8}))
    )


def test_validation_keeps_the_best_checkpoint():
    """Anchors held out of the fit choose the step; all others train."""
    model = fit(validation=0.3, checkpoints=5)
    assert model.info["step"] in (20, 40, 60, 80, 100)
    anchors, _ = problem()
    kept, held = sotalign._held_out(anchors, 0.3, key=jax.random.key(0))
    assert held is not None
    assert (len(kept.x), len(held.x)) == (10, 4)
    together = np.concatenate([kept.x, held.x])
    np.testing.assert_array_equal(np.unique(together), np.unique(anchors.x))
    assert 0 <= sotalign.mean_recall(held, model.params) <= 1


@pytest.mark.parametrize(
    "changes",
    [
        {"affinity": "linear"},
        {"ridge": -1.0},
        {"ridge": "auto", "ridge_y": 0.1},
        {"ridge_y": -0.1},
        {"epsilon": 0.0},
        {"epsilon_teacher": float("inf")},
        {"alpha_klot": -1.0},
        {"iterations": 0},
        {"warm_iterations": -1},
        {"batch_size": 1},
        {"checkpoints": 51},
        {"p_noise": 1.5},
        {"validation": 1.0},
        {"reduction": "sum"},
        {"index_mode": "paired"},
        {"max_pool": 0},
        {"batch_size": 14},
    ],
)
def test_bad_settings(changes):
    """The message names the setting."""
    name = list(changes)[-1]
    with pytest.raises(InputError, match=f"^{name} must be"):
        fit(**changes)
