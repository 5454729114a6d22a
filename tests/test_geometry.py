"""The streamed and the stored cost against OTT's dense geometry and NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ott.geometry import pointcloud

import reference
from anchordot_jax import geometry

N, M, R = 53, 37, 6
TILES = (1, 7, 64)
EPSILON = 0.05


@functools.partial(jax.jit, static_argnames=("axis", "tile", "stored"))
def apply(x, y, f, g, eps, vec, *, axis, tile, stored):
    """Return apply_lse_kernel of our geometry."""
    cost = geometry.cost_block(x, y) if stored else None
    geom = geometry.ProfileGeometry(x, y, epsilon=eps, tile=tile, cost=cost)
    return geom.apply_lse_kernel(f, g, eps, vec, axis=axis)


@functools.partial(jax.jit, static_argnames="axis")
def apply_ott(x, y, f, g, eps, vec, *, axis):
    """Return apply_lse_kernel of OTT's own point cloud, with its dense cost."""
    cost_fn = geometry.OneMinusDot()
    geom = pointcloud.PointCloud(x, y, cost_fn=cost_fn, epsilon=eps)
    return geom.apply_lse_kernel(f, g, eps, vec, axis=axis)


def problem(seed=0):
    """Return x, y and two potentials that are far from a solution."""
    random = np.random.default_rng(seed)
    f = random.normal(scale=0.2, size=N).astype(np.float32)
    g = random.normal(scale=0.2, size=M).astype(np.float32)
    x, y = reference.unit_rows(N, R, seed), reference.unit_rows(M, R, seed + 1)
    return x, y, f, g


def ways():
    """Return the geometry's settings: each tile, and the stored cost."""
    streamed = [{"tile": tile, "stored": False} for tile in TILES]
    return [*streamed, {"tile": 64, "stored": True}]


def test_cost_is_one_minus_the_inner_product():
    """cost_block and the OTT cost function are 1 - <x, y> in float64, to rounding."""
    x, y, _, _ = problem()
    expected = reference.cost(x, y)
    np.testing.assert_allclose(geometry.cost_block(x, y), expected, atol=5e-7)
    one = geometry.OneMinusDot()(jnp.asarray(x[3]), jnp.asarray(y[5]))
    np.testing.assert_allclose(one, expected[3, 5], atol=5e-7)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("way", ways(), ids=str)
def test_streamed_stored_and_dense_agree(axis, way):
    """Every tile size, the stored cost, OTT's dense cost and NumPy are one function."""
    x, y, f, g = problem()
    found, sign = apply(x, y, f, g, EPSILON, None, axis=axis, **way)
    assert found.shape == (N if axis == 1 else M,)
    assert sign is None or bool((sign == 1).all())
    h = g if axis == 1 else f
    expected, _ = reference.log_kernel(h, reference.cost(x, y), EPSILON, axis)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with jax.numpy_rank_promotion("allow"):
        dense, _ = apply_ott(x, y, f, g, EPSILON, None, axis=axis)
    np.testing.assert_allclose(found, dense, atol=2e-6)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("way", ways(), ids=str)
def test_minus_infinity_carries_no_weight(axis, way):
    """Rows whose potential is -inf (zero marginal) add nothing and get a value."""
    x, y, f, g = problem()
    f[[0, 7, 52]], g[[1, 36]] = -np.inf, -np.inf
    found, _ = apply(x, y, f, g, EPSILON, None, axis=axis, **way)
    h = g if axis == 1 else f
    expected, _ = reference.log_kernel(h, reference.cost(x, y), EPSILON, axis)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("way", ways(), ids=str)
def test_no_weight_at_all_is_minus_infinity(way):
    """The logarithm of an empty sum is -inf, never NaN."""
    x, y, f, _ = problem()
    empty = np.full(M, -np.inf, np.float32)
    found, _ = apply(x, y, f, empty, EPSILON, None, axis=1, **way)
    np.testing.assert_array_equal(found, np.full(N, -np.inf))


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    axis=st.sampled_from([0, 1]),
    way=st.sampled_from(ways()[1:]),
)
def test_signed_weights(seed, axis, way):
    """With weights of both signs: eps log |sum| and the sum's sign, as in NumPy."""
    x, y, f, g = problem(seed)
    vec = np.random.default_rng(seed).normal(size=M if axis == 1 else N)
    found, sign = apply(x, y, f, g, EPSILON, vec.astype(np.float32), axis=axis, **way)
    h = g if axis == 1 else f
    costs = reference.cost(x, y)
    expected, expected_sign = reference.log_kernel(h, costs, EPSILON, axis, vec)
    whole, _ = reference.log_kernel(h, costs, EPSILON, axis, np.abs(vec))
    # Where the terms cancel to a thousandth, float32 knows the sum's digits no more.
    clear = expected > whole + EPSILON * np.log(1e-3)
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(sign[clear], expected_sign[clear])
    np.testing.assert_allclose(found[clear], expected[clear], atol=1e-4)


def test_signed_weights_follow_ott():
    """The value and sign for signed weights are those of OTT's dense geometry."""
    x, y, f, g = problem()
    vec = np.where(np.arange(M) < 30, 1, -0.01).astype(np.float32)
    found, sign = apply(x, y, f, g, EPSILON, vec, axis=1, tile=7, stored=False)
    with jax.numpy_rank_promotion("allow"):
        dense, dense_sign = apply_ott(x, y, f, g, EPSILON, vec, axis=1)
    np.testing.assert_allclose(found, dense, atol=1e-5)
    np.testing.assert_array_equal(sign, dense_sign)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("way", ways(), ids=str)
@pytest.mark.parametrize("epsilon", [1e-2, 1e-3, 1e-4])
def test_first_iteration_of_a_tiny_epsilon(axis, way, epsilon):
    """From f = g = 0 every exp(-C/eps) underflows, the result stays exact."""
    # All costs lie between 1 and 2.
    x, y, f, g = problem()
    x, y = np.abs(x), -np.abs(y)
    costs = reference.cost(x, y)
    f, g = 0 * f, 0 * g
    found, _ = apply(x, y, f, g, epsilon, None, axis=axis, **way)
    expected, _ = reference.log_kernel(g if axis else f, costs, epsilon, axis)
    assert np.exp(expected / epsilon, dtype=np.float32).max() < 1e-30
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shift", [-30.0, 30.0])
def test_stored_cost_with_a_misleading_potential(axis, shift):
    """The other potential only stabilises: however wrong it is, the result is right."""
    x, y, f, g = problem()
    own, h = (f, g) if axis == 1 else (g, f)
    own = own + np.float32(shift)
    f, g = (own, h) if axis == 1 else (h, own)
    found, _ = apply(x, y, f, g, EPSILON, None, axis=axis, tile=64, stored=True)
    expected, _ = reference.log_kernel(h, reference.cost(x, y), EPSILON, axis)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_one_row_far_out_of_range_spoils_no_other():
    """A single potential out of range sends all rows to the maximum, rightly."""
    x, y, f, g = problem()
    f[11] = 20.0
    found, _ = apply(x, y, f, g, EPSILON, None, axis=1, tile=64, stored=True)
    expected, _ = reference.log_kernel(g, reference.cost(x, y), EPSILON, 1)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_geometry_passes_through_jit():
    """Flattening and rebuilding keeps the arrays, the tile and the stored cost."""
    x, y, _, _ = problem()
    cost = geometry.cost_block(x, y)
    geom = geometry.ProfileGeometry(x, y, epsilon=EPSILON, tile=7, cost=cost)
    leaves, tree = jax.tree.flatten(geom)
    again = jax.tree.unflatten(tree, leaves)
    assert isinstance(again, geometry.ProfileGeometry)
    assert again._tile == 7
    np.testing.assert_array_equal(again._cost, cost)
    np.testing.assert_array_equal(again.x, x)
    np.testing.assert_allclose(again.epsilon, EPSILON, rtol=1e-6)


def cone(n, seed):
    """Return unit rows around one direction, so that the median is far from 1."""
    noise = np.random.default_rng(seed).normal(size=(n, 24))
    return reference.unit(np.eye(24)[0] + 0.2 * noise).astype(np.float32)


def test_median_of_small_pools_is_exact(next_key):
    """With at most 2^20 entries it is the median of all of them, for any key."""
    x, y, _, _ = problem()
    expected = np.median(reference.cost(x, y))
    for key in (next_key(), next_key()):
        found = geometry.sampled_median_cost(x, y, key=key)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_median_of_large_pools_is_sampled(next_key):
    """Beyond 2^20 entries it is within 1 % of the median, and fixed by the key."""
    x, y = cone(1500, 0), cone(800, 1)
    assert len(x) * len(y) > geometry.MEDIAN_BLOCKS * geometry.MEDIAN_BLOCK**2
    expected = np.median(reference.cost(x, y))
    keys = [next_key() for _ in range(5)]
    found = [float(geometry.sampled_median_cost(x, y, key=key)) for key in keys]
    np.testing.assert_allclose(found, expected, rtol=0.01)
    assert len(set(found)) > 1
    assert float(geometry.sampled_median_cost(x, y, key=keys[0])) == found[0]


@functools.partial(jax.jit, static_argnames="plain")
def median(values, *, plain):
    return jnp.median(values) if plain else geometry.median(values)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 5),
)
def test_median_is_numpys(values, zeros):
    """Of even and odd counts, ties, both signs of zero."""
    values = np.asarray(values + zeros * [0.0] + [-0.0] * (zeros // 2), np.float32)
    found = float(median(values, plain=False))
    assert found == np.float32(np.median(values.astype(np.float64)))


def test_median_of_many_and_of_not_a_number():
    """The very float that sorting finds; NaN where one is among the values."""
    values = np.random.default_rng(0).normal(size=(100, 101)).astype(np.float32)
    assert float(median(values, plain=False)) == float(median(values, plain=True))
    values[3, 3] = np.nan
    assert np.isnan(float(median(values, plain=False)))


def test_kernel_products_are_those_of_the_matrix():
    """Along both axes, whatever epsilon is passed on."""
    kernel = np.random.default_rng(0).uniform(size=(5, 3)).astype(np.float32)
    geom = geometry.KernelGeometry(kernel_matrix=jnp.asarray(kernel), epsilon=0.3)
    u, v = np.arange(1.0, 6, dtype=np.float32), np.arange(1.0, 4, dtype=np.float32)
    for eps in (None, jnp.asarray(0.7)):
        rows = geom.apply_kernel(jnp.asarray(v), eps, axis=1)
        columns = geom.apply_kernel(jnp.asarray(u), eps, axis=0)
        np.testing.assert_allclose(rows, kernel @ v, rtol=1e-6)
        np.testing.assert_allclose(columns, u @ kernel, rtol=1e-6)
