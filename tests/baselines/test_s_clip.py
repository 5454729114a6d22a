"""S-CLIP: pseudo-labels against POT, the loss against NumPy, the fit."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest
from scipy.special import log_softmax

import reference
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.baselines.trained import s_clip
from anchordot_jax.baselines.trained.s_clip import (
    SClipSettings,
    pseudo_labels,
    s_clip_loss,
)
from anchordot_jax.errors import InputError
from anchordot_jax.students import init_params
from anchordot_jax.training import affinity

ANCHORS = Anchors(reference.unit_rows(10, 7, 0), reference.unit_rows(10, 5, 1))
POOLS = Pools(reference.unit_rows(8, 7, 2), reference.unit_rows(9, 5, 3))
FEW = Anchors(ANCHORS.x[:5], ANCHORS.y[:5])
(METHOD,) = s_clip.METHODS

# Compiled whole: operation by operation takes longer.
objective = jax.jit(s_clip.s_clip_objective, static_argnames="static")
standardized_sides = jax.jit(affinity.standardized_sides)


def labels_of_pot(scale: float, iterations: int) -> np.ndarray:
    """Return POT's plan from the pool's x rows to the anchors', rows summing to 1."""
    cost = reference.cost(POOLS.x, ANCHORS.x)
    plan = ot.bregman.sinkhorn(
        np.full(8, 1 / 8),
        np.full(10, 1 / 10),
        cost,
        reg=1 / scale,
        numItermax=iterations,
        stopThr=0,
        warn=False,
    )
    return np.asarray(plan / plan.sum(axis=1, keepdims=True))


def loss_of(
    paired: np.ndarray, unlabelled: np.ndarray, labels: np.ndarray, weight: float
) -> float:
    """Return the loss, term by term."""
    n = len(paired)
    own = np.arange(n)
    x_to_y = -log_softmax(paired, axis=1)[own, own].mean()
    both = np.concatenate([paired, unlabelled])
    y_to_x = -log_softmax(both, axis=0)[own, own].mean()
    captions = -(labels * log_softmax(unlabelled, axis=1)).sum(axis=1).mean()
    return float((x_to_y + y_to_x) / 2 + weight * captions)


@pytest.mark.parametrize("iterations", [1, 10])
@pytest.mark.parametrize("scale", [5.0, 20.0])
def test_pseudo_labels_are_pots(scale: float, iterations: int) -> None:
    own = pseudo_labels(POOLS.x, ANCHORS.x, scale, iterations)
    np.testing.assert_allclose(own, labels_of_pot(scale, iterations), atol=2e-5)
    np.testing.assert_allclose(np.asarray(own).sum(axis=1), 1, rtol=1e-5)


def test_pseudo_labels_balance_the_captions() -> None:
    """Enough iterations share every caption out evenly; a softmax does not."""
    shares = np.asarray(pseudo_labels(POOLS.x, ANCHORS.x, 5.0, 200)).sum(axis=0)
    np.testing.assert_allclose(shares, 0.8, rtol=1e-3)
    cosines = 5 * POOLS.x @ ANCHORS.x.T
    assert np.abs(np.exp(log_softmax(cosines, axis=1)).sum(axis=0) - 0.8).max() > 0.1


def test_a_copy_of_a_labelled_item_gets_its_caption() -> None:
    labels = np.asarray(pseudo_labels(ANCHORS.x[::-1], ANCHORS.x, 100.0))
    np.testing.assert_array_equal(labels.argmax(axis=1), np.arange(10)[::-1])
    assert labels.max(axis=1).min() > 0.99


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_the_loss(weight: float) -> None:
    rng = np.random.default_rng(0)
    paired, unlabelled = rng.normal(size=(4, 4)), rng.normal(size=(6, 4))
    labels = rng.dirichlet(np.ones(4), size=6)
    arrays = [jnp.asarray(a, jnp.float32) for a in (paired, unlabelled, labels)]
    expected = loss_of(paired, unlabelled, labels, weight)
    np.testing.assert_allclose(s_clip_loss(*arrays, weight), expected, rtol=1e-5)


def test_unlabelled_items_are_negatives_of_y_only() -> None:
    """Twins of the pairs double the candidates of y and leave those of x alone."""
    zeros, labels = jnp.zeros((3, 3)), jnp.full((3, 3), 1 / 3)
    value = s_clip_loss(zeros, zeros, labels, 0.0)
    np.testing.assert_allclose(value, (np.log(3) + np.log(6)) / 2, rtol=1e-6)


def test_the_objective() -> None:
    """The labels come from the frozen rows at the learned scale."""
    params = init_params(7, 5, 6, temperature=1 / 8, key=jax.random.key(3))
    z_x, z_y = standardized_sides(*ANCHORS)
    unlabelled, _ = standardized_sides(*POOLS)
    data = s_clip.LabelledAndNot(ANCHORS.x, z_x, z_y, POOLS.x, unlabelled)
    value, _ = objective(params, (), data, jax.random.key(0), SClipSettings())
    y = reference.student(ANCHORS.y, params["y"])
    paired = 8 * reference.student(ANCHORS.x, params["x"]) @ y.T
    extra = 8 * reference.student(POOLS.x, params["x"]) @ y.T
    expected = loss_of(paired, extra, labels_of_pot(8.0, 10), 0.5)
    np.testing.assert_allclose(value, expected, rtol=1e-4)


def test_a_fit_learns_its_pairs_and_ignores_the_y_pool() -> None:
    given = dataclasses.replace(
        METHOD.settings, steps=100, learning_rate=3e-3, dim=16, pool_batch=5
    )
    other = Pools(POOLS.x, POOLS.y[:3])
    model, same = (
        METHOD.fit(FEW, pools, settings=given, key=jax.random.key(0))
        for pools in (POOLS, other)
    )
    pairs = np.repeat(np.arange(5)[:, None], 2, axis=1)
    found = model.evaluate(*FEW, pairs)
    assert min(found["x2y/recall@1"], found["y2x/recall@1"]) >= 0.9
    assert model.info["method"] == "s-clip"
    assert (model.info["n_pool_y"], same.info["n_pool_y"]) == (9, 3)
    np.testing.assert_array_equal(model.embed_x(POOLS.x), same.embed_x(POOLS.x))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"iterations": 0}, "iterations must be a whole number >= 1, got 0"),
        ({"pool_batch": 0}, "pool_batch must be a whole number >= 1"),
        ({"batch": 0}, "batch must be a whole number >= 1"),
        ({"caption_weight": -1.0}, "caption_weight must be a number >= 0"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SClipSettings(**changes)
