"""The bridge cost: hand values, the whole tensor in float64, laws, and bad input."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchordot_jax.costs import tiles
from anchordot_jax.costs.bridge import bridge_cost
from anchordot_jax.coupling import log_plan, solve_cost
from anchordot_jax.errors import InputError

X = np.array([[0.1, 0.9], [0.5, 0.2]])
Y = np.array([[0.3, 0.4], [0.8, 0.05]])


def distances(seed, shape):
    return np.random.default_rng(seed).random(shape).astype(np.float32)


def whole(x, y):
    """Return the cost from the whole tensor, float64."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    return (x[:, None, :] + y[None, :, :]).min(axis=2)


def test_hand_values():
    np.testing.assert_allclose(bridge_cost(X, Y), [[0.4, 0.9], [0.6, 0.25]], rtol=1e-6)


@settings(deadline=None, max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    sizes=st.sampled_from([(1, 1, 1), (19, 11, 33)]),
    tile=st.sampled_from([None, 4]),
)
def test_tiles_equal_the_whole_tensor(seed, sizes, tile):
    """Rows and anchors that fill no tile or block do not count."""
    n, m, n_anchors = sizes
    x, y = distances(seed, (n, n_anchors)), distances(seed + 1, (m, n_anchors))
    found = bridge_cost(x, y, tile=tile)
    np.testing.assert_allclose(found, whole(x, y), rtol=1e-6)


def test_own_mean():
    """Each side is divided by its mean, so that no side's unit matters."""
    x, y = distances(0, (7, 5)), distances(1, (6, 5))
    found = bridge_cost(1000 * x, 0.1 * y, own_mean=True)
    np.testing.assert_allclose(found, whole(x / x.mean(), y / y.mean()), rtol=1e-5)


def test_zero_distances_have_no_mean_to_divide_by():
    zeros = np.zeros((3, 2))
    np.testing.assert_array_equal(
        bridge_cost(zeros, zeros, own_mean=True), np.zeros((3, 3))
    )


def test_bounds_and_anchors():
    """At least the two nearest anchors' distances; 0 for an anchor pair itself."""
    x, y = distances(2, (9, 6)), distances(3, (8, 6))
    x[4, 2] = y[5, 2] = 0
    cost = np.asarray(bridge_cost(x, y))
    assert cost[4, 5] == 0
    bound = x.min(axis=1)[:, None] + y.min(axis=1)[None, :]
    assert np.all(cost >= bound - 1e-6)
    fewer = np.asarray(bridge_cost(x[:, :3], y[:, :3]))
    assert np.all(fewer >= cost)
    assert np.any(fewer > cost)


def test_one_anchor_gives_the_product_plan():
    """A cost of a row term and a column term carries no information."""
    cost = bridge_cost(distances(4, (9, 1)), distances(5, (7, 1)))
    plan = np.exp(log_plan(solve_cost(cost, 0.05), cost))
    np.testing.assert_allclose(plan, np.full((9, 7), 1 / 63), rtol=1e-3)


def test_a_constant_an_item_shifts_its_row():
    x, y = distances(6, (7, 5)), distances(7, (6, 5))
    shift = np.arange(7, dtype=np.float32)[:, None]
    np.testing.assert_allclose(
        bridge_cost(x + shift, y), np.asarray(bridge_cost(x, y)) + shift, rtol=1e-6
    )


def test_memory_is_that_of_the_cost():
    """Beside cost and distances, the compiled function holds a tile, not n m N."""
    n = m = n_anchors = 512
    shape = jax.ShapeDtypeStruct((n, n_anchors), np.float32)
    compiled = tiles._over_anchors.lower(
        shape, shape, step=jax.numpy.minimum, start=np.inf, padding=np.inf, tile=64
    ).compile()
    memory = compiled.memory_analysis()
    assert memory.temp_size_in_bytes < 8 * 4 * n * m
    assert memory.temp_size_in_bytes < 4 * n * m * n_anchors / 50


def test_tile_rows():
    """A tile is near the CPU's cache and never less than 8 rows."""
    assert tiles.tile_rows(1000) == tiles.CPU_TILE // 1000
    assert tiles.tile_rows(10**6) == 8


@pytest.mark.parametrize("shapes", [((3, 2), (3, 4)), ((3, 0), (2, 0)), ((3,), (3,))])
def test_bad_shapes(shapes):
    x, y = (np.zeros(shape, np.float32) for shape in shapes)
    with pytest.raises(InputError, match="one column for each of the same anchors"):
        bridge_cost(x, y)
