"""Inverted softmax: hand values, float64 reference, streaming, and bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from anchordot_jax.errors import InputError
from anchordot_jax.matching import inverted_softmax
from anchordot_jax.matching.inverted_softmax import _tile_shape, bank_offsets
from anchordot_jax.matching.nearest import top_k

SCORES = np.array([[0.9, 0.8, 0.1], [0.7, 0.6, 0.2], [0.3, 0.65, 0.4]], np.float32)
ITEMS = np.eye(3, dtype=np.float32)


def unit(shape, seed):
    rows = np.random.default_rng(seed).normal(size=shape)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def reference(bank, gallery, beta):
    """Return the offsets in float64, with the products whole."""
    return -logsumexp(beta * bank.astype(np.float64) @ gallery.T, axis=0)


def test_hand_values():
    """The worked 3 x 3 example: its first row and every query's best item."""
    offsets = bank_offsets(SCORES, ITEMS, 10.0)
    inverted = np.exp(10 * SCORES + offsets)
    np.testing.assert_allclose(inverted[0], [0.878878, 0.736125, 0.042010], atol=2e-6)
    np.testing.assert_allclose(inverted.sum(axis=0), np.ones(3), rtol=1e-5)
    best = top_k(SCORES, ITEMS, 1, scale=10.0, offsets=offsets)
    np.testing.assert_array_equal(best.indices[:, 0], [0, 0, 2])
    np.testing.assert_array_equal(top_k(SCORES, ITEMS, 1).indices[:, 0], [0, 0, 1])


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    beta=st.sampled_from([0.1, 10.0, 300.0]),
    block_bytes=st.sampled_from([1, 4 * 8 * 8, 4 * 100, 64 << 20]),
)
def test_streamed_equals_whole(seed, beta, block_bytes):
    """Any tile size gives SciPy's float64 log-sum-exp over the whole bank."""
    bank, gallery = unit((29, 5), seed), unit((21, 5), seed + 1)
    found = bank_offsets(bank, gallery, beta, block_bytes=block_bytes)
    expected = reference(bank, gallery, beta)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert found.dtype == np.float32


def test_large_scores_do_not_overflow():
    """Scores far beyond the range of exp give finite, right offsets."""
    bank, gallery = 100 * unit((20, 4), 0), unit((6, 4), 1)
    found = bank_offsets(bank, gallery, 50.0, block_bytes=4 * 64)
    np.testing.assert_allclose(found, reference(bank, gallery, 50.0), rtol=1e-5)


def test_repeating_the_bank_shifts_all_offsets():
    """A bank given c times adds log c to every sum and changes no ranking."""
    bank, gallery = unit((10, 4), 0), unit((7, 4), 1)
    once = bank_offsets(bank, gallery, 10.0)
    thrice = bank_offsets(np.tile(bank, (3, 1)), gallery, 10.0)
    np.testing.assert_allclose(once - thrice, np.full(7, np.log(3)), atol=1e-5)


def test_tiles_stay_within_the_budget(monkeypatch):
    """Neither side of the product is whole: tiles keep to block_bytes."""
    sizes = []
    original = inverted_softmax._log_sum_exp

    def spy(tile, n_valid):
        sizes.append(tile.size)
        return original(tile, n_valid)

    monkeypatch.setattr(inverted_softmax, "_log_sum_exp", spy)
    bank_offsets(unit((50, 3), 0), unit((45, 3), 1), 1.0, block_bytes=4 * 400)
    assert max(sizes) <= 400
    assert sum(sizes) >= 50 * 45
    rows, columns = _tile_shape(100_000, 100_000, 64 << 20)
    assert 100_000 > rows > 1000
    assert 100_000 > columns > 1000
    assert 4 * rows * columns <= 64 << 20


@pytest.mark.parametrize("beta", [0.0, -1.0, float("nan"), float("inf")])
def test_beta_must_be_positive(beta):
    """A beta that is not a positive finite number is refused."""
    with pytest.raises(InputError, match="beta must be a finite number > 0"):
        bank_offsets(SCORES, ITEMS, beta)


def test_bank_and_gallery_share_a_space():
    """Different numbers of columns are refused."""
    with pytest.raises(InputError, match="3 columns but gallery has 2"):
        bank_offsets(SCORES, ITEMS[:, :2], 1.0)


def test_block_bytes_is_checked():
    """A tile of no bytes is refused."""
    with pytest.raises(InputError, match="block_bytes must be a whole number >= 1"):
        bank_offsets(SCORES, ITEMS, 1.0, block_bytes=0)
