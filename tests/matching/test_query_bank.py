"""Query-bank and dual-bank scores: hand values, laws, the authors' formulas."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from anchordot_jax.errors import InputError
from anchordot_jax.matching.inverted_softmax import bank_offsets
from anchordot_jax.matching.nearest import top_k
from anchordot_jax.matching.query_bank import (
    dual_bank,
    dual_bank_offsets,
    inverted_softmax,
    qb_norm,
)

SCORES = np.array([[0.9, 0.8, 0.1], [0.7, 0.6, 0.2], [0.3, 0.65, 0.4]], np.float32)
SEEDS = st.integers(0, 10_000)


def similarities(shape, seed):
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def order(scores):
    """Return every row's ranking."""
    return np.argsort(-np.asarray(scores, np.float64), axis=1, kind="stable")


def published_qb_norm(bank, test, k, beta):
    """Return QB-Norm as published: raw rows where no normalisation applies."""
    found = test.copy()
    activated = {j for row in bank for j in np.argsort(-row)[:k]}
    sums = np.exp(beta * bank).sum(axis=0)
    for i, row in enumerate(test):
        if np.argmax(row) in activated:
            found[i] = np.exp(beta * row) / sums
    return found


def test_hand_values():
    """The worked 3 x 3 example: its first row and every query's best item."""
    scores = inverted_softmax(SCORES, 10.0)
    expected = [0.878878, 0.736125, 0.042010]
    np.testing.assert_allclose(np.exp(scores[0]), expected, atol=2e-6)
    np.testing.assert_array_equal(np.argmax(scores, axis=1), [0, 0, 2])
    np.testing.assert_allclose(np.exp(scores).sum(axis=0), np.ones(3), rtol=1e-5)


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS)
def test_column_constants_change_nothing(seed):
    """The inverted softmax does not see how popular an item is as a whole."""
    s, columns = similarities((7, 5), seed), similarities((1, 5), seed + 1)
    shifted = inverted_softmax(s + columns, 8.0)
    np.testing.assert_allclose(shifted, inverted_softmax(s, 8.0), atol=2e-5)


def test_row_constants_do_change_it():
    """A query shifted as a whole weighs more in every sum; rankings do change."""
    rows = np.array([[0.0], [0.0], [2.0]])
    moved = inverted_softmax(SCORES + rows, 10.0) - inverted_softmax(SCORES, 10.0)
    assert np.ptp(moved, axis=1).max() > 0.5


def test_the_bank_form_is_the_streamed_one():
    """Beta S plus `bank_offsets` of the bank's embeddings."""
    queries, bank = reference.unit_rows(6, 4, 0), reference.unit_rows(9, 4, 1)
    gallery = reference.unit_rows(7, 4, 2)
    whole = inverted_softmax(queries @ gallery.T, 12.0, bank=bank @ gallery.T)
    offsets = bank_offsets(bank, gallery, 12.0)
    expected = 12 * queries @ gallery.T + offsets[None, :]
    np.testing.assert_allclose(whole, expected, atol=1e-5)


def test_no_overflow():
    """A temperature at which exp overflows even float64 gives finite scores."""
    for found in (inverted_softmax(SCORES, 1e5), qb_norm(SCORES, beta=1e5)):
        assert np.isfinite(found).all()
        np.testing.assert_array_equal(np.argmax(found, axis=1), [0, 0, 2])


def test_one_query_ties_everything():
    """A bank of the one query itself leaves nothing to rank by: equal scores."""
    for scores in (inverted_softmax(SCORES[:1], 10.0), qb_norm(SCORES[:1])):
        np.testing.assert_array_equal(scores, np.zeros((1, 3)))


@settings(deadline=None, max_examples=30)
@given(seed=SEEDS, k=st.integers(1, 3))
def test_qb_norm_ranks_as_published(seed, k):
    """Every row's ranking is that of the published mixture of rows."""
    test, bank = similarities((12, 9), seed), similarities((3, 9), seed + 1)
    found = qb_norm(test, bank=bank, beta=20.0, k=k)
    expected = published_qb_norm(bank, test, k, 20.0)
    np.testing.assert_array_equal(order(found), order(expected))


def test_qb_norm_rescales_active_queries_only():
    """Bank [.1, .9, .2] activates item 1: row 1 is rescaled, row 0 is beta S."""
    s = np.array([[0.8, 0.1, 0.3], [0.2, 0.6, 0.5]])
    bank = np.array([[0.1, 0.9, 0.2]])
    found = qb_norm(s, bank=bank, beta=2.0)
    np.testing.assert_allclose(found[0], 2 * s[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], 2 * (s[1] - bank[0]), rtol=1e-6)
    # The two best of the bank's query, items 1 and 2, leave row 0 as it is; three
    # of them, or more than there are, activate everything.
    np.testing.assert_array_equal(qb_norm(s, bank=bank, beta=2.0, k=2), found)
    every = qb_norm(s, bank=bank, beta=2.0, k=7)
    np.testing.assert_allclose(every, 2 * (s - bank), rtol=1e-6)


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS)
def test_qb_norm_with_the_test_bank_is_the_inverted_softmax(seed):
    """Every test query's best item is then in the activation set."""
    s = similarities((8, 6), seed)
    np.testing.assert_array_equal(qb_norm(s, beta=15.0), inverted_softmax(s, 15.0))


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS)
def test_dual_bank_is_the_logarithm_of_the_product(seed):
    """Exp of it is IS over the queries times IS over the gallery bank."""
    s, queries = similarities((6, 5), seed), similarities((4, 5), seed + 1)
    items = similarities((7, 5), seed + 2)
    found = dual_bank(
        s, query_bank=queries, gallery_bank=items, query_beta=2.0, gallery_beta=3.0
    )
    over_queries = np.exp(2 * s) / np.exp(2 * queries).sum(axis=0)
    over_items = np.exp(3 * s) / np.exp(3 * items).sum(axis=0)
    np.testing.assert_allclose(np.exp(found), over_queries * over_items, rtol=2e-5)


def test_dual_bank_takes_the_test_queries():
    """Without a query bank it is the rows of S; the defaults are as published."""
    items = similarities((4, 3), 0)
    given_bank = dual_bank(SCORES, gallery_bank=items, query_bank=SCORES)
    np.testing.assert_array_equal(dual_bank(SCORES, gallery_bank=items), given_bank)
    explicit = dual_bank(
        SCORES, gallery_bank=items, query_beta=1 / 1.99, gallery_beta=3.0
    )
    np.testing.assert_array_equal(explicit, given_bank)


def test_dual_bank_offsets_give_its_scores():
    """Scale beta_q + beta_g and the offsets are the whole matrix."""
    queries, bank = reference.unit_rows(5, 4, 0), reference.unit_rows(9, 4, 1)
    items, gallery = reference.unit_rows(8, 4, 2), reference.unit_rows(7, 4, 3)
    offsets = dual_bank_offsets(bank, items, gallery, query_beta=9.0, gallery_beta=4.0)
    whole = dual_bank(
        queries @ gallery.T,
        query_bank=bank @ gallery.T,
        gallery_bank=items @ gallery.T,
        query_beta=9.0,
        gallery_beta=4.0,
    )
    found = top_k(queries, gallery, 7, scale=13.0, offsets=offsets)
    expected = np.take_along_axis(whole, found.indices, axis=1)
    np.testing.assert_allclose(found.scores, expected, atol=1e-5)


@pytest.mark.parametrize("beta", [0.0, -1.0, float("nan"), float("inf")])
def test_beta_must_be_positive(beta):
    """A beta that is not a positive finite number is refused by every function."""
    calls = [
        lambda: inverted_softmax(SCORES, beta),
        lambda: qb_norm(SCORES, beta=beta),
        lambda: dual_bank(SCORES, gallery_bank=SCORES, query_beta=beta),
        lambda: dual_bank(SCORES, gallery_bank=SCORES, gallery_beta=beta),
    ]
    for call in calls:
        with pytest.raises(InputError, match="beta must be a finite number > 0"):
            call()


def test_banks_have_the_gallery_as_columns():
    """A bank of another width is refused, by its name."""
    with pytest.raises(InputError, match="3 columns but bank has 2"):
        inverted_softmax(SCORES, 1.0, bank=SCORES[:, :2])
    with pytest.raises(InputError, match="3 columns but gallery_bank has 2"):
        dual_bank(SCORES, gallery_bank=SCORES[:, :2])
    with pytest.raises(InputError, match="bank has a value that is not finite"):
        qb_norm(SCORES, bank=np.full((1, 3), np.nan))


def test_k_is_checked():
    """A query activates at least one item."""
    with pytest.raises(InputError, match="k must be a whole number >= 1"):
        qb_norm(SCORES, k=0)
