"""KLOT: worked plans, values and gradients, its laws, and the warm-started form."""

import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from anchordot_jax.baselines.sotalign import klot

STUDENT = np.array([[0.9, 0.1, 0.3], [0.2, 0.7, 0.4], [0.5, 0.0, 0.6]], np.float32)
TEACHER = np.array([[1.0, 0.2, 0.1], [0.0, 0.8, 0.3], [0.1, 0.4, 0.9]], np.float32)
GRADIENT = np.array(
    [
        [-0.243738, 0.106310, 0.137428],
        [0.063744, -0.160052, 0.096308],
        [0.179994, 0.053743, -0.233736],
    ]
)


# Compiled once for each shape; called plainly, every loop would compile anew.
PLAN = jax.jit(klot.sinkhorn_plan, static_argnames="symmetric")
WARM = jax.jit(klot.warm_plan)
VALUE_AND_GRADIENTS = jax.jit(
    jax.value_and_grad(klot.klot, argnums=(0, 1)),
    static_argnames=("epsilon", "epsilon_teacher"),
)


def literal_plan(matrix, epsilon, iterations):
    """Return the averaged Sinkhorn plan in float64, SciPy's log-sum-exp throughout."""
    k = np.asarray(matrix, np.float64) / epsilon
    n, m = k.shape
    u, v = np.zeros(n), np.zeros(m)
    for _ in range(iterations):
        u = -np.log(n) - logsumexp(k + v[None, :], axis=1)
        v = -np.log(m) - logsumexp(k + u[:, None], axis=0)
    u_more = -np.log(n) - logsumexp(k + v[None, :], axis=1)
    v_more = -np.log(m) - logsumexp(k + u[:, None], axis=0)
    return np.exp(k + (u + u_more)[:, None] / 2 + (v + v_more)[None, :] / 2)


def divergence(student, teacher, epsilon, epsilon_teacher, iterations=100):
    """Return KL(P* || P) in float64."""
    plan = literal_plan(student, epsilon, iterations)
    taught = literal_plan(teacher, epsilon_teacher, iterations)
    return float((taught * np.log(taught / plan)).sum())


def random_cosines(seed, n=7, m=9, d=5):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    return (x @ y.T).astype(np.float32)


@pytest.mark.parametrize(("epsilon", "expected"), [(1.0, 0.365529), (0.5, 0.440399)])
def test_two_by_two_plan(epsilon, expected):
    """P_11 = sigmoid((K_11 + K_22 - K_12 - K_21) / (2 epsilon)) / 2."""
    plan = PLAN(np.eye(2, dtype=np.float32), epsilon, 100)
    assert float(plan[0, 0]) == pytest.approx(expected, rel=1e-5)
    assert float(plan.sum()) == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("iterations", [0, 1, 2, 100])
def test_plan_is_the_iteration_written_out(iterations):
    """Before convergence too: start, order and the averaged half step all count."""
    matrix = random_cosines(1)
    found = PLAN(matrix, 0.05, iterations)
    expected = literal_plan(matrix, 0.05, iterations)
    np.testing.assert_allclose(found, expected, rtol=2e-4)


def test_without_averaging_the_columns_are_exact():
    """The last half step is v's."""
    matrix = random_cosines(2)
    one = PLAN(matrix, 0.05, 1, symmetric=False)
    both = PLAN(matrix, 0.05, 1)
    np.testing.assert_allclose(one.sum(axis=0), np.full(9, 1 / 9), rtol=1e-5)
    assert np.abs(both.sum(axis=0) - 1 / 9).max() > 1e-4


def test_converged_plan_is_pots():
    """POT, minus K as cost."""
    matrix = random_cosines(3)
    weights = np.full(7, 1 / 7), np.full(9, 1 / 9)
    expected = ot.sinkhorn(*weights, -matrix.astype(np.float64), 0.1, stopThr=1e-12)
    found = PLAN(matrix, 0.1, 300)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_worked_value_and_gradient():
    """A 3 x 3 example, whose gradient central differences of the value confirm."""
    value, (gradient, _) = VALUE_AND_GRADIENTS(
        STUDENT, TEACHER, epsilon=0.5, epsilon_teacher=0.25
    )
    assert float(value) == pytest.approx(0.267384, rel=1e-5)
    np.testing.assert_allclose(gradient, GRADIENT, atol=2e-6)
    differences = np.empty((3, 3))
    for entry in np.ndindex(3, 3):
        step = np.zeros((3, 3))
        step[entry] = 1e-5
        up = divergence(STUDENT + step, TEACHER, 0.5, 0.25)
        down = divergence(STUDENT - step, TEACHER, 0.5, 0.25)
        differences[entry] = (up - down) / 2e-5
    np.testing.assert_allclose(gradient, differences, atol=3e-6)


def test_worked_value_at_the_default_regularisations():
    """Epsilon 0.05 and 0.01, the launcher's."""
    value, _ = VALUE_AND_GRADIENTS(STUDENT, TEACHER)
    assert float(value) == pytest.approx(0.003907, rel=1e-3)


def test_no_gradient_reaches_the_teacher():
    """The teacher is given, not trained; and the cotangent scales the gradient."""
    tripled, to_teacher = jax.grad(
        lambda *k: 3 * klot.klot(*k, epsilon=0.5, epsilon_teacher=0.25),
        argnums=(0, 1),
    )(jnp.asarray(STUDENT), jnp.asarray(TEACHER))
    np.testing.assert_array_equal(to_teacher, np.zeros((3, 3)))
    np.testing.assert_allclose(tripled, 3 * GRADIENT, atol=6e-6)


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_laws(seed):
    """Not negative; 0 at itself; blind to constants added to rows and columns."""
    student, teacher = random_cosines(seed), random_cosines(seed + 1)
    options = {"epsilon": 0.2, "epsilon_teacher": 0.2}
    value, _ = VALUE_AND_GRADIENTS(student, teacher, **options)
    assert float(value) > -1e-5
    rng = np.random.default_rng(seed)
    moved = student + rng.normal(size=(7, 1)) + rng.normal(size=(1, 9))
    shifted, _ = VALUE_AND_GRADIENTS(moved.astype(np.float32), teacher, **options)
    assert float(shifted) == pytest.approx(float(value), rel=1e-3, abs=1e-5)
    own, (gradient, _) = VALUE_AND_GRADIENTS(student, student, **options)
    assert float(own) == pytest.approx(0, abs=1e-5)
    np.testing.assert_allclose(gradient, np.zeros((7, 9)), atol=1e-5)


@pytest.mark.parametrize("iterations", [1, 3, 100])
def test_warm_plan_from_zero_is_the_literal_one(iterations):
    """The kernel form makes the same iterates."""
    matrix = random_cosines(4)
    plan, potentials = WARM(matrix, 0.05, np.zeros(9, np.float32), iterations)
    np.testing.assert_allclose(plan, literal_plan(matrix, 0.05, iterations), rtol=3e-4)
    np.testing.assert_allclose(
        jnp.exp(klot.log_plan(matrix, 0.05, potentials)), plan, rtol=1e-4
    )


def test_warm_plan_follows_a_moving_affinity():
    """Two iterations a step keep up with a slowly changing matrix; from zero, not."""
    v = np.zeros(9, np.float32)
    first, last = random_cosines(5), random_cosines(6)
    for share in np.linspace(0, 1, 60):
        matrix = np.float32((1 - share) * first + share * last)
        plan, (_, v) = WARM(matrix, 0.05, v, 2)
    converged = literal_plan(last, 0.05, 2000)
    cold, _ = WARM(last, 0.05, np.zeros(9, np.float32), 2)
    error = np.abs(plan - converged).sum()
    assert error < 0.02
    assert error < np.abs(cold - converged).sum() / 3


@pytest.mark.parametrize("start", [0.0, 500.0])
def test_warm_plan_of_extreme_affinities_is_finite(start):
    """exp(K / epsilon) alone, e^2000, would overflow."""
    matrix = random_cosines(7)
    v = np.full(9, start, np.float32)
    plan, (u, v) = WARM(matrix, 5e-4, v, 5)
    for array in (plan, u, v):
        assert np.isfinite(array).all()
    assert float(plan.sum()) == pytest.approx(1, abs=0.5)


@pytest.mark.parametrize("iterations", [7, 100])
def test_fast_teacher_plan_is_the_literal_one(iterations):
    """Kernel-form iterations after the first ones change nothing but rounding."""
    matrix = random_cosines(8, n=30, m=40, d=20)
    found = klot.fast_teacher_plan(matrix, 0.01, iterations)
    expected = literal_plan(matrix, 0.01, iterations)
    np.testing.assert_allclose(found.plan, expected, rtol=2e-3, atol=1e-9)
    np.testing.assert_allclose(found.rows, expected.sum(axis=1), rtol=1e-3)
    np.testing.assert_allclose(found.columns, expected.sum(axis=0), rtol=1e-3)
    entropy = np.where(expected > 0, expected * np.log(expected), 0).sum()
    assert float(found.log_plan) == pytest.approx(entropy, rel=1e-3)
