"""Students: outputs against a float64 reference, initial values, dtypes, binding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from anchordot_jax import students

DIM_X, DIM_Y, DIM = 48, 32, 16


@functools.partial(jax.jit, static_argnames="side")
def encode(params, x, *, side):
    """Return one side's outputs."""
    return getattr(students.bind(params), side)(x)


def params_of(key, **settings):
    return students.init_params(DIM_X, DIM_Y, DIM, key=key, **settings)


@functools.cache
def trained_params(seed=0):
    """Return parameters whose every leaf differs from its initial value."""
    random = np.random.default_rng(seed)

    def shaken(leaf):
        return np.float32(np.asarray(leaf) + 0.3 * random.normal(size=leaf.shape))

    return jax.tree.map(shaken, params_of(jax.random.key(seed)))


def test_outputs_have_unit_norm():
    """Both sides' outputs are unit rows in the shared space."""
    for side, dim in (("x", DIM_X), ("y", DIM_Y)):
        x = 3 * reference.unit_rows(5, dim, 0)
        out = encode(trained_params(), x, side=side)
        assert out.shape == (5, DIM)
        np.testing.assert_allclose(np.linalg.norm(out, axis=1), 1, rtol=1e-5)


def test_layer_norm_epsilon_is_1e_5():
    """The outputs are those of LayerNorm at epsilon 1e-5; 1e-6 differs visibly."""
    params = trained_params()
    x = reference.unit_rows(5, DIM_X, 0) * 7
    # On rows of small variance the two epsilons differ most.
    x = x + np.float32(20)
    found = encode(params, x, side="x")
    np.testing.assert_allclose(found, reference.student(x, params["x"]), atol=1e-4)
    other = reference.student(x, params["x"], epsilon=1e-6)
    assert np.abs(found - other).max() > 1e-3


def test_logits_are_scaled_cosines():
    """The logits are exp(log_scale) times the outputs' inner products."""
    params = trained_params()
    x, y = reference.unit_rows(5, DIM_X, 0), reference.unit_rows(4, DIM_Y, 1)
    found = jax.jit(lambda p: students.bind(p)(x, y))(params)
    cosines = reference.student(x, params["x"]) @ reference.student(y, params["y"]).T
    expected = np.exp(float(params["log_scale"])) * cosines
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_initial_scale():
    """The initial logit scale is 1/0.07 = 14.2857, stored as log s = 2.659260."""
    params = params_of(jax.random.key(0))
    np.testing.assert_allclose(params["log_scale"], 2.659260, atol=5e-7)
    np.testing.assert_allclose(np.exp(params["log_scale"]), 14.2857, atol=5e-5)
    params = params_of(jax.random.key(0), temperature=0.5)
    np.testing.assert_allclose(params["log_scale"], np.log(2), rtol=1e-6)


def test_initial_weights(next_key):
    """Xavier-uniform weights, zero biases, LayerNorm at 1 and 0."""
    params = params_of(next_key())
    for side, dim in (("x", DIM_X), ("y", DIM_Y)):
        kernel = np.asarray(params[side]["linear"]["kernel"])
        limit = np.sqrt(6 / (dim + DIM))
        assert kernel.shape == (dim, DIM)
        assert np.abs(kernel).max() <= limit
        np.testing.assert_allclose(kernel.std(), limit / np.sqrt(3), rtol=0.1)
        np.testing.assert_array_equal(params[side]["linear"]["bias"], np.zeros(DIM))
        np.testing.assert_array_equal(params[side]["norm"]["scale"], np.ones(dim))
        np.testing.assert_array_equal(params[side]["norm"]["bias"], np.zeros(dim))
    first = params["x"]["linear"]["kernel"][:DIM_Y]
    assert not np.array_equal(first, params["y"]["linear"]["kernel"])


def test_every_leaf_is_strongly_typed_float32(next_key):
    """No leaf is weakly typed: such a one would recompile the training step."""
    leaves = jax.tree.leaves(params_of(next_key()))
    assert len(leaves) == 9
    for leaf in leaves:
        assert leaf.dtype == jnp.float32
        assert not leaf.aval.weak_type


def test_init_is_fixed_by_the_key():
    """The same key draws the same parameters, another key others."""
    one, two, other = (params_of(jax.random.key(seed)) for seed in (1, 1, 2))
    jax.tree.map(np.testing.assert_array_equal, one, two)
    kernels = [params["x"]["linear"]["kernel"] for params in (one, other)]
    assert not np.array_equal(*kernels)


def test_bind_gives_the_students_of_the_parameters(next_key):
    """Binding keeps every leaf, and equals the module that the key draws."""
    key = next_key()
    params = params_of(key)
    model = students.bind(params)
    np.testing.assert_array_equal(model.log_scale[...], params["log_scale"])
    for side in ("x", "y"):
        encoder = getattr(model, side)
        found = {
            "norm": {"scale": encoder.norm.scale[...], "bias": encoder.norm.bias[...]},
            "linear": {
                "kernel": encoder.linear.kernel[...],
                "bias": encoder.linear.bias[...],
            },
        }
        jax.tree.map(np.testing.assert_array_equal, found, dict(params[side]))
    drawn = students.Students(DIM_X, DIM_Y, DIM, key=key)
    x, y = reference.unit_rows(5, DIM_X, 0), reference.unit_rows(4, DIM_Y, 1)
    np.testing.assert_array_equal(model(x, y), drawn(x, y))


def test_bind_follows_new_values():
    """Binding other values of the same shapes never sees the earlier ones."""
    x = reference.unit_rows(5, DIM_X, 0)
    first, second = trained_params(0), trained_params(1)
    before = students.bind(first).x(x)
    after = students.bind(second).x(x)
    np.testing.assert_allclose(after, reference.student(x, second["x"]), atol=1e-5)
    assert np.abs(after - before).max() > 1e-2
    np.testing.assert_array_equal(students.bind(first).x(x), before)


def test_bind_is_differentiable():
    """Gradients come in the parameters' own structure, finite and not zero."""
    params = trained_params()
    x, y = reference.unit_rows(5, DIM_X, 0), reference.unit_rows(4, DIM_Y, 1)
    weights = np.random.default_rng(2).normal(size=(5, 4)).astype(np.float32)
    loss = jax.jit(jax.grad(lambda p: jnp.sum(students.bind(p)(x, y) * weights)))
    gradients = loss(params)
    assert jax.tree.structure(gradients) == jax.tree.structure(params)
    for gradient in jax.tree.leaves(gradients):
        assert bool(jnp.isfinite(gradient).all())
        assert float(jnp.abs(gradient).max()) > 1e-6


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), factor=st.sampled_from([1e-3, 0.5, 30.0]))
def test_input_length_changes_nothing(seed, factor):
    """The input's rows are normalised first: their lengths do not matter."""
    x = reference.unit_rows(5, DIM_X, seed)
    found = encode(trained_params(), x * np.float32(factor), side="x")
    expected = encode(trained_params(), x, side="x")
    np.testing.assert_allclose(found, expected, atol=1e-5)
