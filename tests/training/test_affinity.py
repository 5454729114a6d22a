"""The students' cosines by the shorter contraction, against the students themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anchordot_jax.students import bind, init_params
from anchordot_jax.training import affinity

# Rows, input columns and shared dimensions such that norms come from the Gram matrix
# of both sides, of one, or of none.
SIZES = [
    (5, 7, 6, 4, 8, (False, False)),
    (5, 7, 4, 6, 8, (False, False)),
    (30, 40, 6, 4, 16, (True, True)),
    (30, 40, 4, 17, 16, (True, False)),
    (30, 40, 17, 4, 16, (False, True)),
]


def students(dim_x, dim_y, dim):
    """Return parameters whose gains and biases are not where training starts."""
    params = init_params(dim_x, dim_y, dim, key=jax.random.key(0))
    return jax.tree.map(
        lambda leaf: leaf + 0.1 * jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape),
        params,
    )


@pytest.mark.parametrize(("n", "m", "dim_x", "dim_y", "dim", "by_gram"), SIZES)
def test_cosines_are_the_students_own(n, m, dim_x, dim_y, dim, by_gram):
    """Folded, contracted over the shorter input: values and gradients agree."""
    params = students(dim_x, dim_y, dim)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, dim_x)).astype(np.float32)
    y = rng.normal(size=(m, dim_y)).astype(np.float32)
    weights = rng.normal(size=(n, m)).astype(np.float32)

    @jax.jit
    def plain(params):
        own = bind(params)
        return own.x(x) @ own.y(y).T

    @jax.jit
    def fast(params):
        return affinity.cosines(params, *affinity.standardized_sides(x, y))

    np.testing.assert_allclose(fast(params), plain(params), atol=2e-6)
    one, two = (
        jax.jit(jax.grad(lambda params, f=f: jnp.vdot(f(params), weights)))(params)
        for f in (plain, fast)
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), one, two
    )
    sides = zip(("x", "y"), (x, y), by_gram, strict=True)
    for side, rows, expected in sides:
        z, matrix = affinity.standardized(rows), affinity.folded(params[side])
        assert affinity._gram_is_cheaper(z, matrix) == expected


def test_outputs_are_the_students_own():
    """The folded matrix gives the unit outputs of the Flax module."""
    params = students(6, 4, 8)
    x = np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32)
    outputs = jax.jit(affinity.outputs)(params["x"], affinity.standardized(x))
    np.testing.assert_allclose(outputs, bind(params).x(x), atol=1e-6)


@pytest.mark.parametrize("n", [3, 40])
def test_a_student_of_zeros_has_finite_gradients(n):
    """Outputs without length have cosine 0 and no gradient that is not a number."""
    params = jax.tree.map(jnp.zeros_like, init_params(4, 5, 16, key=jax.random.key(0)))
    x = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    y = np.random.default_rng(1).normal(size=(n, 5)).astype(np.float32)

    def total(params):
        return jnp.sum(affinity.cosines(params, *affinity.standardized_sides(x, y)))

    value, gradient = jax.value_and_grad(total)(params)
    assert float(value) == 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
