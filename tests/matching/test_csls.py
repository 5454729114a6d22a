"""CSLS: hand values, a float64 reference, its law, the streamed form, bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from anchordot_jax.errors import InputError
from anchordot_jax.matching.csls import csls, csls_offsets
from anchordot_jax.matching.nearest import top_k

SCORES = np.array([[0.9, 0.8, 0.1], [0.7, 0.6, 0.2], [0.3, 0.65, 0.4]], np.float32)
SEEDS = st.integers(0, 10_000)


def by_loops(s, k):
    """Return CSLS entry by entry, in float64."""
    s = np.asarray(s, np.float64)
    r_x = [np.mean(sorted(row)[-k:]) for row in s]
    r_y = [np.mean(sorted(column)[-k:]) for column in s.T]
    found = [
        [2 * s[i, j] - r_x[i] - r_y[j] for j in range(s.shape[1])]
        for i in range(len(s))
    ]
    return np.array(found)


@pytest.mark.parametrize(
    ("k", "first_row"), [(1, [0.0, -0.1, -1.1]), (2, [0.15, 0.025, -0.95])]
)
def test_hand_values(k, first_row):
    """The worked 3 x 3 example, with one neighbour and with two."""
    np.testing.assert_allclose(csls(SCORES, k)[0], first_row, atol=1e-6)


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS, k=st.integers(1, 12))
def test_matches_the_formula(seed, k):
    """Any k, also beyond a side's size, gives the formula taken entry by entry."""
    s = np.random.default_rng(seed).uniform(-1, 1, (7, 9))
    found = csls(s, k)
    np.testing.assert_allclose(found, by_loops(s, k), atol=1e-6)
    assert found.dtype == np.float32


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS, constant=st.floats(-3, 3))
def test_one_constant_changes_nothing(seed, constant):
    """S + c gives the scores of S: 2c less c less c."""
    s = np.random.default_rng(seed).uniform(-1, 1, (6, 8))
    np.testing.assert_allclose(csls(s + constant, 3), csls(s, 3), atol=5e-6)


def test_transposing_is_the_other_direction():
    """One matrix serves both directions."""
    s = np.random.default_rng(0).uniform(-1, 1, (6, 8))
    np.testing.assert_array_equal(csls(s.T, 4), csls(s, 4).T)


def test_many_neighbours_count_as_all():
    """K beyond both sides is the mean over the whole side; one query works."""
    np.testing.assert_array_equal(csls(SCORES, 100), csls(SCORES, 3))
    one = csls(SCORES[:1], 10)
    expected = 2 * SCORES[:1] - SCORES[:1].mean() - SCORES[:1]
    np.testing.assert_allclose(one, expected, atol=1e-6)


def test_equal_items_get_equal_scores():
    """A gallery item given twice ties with itself, whatever the others are."""
    s = np.random.default_rng(1).uniform(-1, 1, (13, 6))
    found = csls(s[:, [0, 1, 2, 0, 3, 4, 5, 1]], 4)
    np.testing.assert_array_equal(found[:, 0], found[:, 3])
    np.testing.assert_array_equal(found[:, 1], found[:, 7])


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS, k=st.integers(1, 14))
def test_offsets_rank_as_the_whole_matrix(seed, k):
    """With the queries as the bank, the streamed scores are CSLS plus r_i."""
    queries = reference.unit_rows(11, 5, seed)
    gallery = reference.unit_rows(8, 5, seed + 1)
    offsets = csls_offsets(queries, gallery, k)
    streamed = 2 * queries @ gallery.T + offsets[None, :]
    added = streamed - csls(queries @ gallery.T, k)
    np.testing.assert_allclose(added, added[:, :1].repeat(8, axis=1), atol=2e-6)
    ranked = top_k(queries, gallery, 8, scale=2.0, offsets=offsets)
    by_sort = np.take_along_axis(streamed, ranked.indices, axis=1)
    assert (np.diff(by_sort, axis=1) <= 1e-6).all()
    assert offsets.dtype == np.float32


def test_offsets_are_the_mean_of_the_nearest():
    """r_j by hand: the two largest of each column of the worked example."""
    offsets = csls_offsets(SCORES, np.eye(3), 2)
    np.testing.assert_allclose(offsets, [-0.8, -0.725, -0.3], atol=1e-6)


@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_k_is_checked(k):
    """A number of neighbours that is no count is refused, by both forms."""
    with pytest.raises(InputError, match="k must be a whole number >= 1"):
        csls(SCORES, k)
    with pytest.raises(InputError, match="k must be a whole number >= 1"):
        csls_offsets(SCORES, np.eye(3), k)


def test_the_similarity_is_checked():
    """A vector and a value that is not finite are refused, by name."""
    with pytest.raises(InputError, match="similarity must be a matrix"):
        csls(SCORES[0])
    with pytest.raises(InputError, match="similarity has a value that is not finite"):
        csls(np.where(SCORES > 0.8, np.nan, SCORES))
