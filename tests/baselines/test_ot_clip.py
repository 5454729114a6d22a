"""OT-CLIP: hand values, InfoNCE as its first half step, POT as its limit."""

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
from anchordot_jax.baselines.trained import ot_clip
from anchordot_jax.baselines.trained.ot_clip import (
    OtClipSettings,
    converged_log_plan,
    converged_ot_loss,
    log_plan,
    ot_loss,
)
from anchordot_jax.errors import InputError
from anchordot_jax.students import init_params
from anchordot_jax.training import affinity

SCORES = np.array([[0.9, 0.8, 0.1], [0.7, 0.6, 0.2], [0.3, 0.65, 0.4]])
LOGITS = jnp.asarray(SCORES / 0.1, jnp.float32)
ANCHORS = Anchors(reference.unit_rows(10, 7, 0), reference.unit_rows(10, 5, 1))
POOLS = Pools(reference.unit_rows(4, 7, 2), reference.unit_rows(4, 5, 3))
FEW = Anchors(ANCHORS.x[:5], ANCHORS.y[:5])
(METHOD,) = ot_clip.METHODS

# Compiled whole: operation by operation takes longer.
objective = jax.jit(ot_clip.ot_clip_objective, static_argnames="static")
standardized_sides = jax.jit(affinity.standardized_sides)


@pytest.mark.parametrize(
    ("half_steps", "expected"), [(1, 1.412699), (2, 0.818801), (10, 0.655331)]
)
def test_hand_values(half_steps: int, expected: float) -> None:
    assert float(ot_loss(LOGITS, half_steps)) == pytest.approx(expected, abs=2e-6)


def test_converged_hand_value() -> None:
    assert float(converged_ot_loss(LOGITS)) == pytest.approx(0.654774, abs=5e-5)
    assert float(ot_loss(LOGITS, 400)) == pytest.approx(0.654774, abs=2e-6)


def test_one_half_step_is_the_row_infonce() -> None:
    expected = -np.diagonal(log_softmax(SCORES / 0.1, axis=1)).mean()
    assert float(ot_loss(LOGITS, 1)) == pytest.approx(expected, rel=1e-6)


def test_the_converged_plan_is_pots() -> None:
    mass = np.full(3, 1 / 3)
    plan = ot.sinkhorn(mass, mass, -SCORES, 0.1, stopThr=1e-12)
    own = np.exp(np.asarray(converged_log_plan(LOGITS))) / 3
    np.testing.assert_allclose(own, plan, atol=3e-5)


@pytest.mark.parametrize("half_steps", [3, 4])
def test_the_last_half_step_is_exact(half_steps: int) -> None:
    """Odd ends with the rows, even with the columns, and the other is not exact."""
    plan = np.exp(np.asarray(log_plan(LOGITS, half_steps)))
    exact, other = (1, 0) if half_steps % 2 else (0, 1)
    np.testing.assert_allclose(plan.sum(axis=exact), 1, rtol=1e-5)
    assert np.abs(plan.sum(axis=other) - 1).max() > 1e-3


def test_the_converged_gradient_is_the_plan_less_the_identity() -> None:
    """The short form equals the gradient through very many half steps."""
    short = jax.grad(converged_ot_loss)(LOGITS)
    long = jax.grad(ot_loss)(LOGITS, 400)
    mass = np.full(3, 1 / 3)
    plan = ot.sinkhorn(mass, mass, -SCORES, 0.1, stopThr=1e-12)
    np.testing.assert_allclose(short, plan - np.eye(3) / 3, atol=3e-5)
    np.testing.assert_allclose(long, plan - np.eye(3) / 3, atol=1e-5)


def test_constants_of_rows_and_columns_cancel_when_converged() -> None:
    shifted = LOGITS + jnp.asarray([[1.0], [-2.0], [0.5]]) + jnp.asarray([[3.0, 0, -1]])
    assert float(ot_loss(shifted, 400)) == pytest.approx(0.654774, abs=1e-5)
    assert float(ot_loss(shifted, 1)) != pytest.approx(1.412699, abs=0.1)


@pytest.mark.parametrize("half_steps", [1, 4])
def test_the_objective_takes_both_orders(half_steps: int) -> None:
    params = init_params(7, 5, 6, temperature=1 / 4, key=jax.random.key(3))
    embedded = [
        reference.student(r, params[s]) for r, s in zip(ANCHORS, "xy", strict=True)
    ]
    logits = 4 * embedded[0] @ embedded[1].T
    data = Anchors(*standardized_sides(*ANCHORS))
    settings = OtClipSettings(half_steps=half_steps)
    value, _ = objective(params, (), data, jax.random.key(0), settings)
    expected = []
    for plan in (logits, logits.T):
        for step in range(half_steps):
            plan = log_softmax(plan, axis=1 if step % 2 == 0 else 0)
        expected.append(-np.diagonal(plan).mean())
    np.testing.assert_allclose(value, np.mean(expected), rtol=1e-5)
    if half_steps == 1:
        symmetric = reference.soft_loss(logits, np.eye(10), np.eye(10))
        assert np.mean(expected) == pytest.approx(symmetric)


@pytest.mark.parametrize("converged", [False, True])
def test_a_fit_learns_its_pairs(converged: bool) -> None:
    given = dataclasses.replace(
        METHOD.settings, steps=60, learning_rate=3e-3, dim=16, converged=converged
    )
    model = METHOD.fit(FEW, POOLS, settings=given, key=jax.random.key(0))
    pairs = np.repeat(np.arange(5)[:, None], 2, axis=1)
    found = model.evaluate(*FEW, pairs)
    assert min(found["x2y/recall@1"], found["y2x/recall@1"]) >= 0.9
    assert model.info["method"] == "ot-clip"
    assert "n_pool_x" not in model.info


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"half_steps": 0}, "half_steps must be a whole number >= 1, got 0"),
        ({"converged": "yes"}, "converged must be true or false"),
        ({"batch": 0}, "batch must be a whole number >= 1"),
        ({"logit_scale": 1e3}, "logit_scale must be at most 100"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        OtClipSettings(**changes)
