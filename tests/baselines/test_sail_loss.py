"""The SAIL loss: worked values, SigLIP's reduction, stability, gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anchordot_jax.baselines.trained.sail_loss import sail_loss

TURNED = np.array([[1, 0, 0], [0, 0.8, 0.6], [0, -0.6, 0.8]], np.float32)
EYE = np.eye(3, dtype=np.float32)


def loss(similarities, scale, bias=-10.0, **options):
    return float(sail_loss(similarities, jnp.log(scale), jnp.asarray(bias), **options))


@pytest.mark.parametrize(
    ("similarities", "scale", "expected"),
    [
        (TURNED, 20.0, 0.236901),
        (TURNED, 10.0, 0.551704),
        (EYE, 20.0, 4.5399e-5),
        (np.zeros((5, 5), np.float32), 20.0, 2.000045),
    ],
)
def test_worked_values(similarities, scale, expected):
    """One turned plane, a perfect match, and no similarity at all."""
    assert loss(similarities, scale) == pytest.approx(expected, rel=1e-4)


def test_reductions_differ_by_n():
    """SigLIP divides by n where SAIL divides by n^2."""
    summed = loss(TURNED, 20.0, reduction="sum/n")
    assert summed == pytest.approx(0.710702, rel=1e-5)


def test_large_logits_stay_finite():
    """A logit of -1000 on the diagonal costs 1000, not infinity."""
    similarities = np.array([[-1.0]], np.float32)
    assert loss(similarities, 1000.0, bias=0.0) == pytest.approx(1000)


def test_gradient_is_that_of_the_sum_written_out():
    """-z s sigmoid(-z l) / n^2 an entry, from a float64 reference."""
    rng = np.random.default_rng(0)
    similarities = rng.uniform(-1, 1, size=(4, 4))
    z = 2 * np.eye(4) - 1
    logits = 7 * similarities - 3
    expected = -z * 7 / (1 + np.exp(z * logits)) / 16
    found = jax.grad(sail_loss)(
        jnp.asarray(similarities, jnp.float32), jnp.log(7.0), jnp.asarray(-3.0)
    )
    np.testing.assert_allclose(found, expected, rtol=2e-5)
