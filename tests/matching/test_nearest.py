"""Top-k by inner product: exact order, ties, blocks, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.core import ClosedJaxpr

from anchordot_jax.errors import InputError
from anchordot_jax.matching import nearest
from anchordot_jax.matching.nearest import (
    BLOCK_BYTES,
    LEAST_ROWS,
    block_rows,
    score_blocks,
    score_tile,
    score_with,
    top_k,
)


def normal(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def whole_numbers(shape, seed):
    """Small integers: every inner product is exact, and many are equal."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


def reference(queries, gallery, k, offsets=0.0, scale=1.0):
    """Return indices and scores by a stable float64 sort."""
    scores = scale * queries.astype(np.float64) @ gallery.T.astype(np.float64) + offsets
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


def test_matches_a_stable_float64_sort():
    """Indices and scores are those of a sort of scale * q.g + offset."""
    queries, gallery, offsets = normal((23, 6)), normal((17, 6), 1), normal(17, 2)
    found = top_k(queries, gallery, 5, offsets=offsets, scale=3.0)
    indices, scores = reference(queries, gallery, 5, offsets, 3.0)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.scores, scores, rtol=1e-5, atol=1e-5)
    assert found.indices.dtype == np.int32
    assert found.scores.dtype == np.float32


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10_000), k=st.sampled_from([1, 4, 13]))
def test_ties_go_to_the_smaller_index(seed, k):
    """Among equal scores the items come in gallery order."""
    queries, gallery = whole_numbers((9, 3), seed), whole_numbers((13, 3), seed + 1)
    indices, scores = reference(queries, gallery, k)
    found = top_k(queries, gallery, k)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_array_equal(found.scores, scores)


def test_signed_zeros_are_equal():
    """A score of -0.0 ties with one of 0.0."""
    gallery = np.array([[-1.0], [1.0], [-1.0]], np.float32)
    found = top_k(np.zeros((1, 1), np.float32), gallery, 3)
    np.testing.assert_array_equal(found.indices, [[0, 1, 2]])


@settings(deadline=None, max_examples=10)
@given(rows=st.sampled_from([1, 8, 11, 40, 1000]))
def test_block_size_changes_nothing(rows):
    """Blocks of any size give the same bits."""
    queries, gallery = normal((37, 65)), normal((19, 65), 1)
    found = top_k(queries, gallery, 4, block_bytes=4 * 19 * rows)
    whole = top_k(queries, gallery, 4)
    np.testing.assert_array_equal(found.indices, whole.indices)
    np.testing.assert_array_equal(found.scores, whole.scores)


@pytest.mark.parametrize(("q", "m", "d"), [(1, 33, 513), (9, 101, 1024), (40, 7, 100)])
def test_equal_gallery_items_tie_exactly(q, m, d):
    """Copies of one gallery item score the same to the last bit, at every position."""
    gallery = np.tile(normal((1, d)), (m, 1))
    scoring = score_with(normal((q, d), 1), gallery, offsets=None, scale=1.0)
    (_, tile), *_ = score_blocks(scoring)
    np.testing.assert_array_equal(tile, np.repeat(np.asarray(tile)[:, :1], m, axis=1))


def test_k_above_the_gallery_is_the_gallery():
    """A k beyond the gallery returns every item."""
    assert top_k(normal((3, 2)), normal((5, 2)), 50).indices.shape == (3, 5)


def test_jax_arrays_give_the_same_result():
    """JAX and NumPy inputs give the same NumPy result."""
    queries, gallery = normal((4, 3)), normal((6, 3), 1)
    found = top_k(jnp.asarray(queries), jnp.asarray(gallery), 2)
    assert type(found.indices) is np.ndarray
    np.testing.assert_array_equal(found.indices, top_k(queries, gallery, 2).indices)


def test_tiles_cover_the_queries_within_the_budget():
    """Tiles have one shape, at most block_bytes, and cover every query once."""
    scoring = score_with(normal((100, 2)), normal((50, 2)), offsets=None, scale=1.0)
    blocks = list(score_blocks(scoring, block_bytes=4 * 50 * 30))
    assert [(rows.start, rows.stop) for rows, _ in blocks] == [
        (0, 30),
        (30, 60),
        (60, 90),
        (90, 100),
    ]
    assert {tile.shape for _, tile in blocks} == {(30, 50)}


def test_a_block_has_a_least_number_of_rows():
    """Neither a single query nor a tiny budget makes a block of one row."""
    assert block_rows(1, 10, 64 << 20) == LEAST_ROWS
    assert block_rows(100, 10, 1) == LEAST_ROWS


def test_no_array_has_the_size_of_the_score_matrix():
    """For 100,000 x 100,000 the largest array traced is one tile of at most 64 MB."""
    n = m = 100_000
    rows = block_rows(n, m, BLOCK_BYTES)

    def one_block(queries, gallery, offsets):
        return nearest._top_of_tile(score_tile(queries, gallery, offsets, 1.0), k=10)

    shapes = [(rows, 16), (m, 16), (m,)]
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    assert largest(jax.make_jaxpr(one_block)(*specs).jaxpr) == rows * m
    assert 4 * rows * m <= 64 << 20


def largest(jaxpr):
    """Return the number of entries of the largest array in a jaxpr."""
    sizes = []
    for equation in jaxpr.eqns:
        sizes += [v.aval.size for v in (*equation.invars, *equation.outvars)]
        inner = [p for p in equation.params.values() if isinstance(p, ClosedJaxpr)]
        sizes += [largest(closed.jaxpr) for closed in inner]
    return max(sizes)


def test_compiled_once_per_gallery():
    """Query sets of different sizes share the compilation of full blocks."""
    gallery, size = normal((21, 5)), 4 * 21 * 10
    top_k(normal((25, 5)), gallery, 3, block_bytes=size)
    compiled = score_tile._cache_size()
    top_k(normal((47, 5)), gallery, 3, block_bytes=size)
    assert score_tile._cache_size() == compiled


GOOD = np.ones((3, 2), np.float32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"queries": np.ones(3)}, r"queries must be a matrix .* shape \(3,\)"),
        ({"gallery": np.ones((0, 2))}, r"gallery must be a matrix .* shape \(0, 2\)"),
        ({"queries": np.array([["a", "b"]])}, "queries must be a matrix .* of numbers"),
        ({"queries": np.ones((3, 4))}, "queries have 4 columns but gallery has 2"),
        ({"gallery": np.array([[1, 2], [np.nan, 0]])}, "gallery has a .* in row 1"),
        ({"queries": np.full((1, 2), 1e300)}, "queries has a .* float32 in row 0"),
        ({"queries": np.full((1, 2), 3e38)}, "beyond float32; normalise"),
        ({"scale": float("nan")}, "with scale nan, beyond float32"),
        ({"offsets": np.ones(4)}, r"offsets must be 3 finite .* shape \(4,\)"),
        ({"offsets": np.array([0, np.inf, 0])}, "offsets must be 3 finite numbers"),
        ({"k": 0}, "k must be a whole number >= 1, got 0"),
        ({"k": 1.5}, "k must be a whole number >= 1, got 1.5"),
        ({"block_bytes": 0}, "block_bytes must be a whole number >= 1"),
    ],
)
def test_bad_input_is_named(arguments, message):
    """Every bad argument raises InputError that names it."""
    with pytest.raises(InputError, match=message):
        top_k(**({"queries": GOOD * 1e3, "gallery": GOOD, "k": 1} | arguments))
