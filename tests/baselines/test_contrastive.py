"""The contrastive baseline: InfoNCE on the anchors, and nothing else."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import reference
from anchordot_jax import AlignedModel, Config, DistillationConfig
from anchordot_jax.baselines.trained.contrastive import fit_contrastive
from anchordot_jax.students import init_params
from planted import problem, same_model

GIVEN = problem()
X, Y = GIVEN.x[GIVEN.pairs[:, 0]], GIVEN.y[GIVEN.pairs[:, 1]]
CONFIG = Config(
    recipe="paper",
    distillation=DistillationConfig(
        dim=8, epochs=30, chunk_size=16, learning_rate=0.03, warmup_steps=4
    ),
)


@pytest.fixture(scope="module")
def model() -> AlignedModel:
    """Return the model of 30 epochs on 14 anchors."""
    with jax.numpy_rank_promotion("raise"):
        return fit_contrastive(X, Y, CONFIG)


def students(x: jax.Array, side: dict[str, Any]) -> jax.Array:
    """Return one side's outputs, written from the formula."""
    x = x / jnp.linalg.norm(x, axis=1, keepdims=True)
    centred = x - x.mean(axis=1, keepdims=True)
    normed = centred / jnp.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    hidden = normed * side["norm"]["scale"][None] + side["norm"]["bias"][None]
    out = hidden @ side["linear"]["kernel"] + side["linear"]["bias"][None]
    return jnp.asarray(out / jnp.linalg.norm(out, axis=1, keepdims=True))


def loss_of(params: dict[str, Any]) -> jax.Array:
    """Return the symmetric InfoNCE of all anchors at once."""
    logits = (
        students(jnp.asarray(X), params["x"])
        @ students(jnp.asarray(Y), params["y"]).transpose()
    )
    logits = jnp.exp(params["log_scale"]) * logits
    labels = jnp.arange(len(X))
    both = (
        optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()
        for scores in (logits, logits.transpose())
    )
    return sum(both, jnp.asarray(0.0)) / 2


def test_training_is_adamw_on_the_infonce_of_the_anchors(model: AlignedModel) -> None:
    """30 steps of a loop written out lead to the same parameters."""
    settings = CONFIG.distillation
    key, _ = jax.random.split(jax.random.key(CONFIG.seed))
    params = init_params(12, 9, settings.dim, key=key)
    mask = jax.tree.map(lambda leaf: leaf.ndim == 2, params)
    optimizer = optax.adamw(
        lambda step: settings.learning_rate * jnp.minimum(1, (step + 1) / 4),
        weight_decay=settings.weight_decay,
        mask=mask,
    )

    @jax.jit
    def step(
        params: dict[str, Any], state: optax.OptState
    ) -> tuple[dict[str, Any], optax.OptState]:
        updates, state = optimizer.update(jax.grad(loss_of)(params), state, params)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for _ in range(30):
        params, state = step(params, state)
    for side, rows, embed in (("x", X, model.embed_x), ("y", Y, model.embed_y)):
        expected = reference.student(rows, params[side])
        np.testing.assert_allclose(embed(rows), expected, atol=2e-3)
    expected_scale = float(np.exp(params["log_scale"]))
    assert model.logit_scale == pytest.approx(expected_scale, rel=2e-3)


def test_it_finds_its_anchors(model: AlignedModel) -> None:
    """The pairs trained on are nearest neighbours afterwards."""
    metrics = model.evaluate(X, Y, np.repeat(np.arange(len(X))[:, None], 2, axis=1))
    assert min(metrics["x2y/recall@1"], metrics["y2x/recall@1"]) >= 0.9


def test_it_is_deterministic(model: AlignedModel) -> None:
    """The same seed gives the same model bit by bit, another seed another one."""
    assert same_model(fit_contrastive(X.astype(np.float64), Y, CONFIG), model)
    other = fit_contrastive(X, Y, dataclasses.replace(CONFIG, seed=1))
    assert not same_model(other, model)


def test_it_says_how_it_was_made(model: AlignedModel) -> None:
    """The method, the sizes and the steps are facts of the model."""
    info = dict(model.info)
    assert Config.from_dict(info.pop("settings")) == CONFIG
    assert info == {
        "method": "contrastive",
        "dim_x": 12,
        "dim_y": 9,
        "dim": 8,
        "n_anchors": 14,
        "steps": 30,
    }


def test_the_number_of_steps_can_be_given(model: AlignedModel) -> None:
    """With two chunks an epoch is two steps; an odd number is rounded up."""
    assert same_model(fit_contrastive(X, Y, CONFIG, steps=30), model)
    part = dataclasses.replace(CONFIG.distillation, chunk_size=8, epochs=2)
    halves = dataclasses.replace(CONFIG, distillation=part)
    by_epochs, by_steps = (
        fit_contrastive(X, Y, halves, steps=steps) for steps in (None, 3)
    )
    assert by_epochs.info["steps"] == by_steps.info["steps"] == 4
    assert same_model(by_epochs, by_steps)
