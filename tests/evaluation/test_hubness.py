"""k-occurrence and its skewness: hand values, SciPy, and bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import skew

from anchordot_jax.errors import InputError
from anchordot_jax.evaluation.hubness import k_occurrence, skewness
from anchordot_jax.matching.nearest import top_k

SCORES = np.array([[0.9, 0.8, 0.1], [0.7, 0.6, 0.2], [0.3, 0.65, 0.4]], np.float32)


@pytest.mark.parametrize(("k", "expected"), [(1, [2, 1, 0]), (2, [2, 3, 1])])
def test_k_occurrence_hand_values(k, expected):
    """The worked 3 x 3 example, with the zero of the item nobody retrieves."""
    indices = top_k(SCORES, np.eye(3, dtype=np.float32), k).indices
    np.testing.assert_array_equal(k_occurrence(indices, 3), expected)


def test_skewness_hand_value():
    """Zeros count and no bias correction is applied."""
    assert skewness(np.array([5, 1, 0, 0, 2, 2, 0, 0])) == pytest.approx(
        1.298011, abs=1e-6
    )


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 50), min_size=2, max_size=30))
def test_skewness_is_scipys(counts):
    """Equal to scipy.stats.skew where that is defined, else 0."""
    constant = len(set(counts)) == 1
    expected = 0.0 if constant else skew(counts, bias=True)
    assert skewness(np.array(counts)) == pytest.approx(expected, abs=1e-9)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 4))
def test_occurrences_sum_to_all_neighbours(seed, k):
    """Every one of the q * k neighbours is counted once."""
    indices = np.random.default_rng(seed).integers(0, 7, (6, k))
    counts = k_occurrence(indices, 9)
    assert counts.sum() == 6 * k
    np.testing.assert_array_equal(counts, [(indices == j).sum() for j in range(9)])


@pytest.mark.parametrize(
    "indices", [[[0, 3]], [[-1, 0]], [[0.0, 1.0]], np.empty((0, 2), int)]
)
def test_indices_outside_the_gallery(indices):
    """Indices that are not gallery positions are refused."""
    with pytest.raises(InputError, match="whole numbers from 0 to n_gallery - 1 = 2"):
        k_occurrence(np.array(indices), 3)


@pytest.mark.parametrize("counts", [np.empty(0), np.ones((2, 2))])
def test_counts_must_be_a_vector(counts):
    """No counts, or a table of them, is refused."""
    with pytest.raises(InputError, match="counts must be a vector"):
        skewness(counts)
