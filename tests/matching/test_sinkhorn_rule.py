"""The converged plan as scores: hand values, POT, its laws, offsets, bad input."""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from anchordot_jax.config import CouplingConfig
from anchordot_jax.errors import InputError
from anchordot_jax.matching.nearest import top_k
from anchordot_jax.matching.query_bank import inverted_softmax
from anchordot_jax.matching.sinkhorn import sinkhorn, sinkhorn_offsets

SCORES = np.array([[0.9, 0.8, 0.1], [0.7, 0.6, 0.2], [0.3, 0.65, 0.4]], np.float32)
PLAN = [
    [0.186545, 0.141878, 0.004910],
    [0.145609, 0.110744, 0.076980],
    [0.001179, 0.080712, 0.251443],
]
EXACT = CouplingConfig(tolerance=1e-6)
SEEDS = st.integers(0, 10_000)


def similarities(shape, seed):
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def test_hand_values():
    """The worked 3 x 3 example."""
    found = np.exp(sinkhorn(SCORES, 0.1, config=EXACT))
    np.testing.assert_allclose(found, PLAN, atol=2e-6)


@settings(deadline=None, max_examples=6)
@given(seed=SEEDS, epsilon=st.sampled_from([0.1, 0.5]))
def test_matches_pot(seed, epsilon):
    """POT's log-domain Sinkhorn in float64, with n != m."""
    s = similarities((9, 7), seed)
    expected = ot.sinkhorn(
        np.full(9, 1 / 9),
        np.full(7, 1 / 7),
        1 - s,
        epsilon,
        method="sinkhorn_log",
        numItermax=5000,
        stopThr=1e-12,
    )
    found = np.exp(sinkhorn(s, epsilon, config=EXACT))
    np.testing.assert_allclose(found, expected, atol=2e-5 * expected.max())


@settings(deadline=None, max_examples=10)
@given(seed=SEEDS)
def test_row_and_column_constants_change_nothing(seed):
    """The potentials take up whatever is added to a row or to a column."""
    s = similarities((9, 7), seed)
    rows, columns = similarities((9, 1), seed + 1), similarities((1, 7), seed + 2)
    shifted = sinkhorn(s + rows + columns, 0.2, config=EXACT)
    np.testing.assert_allclose(shifted, sinkhorn(s, 0.2, config=EXACT), atol=2e-4)


def test_every_item_gets_the_same_mass():
    """Rows sum to 1/q and columns to 1/m: no gallery item is a hub."""
    s = similarities((9, 7), 3) + np.linspace(0, 3, 7)[None, :]
    plan = np.exp(sinkhorn(s, 0.1, config=EXACT).astype(np.float64))
    np.testing.assert_allclose(plan.sum(axis=1), np.full(9, 1 / 9), rtol=1e-4)
    np.testing.assert_allclose(plan.sum(axis=0), np.full(7, 1 / 7), rtol=1e-4)


def test_the_first_half_step_is_the_inverted_softmax():
    """From potentials of zero, n times the column-normalised kernel."""
    kernel = np.exp((SCORES - 1) / 0.1)
    half_step = kernel / kernel.sum(axis=0) / 3
    expected = np.exp(inverted_softmax(SCORES, 10.0))
    np.testing.assert_allclose(3 * half_step, expected, rtol=1e-5)
    # And the whole way on from there is another matrix.
    assert np.abs(3 * np.exp(sinkhorn(SCORES, 0.1)) - expected).max() > 0.1


@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (1, 1)])
def test_a_single_row_or_column_ties_everything(shape):
    """The marginals leave no choice; the scores are equal, to the last bit."""
    s = SCORES[: shape[0], : shape[1]]
    found = sinkhorn(s, 0.1)
    np.testing.assert_array_equal(found, np.full(shape, found[0, 0]))
    np.testing.assert_allclose(np.exp(found).sum(), 1, rtol=1e-6)


def test_offsets_rank_new_queries_by_their_row_of_the_plan():
    """For the bank's own queries the streamed ranking is the whole plan's."""
    bank, gallery = reference.unit_rows(9, 5, 0), reference.unit_rows(7, 5, 1)
    offsets = sinkhorn_offsets(bank, gallery, 0.1, config=EXACT)
    plan = sinkhorn(bank @ gallery.T, 0.1, config=EXACT)
    found = top_k(bank, gallery, 7, scale=10.0, offsets=offsets)
    expected = np.take_along_axis(plan, found.indices, axis=1)
    shift = found.scores - expected
    np.testing.assert_allclose(shift, shift[:, :1].repeat(7, axis=1), atol=1e-3)
    assert np.ptp(offsets) > 0.1
    assert offsets.dtype == np.float32


@pytest.mark.parametrize("epsilon", [0.0, -0.1, float("nan"), float("inf")])
def test_epsilon_must_be_positive(epsilon):
    """An epsilon that is not a positive finite number is refused by both forms."""
    with pytest.raises(InputError, match="epsilon must be a finite number > 0"):
        sinkhorn(SCORES, epsilon)
    with pytest.raises(InputError, match="epsilon must be a finite number > 0"):
        sinkhorn_offsets(SCORES, SCORES, epsilon)


def test_an_epsilon_beyond_float32_is_said():
    """Where no finite plan comes out, the error names epsilon."""
    with pytest.raises(InputError, match="Sinkhorn found no plan with epsilon 1e-42"):
        sinkhorn(SCORES, 1e-42)


def test_bad_arrays():
    """Values that are not finite and spaces that differ are refused."""
    with pytest.raises(InputError, match="similarity has a value that is not finite"):
        sinkhorn(np.full((2, 2), np.nan), 0.1)
    with pytest.raises(InputError, match="3 columns but gallery has 2"):
        sinkhorn_offsets(SCORES, SCORES[:, :2], 0.1)
