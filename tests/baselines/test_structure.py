"""STRUCTURE: the regulariser against NumPy, its laws, the objective, the fits."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.special import softmax

import reference
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.baselines.trained import structure
from anchordot_jax.baselines.trained.structure import (
    StructureSemiSettings,
    StructureSettings,
)
from anchordot_jax.errors import InputError
from anchordot_jax.students import init_params
from anchordot_jax.training import affinity

ANCHORS = Anchors(reference.unit_rows(10, 7, 0), reference.unit_rows(10, 5, 1))
POOLS = Pools(reference.unit_rows(8, 7, 2), reference.unit_rows(9, 5, 3))
METHODS = {method.name: method for method in structure.METHODS}

# Compiled whole: operation by operation takes longer.
objective = jax.jit(structure.structure_objective, static_argnames="static")
structure_loss = jax.jit(
    structure.structure_loss, static_argnames=("temperature", "levels", "swapped")
)
divergence = jax.jit(structure.divergence, static_argnames="swapped")
standardized_sides = jax.jit(affinity.standardized_sides)


def neighbourhoods(rows: np.ndarray, temperature: float) -> np.ndarray:
    """Return softmax(c c^T / temperature), c the centred unit rows, float64."""
    unit = reference.unit(rows)
    centred = unit - unit.mean(axis=0)
    return np.asarray(softmax(centred @ centred.T / temperature, axis=1))


def regulariser(
    raw: np.ndarray, aligned: np.ndarray, temperature: float, levels: int
) -> float:
    """Return (1/L) sum_l (1/l) mean_i JS(P^l_i, Q^l_i), by SciPy."""
    p, q = neighbourhoods(raw, temperature), neighbourhoods(aligned, temperature)
    total = 0.0
    for level in range(1, levels + 1):
        walks = (np.linalg.matrix_power(walk, level) for walk in (p, q))
        total += (jensenshannon(*walks, axis=1) ** 2).mean() / level
    return total / levels


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_the_regulariser_is_scipys(levels: int, temperature: float) -> None:
    raw, aligned = reference.unit_rows(9, 6, 4), reference.unit_rows(9, 4, 5)
    value = structure_loss(raw, aligned, temperature=temperature, levels=levels)
    expected = regulariser(raw, aligned, temperature, levels)
    assert expected > 0.01
    np.testing.assert_allclose(value, expected, rtol=1e-4)


def test_rotations_and_scales_cost_nothing() -> None:
    raw = reference.unit_rows(9, 6, 4)
    turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(8, 6)))
    aligned = (3 * raw @ turn.T).astype(np.float32)
    assert aligned.shape == (9, 8)
    assert abs(float(structure_loss(raw, aligned, temperature=0.05))) < 1e-5
    shuffled = structure_loss(raw, aligned[::-1], temperature=0.05)
    assert float(shuffled) > 1e-3


def test_the_order_of_the_rows_does_not_matter() -> None:
    raw, aligned = reference.unit_rows(9, 6, 4), reference.unit_rows(9, 4, 5)
    order = np.random.default_rng(1).permutation(9)
    together = structure_loss(raw[order], aligned[order], temperature=0.1, levels=2)
    apart = structure_loss(raw[order], aligned, temperature=0.1, levels=2)
    value = structure_loss(raw, aligned, temperature=0.1, levels=2)
    np.testing.assert_allclose(together, value, rtol=1e-5)
    assert abs(float(apart - value)) > 1e-3


def test_disjoint_distributions_are_log_two_apart() -> None:
    p, q = jnp.asarray([[1.0, 0.0], [0.0, 1.0]]), jnp.asarray([[0.0, 1.0], [1.0, 0.0]])
    np.testing.assert_allclose(divergence(p, q), np.log(2), rtol=1e-6)
    np.testing.assert_allclose(divergence(p, p), 0, atol=1e-6)


def test_the_swapped_divergence_by_hand() -> None:
    """(KL(M|P) + KL(M|Q)) / 2, the same as the other for near distributions."""
    p, q = np.array([[0.9, 0.1], [0.5, 0.5]]), np.array([[0.3, 0.7], [0.6, 0.4]])
    m = (p + q) / 2
    expected = (m * np.log(m**2 / (p * q))).sum(axis=1).mean() / 2
    args = jnp.asarray(p, jnp.float32), jnp.asarray(q, jnp.float32)
    swapped = float(divergence(*args, swapped=True))
    assert swapped == pytest.approx(expected, rel=1e-5)
    assert swapped > 1.05 * float(divergence(*args))
    near = jnp.asarray(0.97 * p + 0.03 * q, jnp.float32)
    both = [float(divergence(args[0], near, swapped=s)) for s in (False, True)]
    assert both[1] == pytest.approx(both[0], rel=0.02)


def test_the_gradient_goes_through_the_aligned_side_only() -> None:
    raw, aligned = reference.unit_rows(6, 4, 4), reference.unit_rows(6, 4, 5)

    def loss(raw: jax.Array, aligned: jax.Array) -> jax.Array:
        return structure_loss(raw, aligned, temperature=0.2)

    to_raw, to_aligned = jax.jit(jax.grad(loss, argnums=(0, 1)))(
        jnp.asarray(raw), jnp.asarray(aligned)
    )
    np.testing.assert_array_equal(to_raw, 0)
    direction = np.random.default_rng(2).normal(size=aligned.shape)
    ends = (regulariser(raw, aligned + h * direction, 0.2, 1) for h in (1e-5, -1e-5))
    slope = np.subtract(*ends) / 2e-5
    np.testing.assert_allclose((to_aligned * direction).sum(), slope, rtol=2e-3)


@pytest.mark.parametrize("loss", ["infonce", "sail"])
@pytest.mark.parametrize("semi", [False, True])
def test_the_objective(loss: Any, semi: bool) -> None:
    """The pairs' loss plus lambda, ramped, times the mean of both sides."""
    drawn = init_params(7, 5, 6, temperature=1 / 4, key=jax.random.key(3))
    params = {**drawn, "logit_bias": jnp.asarray(-1.5, jnp.float32)}
    kind = StructureSemiSettings if semi else StructureSettings
    settings = kind(
        loss=loss, logit_scale=8.0, steps=100, ramp=0.5, temperature=0.2, levels=2
    )
    data = tuple(
        structure.RawAnd(*rows, *standardized_sides(*rows)) for rows in (ANCHORS, POOLS)
    )
    value, after = objective(
        params, jnp.asarray(10.0), data, jax.random.key(0), settings
    )
    raw = ANCHORS
    if semi:
        raw = Anchors(
            *(np.concatenate(own) for own in zip(ANCHORS, POOLS, strict=True))
        )
    aligned = [
        reference.student(rows, drawn[s]) for rows, s in zip(raw, "xy", strict=True)
    ]
    moved = np.mean(
        [regulariser(r, a, 0.2, 2) for r, a in zip(raw, aligned, strict=True)]
    )
    cosines = aligned[0][:10] @ aligned[1][:10].T
    if loss == "infonce":
        paired = reference.soft_loss(8 * cosines, np.eye(10), np.eye(10))
    else:  # the learned scale is 4 here
        signs = 2 * np.eye(10) - 1
        paired = np.logaddexp(0, -signs * (4 * cosines - 1.5)).mean()
    np.testing.assert_allclose(value, paired + 10 * 0.2 * moved, rtol=1e-4)
    assert after == 11


@pytest.mark.parametrize("name", ["structure", "structure-semi"])
def test_a_fit_learns_its_pairs(name: str) -> None:
    method = METHODS[name]
    changes = {"steps": 120, "learning_rate": 1e-2, "dim": 16, "structure_weight": 1.0}
    given = dataclasses.replace(method.settings, **changes)
    model = method.fit(ANCHORS, POOLS, settings=given, key=jax.random.key(0))
    pairs = np.repeat(np.arange(10)[:, None], 2, axis=1)
    found = model.evaluate(ANCHORS.x, ANCHORS.y, pairs)
    assert min(found["x2y/recall@1"], found["y2x/recall@1"]) >= 0.9
    assert model.info["method"] == name
    assert model.logit_scale == pytest.approx(20.0)
    assert model.info.get("n_pool_x") == (8 if name == "structure-semi" else None)


def test_a_larger_weight_keeps_the_neighbourhoods_better() -> None:
    moved = []
    for weight in (0.0, 30.0):
        given = StructureSettings(
            steps=60, learning_rate=1e-2, dim=16, structure_weight=weight
        )
        model = structure.fit_structure(
            ANCHORS, POOLS, settings=given, key=jax.random.key(0)
        )
        moved.append(regulariser(ANCHORS.x, model.embed_x(ANCHORS.x), 0.05, 1))
    assert moved[1] < 0.75 * moved[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "clip"}, "loss must be 'infonce' or 'sail', got 'clip'"),
        ({"levels": 0}, "levels must be a whole number >= 1"),
        ({"temperature": 0.0}, "temperature must be a number > 0"),
        ({"structure_weight": float("nan")}, "structure_weight must be a number >= 0"),
        ({"ramp": -0.1}, "ramp must be in"),
        ({"pool_batch": True}, "pool_batch must be a whole number >= 1"),
        ({"batch": 0}, "batch must be a whole number >= 1"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        StructureSemiSettings(**changes)
