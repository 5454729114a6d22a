"""SAIL: its objective against NumPy, the pseudo-pairs, the fits."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import reference
from anchordot_jax.baselines import tuning
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.baselines.trained import sail, training
from anchordot_jax.baselines.trained.sail import SailSemiSettings, SailSettings
from anchordot_jax.errors import InputError
from anchordot_jax.students import init_params
from anchordot_jax.training import affinity

ANCHORS = Anchors(reference.unit_rows(12, 7, 0), reference.unit_rows(12, 5, 1))
POOLS = Pools(reference.unit_rows(9, 7, 2), reference.unit_rows(11, 5, 3))
METHODS = {method.name: method for method in sail.METHODS}

# Compiled whole: operation by operation takes longer.
objective = jax.jit(sail.sail_objective, static_argnames="static")
semi_objective = jax.jit(sail.sail_semi_objective, static_argnames="static")
pseudo_pair_loss = jax.jit(sail.pseudo_pair_loss)
standardized = jax.jit(affinity.standardized_sides)


def sigmoid_loss(similarities: np.ndarray, scale: float, bias: float) -> float:
    """Return the mean of log(1 + exp(-z (scale S + bias))), z from the diagonal."""
    logits = scale * np.asarray(similarities, np.float64) + bias
    signs = 2 * np.eye(len(logits)) - 1
    return float(np.logaddexp(0, -signs * logits).mean())


def params(dim: int = 6) -> dict[str, Any]:
    """Return random students' params with odd gains and biases, and a logit bias."""
    drawn = init_params(7, 5, dim, temperature=1 / 4, key=jax.random.key(3))
    rng = np.random.default_rng(5)
    noisy = jax.tree.map(
        lambda leaf: leaf + 0.2 * jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype),
        drawn,
    )
    return {**noisy, "logit_bias": jnp.asarray(-1.5, jnp.float32)}


def side_cosines(given: dict[str, Any], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return all cosines of the students' outputs, float64."""
    embedded = reference.student(x, given["x"]) @ reference.student(y, given["y"]).T
    return np.asarray(embedded)


def test_the_objective_is_the_mean_sigmoid_loss_of_the_pairs() -> None:
    own = params()
    value, state = objective(
        own, 7, Anchors(*standardized(*ANCHORS)), jax.random.key(0), SailSettings()
    )
    expected = sigmoid_loss(
        side_cosines(own, *ANCHORS), float(np.exp(own["log_scale"])), -1.5
    )
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert state == 7


def test_embedded_rows_are_the_students_outputs() -> None:
    own = params()
    z, _ = standardized(*ANCHORS)
    expected = reference.student(ANCHORS.x, own["x"])
    found = jax.jit(affinity.outputs)(own["x"], z)
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_a_batch_draws_different_pairs() -> None:
    """A batch of two pairs is one of the 66 possible, kept together."""
    own = params()
    settings_ = SailSettings(batch=2)
    data = Anchors(*standardized(*ANCHORS))
    cosines, scale = side_cosines(own, *ANCHORS), float(np.exp(own["log_scale"]))
    possible = [
        sigmoid_loss(cosines[np.ix_([i, j], [i, j])], scale, -1.5)
        for i in range(12)
        for j in range(i)
    ]
    values = {
        float(objective(own, (), data, jax.random.key(k), settings_)[0])
        for k in range(6)
    }
    assert len(values) > 1
    for value in values:
        assert np.abs(np.array(possible) - value).min() < 1e-5


def test_mutual_neighbours_by_hand() -> None:
    scores = jnp.asarray([[0.9, 0.8, 0.1], [0.7, 0.6, 0.2], [0.3, 0.65, 0.7]])
    expected = np.array([[1, 0, 0], [0, 0, 0], [0, 0, 1]], bool)
    np.testing.assert_array_equal(sail.mutual_neighbours(scores), expected)


@settings(deadline=None, max_examples=25)
@given(
    hnp.arrays(
        np.float32, (4, 5), elements=st.integers(0, 1000), unique=True
    )  # distinct, so that every neighbour is unique
)
def test_pseudo_pairs_are_the_pairs_of_the_submatrix(drawn: np.ndarray) -> None:
    """The loss is SAIL's own on the rows and columns with a mutual neighbour."""
    scores = drawn / 1000
    rows = [i for i in range(4) if scores[:, scores[i].argmax()].argmax() == i]
    columns = [int(scores[i].argmax()) for i in rows]
    assert rows
    value = pseudo_pair_loss(scores, jnp.log(jnp.asarray(3.0)), jnp.asarray(-1.0))
    expected = sigmoid_loss(scores[np.ix_(rows, columns)], 3, -1)
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_rows_without_a_mutual_neighbour_get_no_gradient() -> None:
    scores = jnp.asarray([[0.9, 0.8, 0.1], [0.7, 0.6, 0.2], [0.3, 0.65, 0.7]])
    gradient = jax.jit(jax.grad(sail.pseudo_pair_loss))(
        scores, jnp.zeros(()), jnp.asarray(-1.0)
    )
    counted = np.zeros((3, 3), bool)
    counted[np.ix_([0, 2], [0, 2])] = True
    np.testing.assert_array_equal(np.asarray(gradient) != 0, counted)
    assert gradient[0, 0] < 0 < gradient[0, 2]


def test_the_semi_objective_adds_the_ramped_pseudo_pairs() -> None:
    own = params()
    scale = float(np.exp(own["log_scale"]))
    data = sail.Rows(Anchors(*standardized(*ANCHORS)), Pools(*standardized(*POOLS)))
    paired = sigmoid_loss(side_cosines(own, *ANCHORS), scale, -1.5)
    unpaired = float(
        pseudo_pair_loss(
            side_cosines(own, *POOLS).astype(np.float32),
            own["log_scale"],
            own["logit_bias"],
        )
    )
    given_ = SailSemiSettings(steps=100, ramp=0.5, unpaired_weight=3.0)
    for step, weight in ((0.0, 0.0), (25.0, 1.5), (50.0, 3.0), (99.0, 3.0)):
        value, after = semi_objective(
            own, jnp.asarray(step), data, jax.random.key(0), given_
        )
        np.testing.assert_allclose(value, paired + weight * unpaired, rtol=1e-5)
        assert after == step + 1


def test_ramp_of_no_steps_is_one_at_once() -> None:
    assert float(sail.ramp_up(jnp.zeros(()), 100, 0.0)) == 1.0
    assert float(sail.ramp_up(jnp.asarray(5.0), 100, 0.2)) == pytest.approx(0.25)


def test_draws_are_permutations_or_parts_of_one() -> None:
    np.testing.assert_array_equal(
        training.draw_rows(5, 9, key=jax.random.key(0)), np.arange(5)
    )
    part = np.asarray(training.draw_rows(50, 20, key=jax.random.key(0)))
    assert len(set(part.tolist())) == 20
    assert part.min() >= 0
    assert part.max() < 50
    other = np.asarray(training.draw_rows(50, 20, key=jax.random.key(1)))
    assert (part != other).any()


@pytest.mark.parametrize("name", ["sail", "sail-semi"])
def test_a_fit_learns_its_pairs(name: str) -> None:
    method = METHODS[name]
    given_ = dataclasses.replace(
        method.settings, steps=150, learning_rate=3e-3, dim=16, logit_scale=20.0
    )
    few = Anchors(ANCHORS.x[:5], ANCHORS.y[:5])
    model = method.fit(few, POOLS, settings=given_, key=jax.random.key(0))
    pairs = np.repeat(np.arange(5)[:, None], 2, axis=1)
    found = model.evaluate(*few, pairs)
    assert min(found["x2y/recall@1"], found["y2x/recall@1"]) >= 0.9
    assert model.info["method"] == name
    assert model.info["settings"]["dim"] == model.dim == 16
    assert set(model.params) == {"x", "y", "log_scale"}
    assert 0 < model.info["final_loss"] < 0.5
    assert model.info.get("n_pool_x") == (9 if name == "sail-semi" else None)


def test_without_weight_the_semi_fit_is_the_supervised_one() -> None:
    """The pools then change nothing."""
    common = {"steps": 10, "learning_rate": 1e-3, "dim": 8}
    plain = sail.fit_sail(
        ANCHORS, POOLS, settings=SailSettings(**common), key=jax.random.key(4)
    )
    semi = sail.fit_sail_semi(
        ANCHORS,
        POOLS,
        settings=SailSemiSettings(**common, unpaired_weight=0.0),
        key=jax.random.key(4),
    )
    np.testing.assert_allclose(plain.embed_x(POOLS.x), semi.embed_x(POOLS.x), atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 0}, "batch must be a whole number >= 1, got 0"),
        ({"pool_batch": 1.5}, "pool_batch must be a whole number >= 1, got 1.5"),
        ({"unpaired_weight": -1.0}, "unpaired_weight must be a number >= 0"),
        ({"ramp": 1.1}, "ramp must be in"),
        ({"learning_rate": 0.0}, "learning_rate must be a number > 0"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SailSemiSettings(**changes)


def test_the_methods_are_well_described() -> None:
    assert METHODS["sail"].needs.pools is False
    assert METHODS["sail-semi"].needs.pools is True
    assert METHODS["sail-semi"].trust == "readme"
    assert "experimental reading" in METHODS["sail-semi"].notes
    for method in METHODS.values():
        short = dataclasses.replace(method.settings, **method.short)
        assert short.steps < method.settings.steps
    assert METHODS["sail"].grid == {"learning_rate": sail.RATES}
    assert METHODS["sail-semi"].tuned == ("learning_rate",)
    assert METHODS["sail-semi"].grid == {"unpaired_weight": sail.WEIGHTS}


def test_the_semi_form_takes_the_supervised_rate_then_its_weight(
    monkeypatch: Any,
) -> None:
    """The rate is chosen on the pairs alone, for as many steps as the fit will take."""
    asked = []
    answers = {"sail": {"learning_rate": 0.25}, "sail-semi": {"unpaired_weight": 0.1}}

    def choose(
        method: Any, anchors: Any, pools: Any, *, settings: Any, key: Any
    ) -> Any:
        asked.append((method.name, settings.steps, settings.learning_rate))
        chosen = dataclasses.replace(settings, **answers[method.name])
        return tuning.Choice(chosen, (), 17)

    monkeypatch.setattr(tuning, "choose", choose)
    settings = sail.SailSemiSettings(steps=9, pool_batch=4, learning_rate=0.5)
    chosen, n_heldout = sail.choose_rate_and_weight(
        ANCHORS, POOLS, settings=settings, key=jax.random.key(0)
    )
    assert asked == [
        ("sail", 9, sail.SailSettings().learning_rate),
        ("sail-semi", 9, 0.25),
    ]
    expected = {"learning_rate": 0.25, "unpaired_weight": 0.1}
    assert chosen == dataclasses.replace(settings, **expected)
    assert n_heldout == 17
