"""The shared training loop: what it minimises, keeps, repeats and refuses."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import reference
from anchordot_jax.baselines.trained import training
from anchordot_jax.baselines.trained.training import TrainingSettings, train
from anchordot_jax.distillation import info_nce
from anchordot_jax.errors import InputError
from anchordot_jax.students import bind

SETTINGS = TrainingSettings(
    steps=30, learning_rate=3e-2, optimizer="adamw", dim=8, logit_scale=10.0
)
DATA = (reference.unit_rows(12, 6, 0), reference.unit_rows(12, 5, 1))


def contrastive(
    params: Any, state: Any, data: Any, key: Any, static: Any
) -> tuple[Any, Any]:
    """Return InfoNCE on all rows, and the number of steps seen."""
    students = bind({name: params[name] for name in ("x", "y", "log_scale")})
    return info_nce(students(*data)), state + 1


def bias_only(
    params: Any, state: Any, data: Any, key: Any, static: Any
) -> tuple[Any, Any]:
    """Return a loss that pulls the logit bias to `static`, with the key as state."""
    return (params["logit_bias"] - static) ** 2, jax.random.key_data(key)


def broken(params: Any, state: Any, data: Any, key: Any, static: Any) -> Any:
    """Return a loss that is not finite from the third step on."""
    return jnp.where(state > 1, jnp.nan, params["log_scale"]), state + 1


def run(settings: TrainingSettings = SETTINGS, **options: Any) -> training.Trained:
    """Train on the small data."""
    options = {"key": jax.random.key(0), "state": jnp.asarray(0), **options}
    loss = options.pop("loss", contrastive)
    return train(loss, DATA, dim_x=6, dim_y=5, settings=settings, **options)


def test_the_loss_falls_and_the_state_is_carried() -> None:
    trained = run()
    assert trained.losses.shape == (30,)
    assert trained.losses[-1] < 0.5 * trained.losses[0]
    assert int(trained.state) == 30
    assert trained.step == 30
    assert set(trained.params) == {"x", "y", "log_scale"}


def test_the_key_fixes_everything() -> None:
    first, second = run(), run()
    np.testing.assert_array_equal(first.losses, second.losses)
    other = run(key=jax.random.key(1))
    assert not np.array_equal(first.losses, other.losses)


def test_parts_do_not_change_the_path() -> None:
    whole, parts = run(), run(n_checkpoints=4)
    np.testing.assert_allclose(whole.losses, parts.losses, rtol=1e-5)


def test_the_best_checkpoint_is_returned() -> None:
    values = iter([0.1, 0.7, 0.3])
    seen = []

    def validate(params: Any) -> float:
        seen.append(np.asarray(params["x"]["linear"]["kernel"]))
        return next(values)

    best = run(n_checkpoints=3, validate=validate)
    assert best.step == 20
    np.testing.assert_array_equal(best.params["x"]["linear"]["kernel"], seen[1])
    assert not np.array_equal(seen[1], seen[2])


def test_every_step_has_a_key_of_its_own() -> None:
    one = run(
        dataclasses.replace(SETTINGS, steps=1),
        loss=bias_only,
        static=3.0,
        state=jnp.zeros(2, jnp.uint32),
    )
    two = run(
        dataclasses.replace(SETTINGS, steps=2),
        loss=bias_only,
        static=3.0,
        state=jnp.zeros(2, jnp.uint32),
    )
    assert not np.array_equal(one.state, two.state)


def test_the_logit_bias_starts_where_told_and_is_trained() -> None:
    settings = dataclasses.replace(
        SETTINGS, logit_bias=-2.0, steps=200, learning_rate=0.1, warmup=0.0
    )
    trained = run(settings, loss=bias_only, static=1.5, state=jnp.zeros(2, jnp.uint32))
    assert trained.losses[0] == pytest.approx(3.5**2)
    assert trained.losses[-1] < 1e-2


def test_a_loss_that_is_not_finite_stops_the_training() -> None:
    with pytest.raises(FloatingPointError, match="not finite before step 30"):
        run(loss=broken)


def test_the_callers_state_outlives_the_training() -> None:
    state = jnp.asarray(5)
    run(state=state)
    assert int(state) == 5


@pytest.mark.parametrize("optimizer", ["lion", "adamw"])
def test_only_matrices_are_decayed(optimizer: str) -> None:
    """Without a gradient, decay alone moves what it touches."""
    settings = dataclasses.replace(
        SETTINGS, optimizer=optimizer, weight_decay=0.5, learning_rate=0.1, warmup=0.0
    )
    schedule = training._schedule_of(settings)
    optimiser = training.make_optimizer(schedule)
    params = {"kernel": jnp.ones((2, 2)), "bias": jnp.ones(2), "scale": jnp.ones(())}
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimiser.update(zeros, optimiser.init(params), params)
    after = optax.apply_updates(params, updates)
    np.testing.assert_allclose(after["kernel"], 0.95, rtol=1e-6)
    np.testing.assert_array_equal(after["bias"], 1.0)
    np.testing.assert_array_equal(after["scale"], 1.0)


def test_the_rate_rises_then_follows_a_cosine() -> None:
    schedule = training.Schedule("lion", 1.0, 0.0, 4, 20, "cosine")
    optimiser = training.make_optimizer(schedule)
    params = {"kernel": jnp.zeros((1, 1))}
    state, sizes = optimiser.init(params), []
    for _ in range(20):
        updates, state = optimiser.update({"kernel": jnp.ones((1, 1))}, state, params)
        sizes.append(-float(updates["kernel"][0, 0]))
    np.testing.assert_allclose(sizes[:4], [0.25, 0.5, 0.75, 1.0], rtol=1e-6)
    expected = 0.5 * (1 + np.cos(np.pi * np.arange(16) / 16))
    np.testing.assert_allclose(sizes[4:], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be a whole number >= 1, got 0"),
        ({"dim": 1.5}, "dim must be a whole number >= 1"),
        ({"learning_rate": 0.0}, "learning_rate must be a number > 0"),
        ({"logit_scale": 101.0}, "logit_scale must be at most 100"),
        ({"weight_decay": -1.0}, "weight_decay must be a number >= 0"),
        ({"warmup": 1.1}, r"warmup must be in \[0, 1\]"),
        ({"logit_bias": float("nan")}, "logit_bias must be a finite number"),
        ({"optimizer": "sgd"}, "optimizer must be 'lion' or 'adamw', got 'sgd'"),
        ({"schedule": "step"}, "schedule must be 'cosine' or 'constant'"),
    ],
)
def test_settings_out_of_range(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrainingSettings(**change)
