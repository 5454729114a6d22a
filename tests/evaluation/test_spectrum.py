"""Participation ratio: eigenvalues, hand values, invariances, and bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchordot_jax.errors import InputError
from anchordot_jax.evaluation.spectrum import (
    participation_ratio,
    participation_ratio_of_spectrum,
)


def spread(shape, seed=0):
    """Return rows with an uneven spectrum and a mean far from zero."""
    rows = np.random.default_rng(seed).normal(size=shape)
    return (rows / np.arange(1, shape[1] + 1) + 0.5).astype(np.float32)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("shape", [(40, 7), (7, 40), (12, 12), (1, 5)])
def test_equals_the_eigenvalues(shape, center):
    """The trace formula agrees with the eigenvalues of the second-moment matrix."""
    x = spread(shape)
    rows = x.astype(np.float64) - (x.mean(axis=0, dtype=np.float64) if center else 0)
    eigenvalues = np.maximum(np.linalg.eigvalsh(rows.T @ rows / len(rows)), 0)
    found = participation_ratio(x, center=center)
    if rows.any():
        expected = participation_ratio_of_spectrum(eigenvalues)
        assert found == pytest.approx(expected, rel=1e-9)
    else:
        assert found == 0.0


@pytest.mark.parametrize(("gamma", "expected"), [(0, 2.0), (1, 2.631579), (2, 3.0)])
def test_hand_values(gamma, expected):
    """The spectrum of (.5, .3, .2) to the power 2 - gamma."""
    values = np.array([0.5, 0.3, 0.2]) ** (2 - gamma)
    assert participation_ratio_of_spectrum(values) == pytest.approx(expected, abs=1e-6)
    as_rows = np.diag(np.sqrt(values))
    assert participation_ratio(as_rows) == pytest.approx(expected, abs=1e-6)


@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 10_000),
    block_bytes=st.sampled_from([1, 200, 1000]),
    shape=st.sampled_from([(23, 6), (6, 23)]),
    center=st.booleans(),
)
def test_block_size_changes_nothing(seed, block_bytes, shape, center):
    """Streaming in blocks of any size gives the same ratio."""
    x = spread(shape, seed)
    blocked = participation_ratio(x, center=center, block_bytes=block_bytes)
    assert blocked == pytest.approx(participation_ratio(x, center=center), rel=1e-9)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-15, 1.0, 1e15]))
def test_invariant_to_scale_and_bounded(seed, scale):
    """A scale changes nothing, and the ratio lies between 1 and the rank."""
    x = spread((9, 5), seed)
    ratio = participation_ratio(x * np.float32(scale))
    assert ratio == pytest.approx(participation_ratio(x), rel=1e-5)
    assert 1 - 1e-9 <= ratio <= 5 + 1e-9


def test_one_direction_is_one():
    """Copies of one vector use a single dimension; zeros use none."""
    x = np.tile(spread((1, 6)), (8, 1))
    assert participation_ratio(x) == pytest.approx(1.0)
    assert participation_ratio(0 * x) == 0.0


@pytest.mark.parametrize(
    "values", [[-1.0, 2.0], [0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], []]
)
def test_spectrum_must_be_nonnegative(values):
    """Negative, all-zero, empty or non-finite spectra are refused."""
    with pytest.raises(InputError, match="eigenvalues must be finite and >= 0"):
        participation_ratio_of_spectrum(np.array(values))


def test_bad_input_is_named():
    """A value that is not finite, and a block of no bytes, are refused."""
    with pytest.raises(InputError, match=r"x has a value .* in row 1"):
        participation_ratio(np.array([[1.0, 2.0], [np.inf, 0.0]]))
    with pytest.raises(InputError, match="block_bytes must be a whole number"):
        participation_ratio(np.ones((2, 2)), block_bytes=0)
