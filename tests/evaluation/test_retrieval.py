"""Retrieval metrics: enumeration of ties, references, laws, and bad input."""

import itertools
from math import comb

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.core import ClosedJaxpr
from sklearn.metrics import (
    coverage_error,
    label_ranking_average_precision_score,
    top_k_accuracy_score,
)

from anchordot_jax.errors import InputError
from anchordot_jax.evaluation.hubness import skewness
from anchordot_jax.evaluation.pairs import positives_from_pairs
from anchordot_jax.evaluation.retrieval import (
    Retrieval,
    chance_recall,
    evaluate,
    expected_rank,
    mean_reciprocal_rank,
    rank_in_tile,
    recall_at_k,
    retrieve,
)
from anchordot_jax.evaluation.spectrum import participation_ratio
from anchordot_jax.matching.inverted_softmax import bank_offsets
from anchordot_jax.matching.nearest import BLOCK_BYTES, block_rows

M = 5
ORDERS = list(itertools.permutations(range(M)))
TABLE = [[0, -1], [3, -1], [1, 4], [2, 0]]
SEEDS = st.integers(0, 10_000)


def of_scores(scores, positives, **options):
    """Retrieve with a given score matrix: queries are its rows, the gallery is I."""
    scores = np.asarray(scores, np.float32)
    return retrieve(scores, np.eye(scores.shape[1]), np.array(positives), **options)


def enumerated_ranks(scores, positives):
    """Return the first positive's rank under every order of the gallery [q, M!]."""
    ranks = []
    for row, right in zip(scores, positives, strict=True):
        right = {j for j in right if j >= 0}
        # A stable sort of a shuffled gallery breaks its ties in the shuffled order.
        sorts = (sorted(order, key=lambda j: -row[j]) for order in ORDERS)
        ranks.append([1 + min(s.index(j) for j in right) for s in sorts])
    return np.array(ranks)


def normal(shape, seed):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def metrics_of(retrieval):
    """Return all metrics that do not depend on the order of tied items."""
    recalls = [recall_at_k(retrieval, k) for k in range(1, 8)]
    ranks = expected_rank(retrieval)
    return np.array([*recalls, ranks.mean(), mean_reciprocal_rank(retrieval)])


@settings(deadline=None, max_examples=20)
@given(seed=SEEDS, levels=st.integers(1, 4))
def test_expectations_equal_enumeration(seed, levels):
    """Recall, rank and 1/rank are their means over every order of the tied items."""
    scores = np.random.default_rng(seed).integers(0, levels, (len(TABLE), M))
    retrieval = of_scores(scores, TABLE)
    ranks = enumerated_ranks(scores, TABLE)
    for k in range(1, M + 1):
        assert recall_at_k(retrieval, k) == pytest.approx(np.mean(ranks <= k))
    np.testing.assert_allclose(expected_rank(retrieval), ranks.mean(axis=1))
    assert mean_reciprocal_rank(retrieval) == pytest.approx(np.mean(1 / ranks))


def test_counts_by_hand():
    """One score above, two other ties and two tied positives, one positive below."""
    retrieval = of_scores([[3, 2, 2, 2, 2, 1, 0]], [[1, 4, 5, -1]], k=2)
    assert [int(counts[0]) for counts in retrieval[:3]] == [1, 2, 2]
    np.testing.assert_array_equal(retrieval.k_occurrence, [1, 1, 0, 0, 0, 0, 0])
    assert recall_at_k(retrieval, 1) == 0.0
    assert recall_at_k(retrieval, 2) == pytest.approx(1 / 2)
    assert recall_at_k(retrieval, 3) == pytest.approx(1 - comb(2, 2) / comb(4, 2))
    assert recall_at_k(retrieval, 4) == 1.0
    np.testing.assert_allclose(expected_rank(retrieval), [1 + 5 / 3])


@pytest.mark.parametrize("k", [1, 3, 7, 20])
def test_equal_scores_are_chance(k):
    """A collapsed encoder gets exactly the recall and rank of a random order."""
    point = normal((1, 33), 0)
    x, y = np.tile(point, (4, 1)), np.tile(point, (7, 1))
    retrieval = retrieve(x, y, np.array([0, 6, 3, 3]))
    assert recall_at_k(retrieval, k) == pytest.approx(min(k, 7) / 7)
    assert chance_recall(7, 1, k) == pytest.approx(min(k, 7) / 7)
    np.testing.assert_allclose(expected_rank(retrieval), np.full(4, 4.0))
    harmonic = np.sum(1 / np.arange(1, 8))
    assert mean_reciprocal_rank(retrieval) == pytest.approx(harmonic / 7)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 15))
def test_chance_recall_counts_draws(m, p, k):
    """Chance misses when all k draws are among the m - p others."""
    p = min(p, m)
    expected = 1 - comb(m - p, min(k, m)) / comb(m, min(k, m))
    assert chance_recall(m, p, k) == pytest.approx(expected)


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS)
def test_matches_scikit_learn_without_ties(seed):
    """Recall, mean rank and MRR of one positive a query are scikit-learn's."""
    x, y = normal((11, 4), seed), normal((9, 4), seed + 1)
    right = np.random.default_rng(seed).integers(0, 9, 11)
    retrieval = retrieve(x, y, right)
    scores, truth = x.astype(np.float64) @ y.T, np.eye(9)[right]
    for k in (1, 3, 8):
        expected = top_k_accuracy_score(right, scores, k=k, labels=range(9))
        assert recall_at_k(retrieval, k) == pytest.approx(expected)
    ranks = expected_rank(retrieval)
    assert ranks.mean() == pytest.approx(coverage_error(truth, scores))
    precision = label_ranking_average_precision_score(truth, scores)
    assert mean_reciprocal_rank(retrieval) == pytest.approx(precision)


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS)
def test_recall_grows_with_k_to_one(seed):
    """Recall is monotone in k, and 1 at the gallery size and above."""
    scores = np.random.default_rng(seed).integers(0, 3, (4, M))
    retrieval = of_scores(scores, TABLE)
    recalls = [recall_at_k(retrieval, k) for k in range(1, M + 3)]
    assert np.all(np.diff(recalls) >= 0)
    assert recalls[M - 1 :] == [1.0, 1.0, 1.0]


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS, rows=st.sampled_from([1, 9, 16]))
def test_block_size_changes_nothing(seed, rows):
    """Blocks of any size give the same integers."""
    x, y = normal((37, 33), seed), normal((19, 33), seed + 1)
    right = np.random.default_rng(seed).integers(0, 19, (37, 2))
    blocked = retrieve(x, y, right, k=3, block_bytes=4 * 19 * rows)
    for found, expected in zip(blocked, retrieve(x, y, right, k=3), strict=True):
        np.testing.assert_array_equal(found, expected)


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS)
def test_order_of_the_gallery_changes_nothing(seed):
    """Metrics ignore the gallery's order, ties or not; occurrences move along."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(M)
    place = np.append(np.argsort(order), -1)
    tied = generator.integers(0, 3, (4, M))
    moved = of_scores(tied[:, order], place[TABLE])
    np.testing.assert_allclose(metrics_of(moved), metrics_of(of_scores(tied, TABLE)))
    distinct = generator.normal(size=(4, M))
    moved = of_scores(distinct[:, order], place[TABLE], k=2)
    original = of_scores(distinct, TABLE, k=2)
    np.testing.assert_array_equal(moved.k_occurrence, original.k_occurrence[order])


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS)
def test_more_positives_never_hurt(seed):
    """Recall and MRR of several positives are at least those of each alone."""
    scores = np.random.default_rng(seed).integers(0, 4, (4, M))
    both = metrics_of(of_scores(scores, [[1, 4]] * 4))
    for single in (1, 4):
        alone = metrics_of(of_scores(scores, [single] * 4))
        better = np.delete(both - alone, 7)
        assert np.all(better >= -1e-12)
        assert both[7] <= alone[7] + 1e-12


def test_copies_in_the_gallery_tie_with_the_positive():
    """Copies that are not positives halve recall@1; marked as positives they do not."""
    x = normal((6, 40), 0)
    gallery = np.concatenate([x, x])
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    x, gallery = x / norms, gallery / np.tile(norms, (2, 1))
    first, copy = np.arange(6), np.arange(6) + 6
    assert recall_at_k(retrieve(x, gallery, first), 1) == pytest.approx(0.5)
    assert recall_at_k(retrieve(x, gallery, copy), 1) == pytest.approx(0.5)
    both = np.stack([copy, first], axis=1)
    assert recall_at_k(retrieve(x, gallery, both), 1) == 1.0


def test_a_positive_given_twice_counts_once():
    """A repeated positive does not double its share of the tied places."""
    once = of_scores([[1, 1, 1]], [[2]])
    twice = of_scores([[1, 1, 1]], [[2, -1, 2]])
    np.testing.assert_array_equal(twice.tied_positive, [1])
    assert recall_at_k(twice, 1) == recall_at_k(once, 1)


def test_offsets_and_scale_enter_the_score():
    """The ranking is that of scale * S + offset, here the inverted softmax."""
    scores = np.array([[0.9, 0.8, 0.1], [0.7, 0.6, 0.2], [0.3, 0.65, 0.4]], np.float32)
    offsets = bank_offsets(scores, np.eye(3, dtype=np.float32), 10.0)
    plain = of_scores(scores, [0, 0, 2])
    inverted = of_scores(scores, [0, 0, 2], scale=10.0, offsets=offsets, k=1)
    np.testing.assert_array_equal(plain.greater, [0, 0, 1])
    np.testing.assert_array_equal(inverted.greater, [0, 0, 0])
    np.testing.assert_array_equal(inverted.k_occurrence, [2, 0, 1])


def test_no_array_has_the_size_of_the_score_matrix():
    """For 100,000 x 100,000 the largest array traced is one tile."""
    m = 100_000
    rows = block_rows(m, m, BLOCK_BYTES)
    tile = jax.ShapeDtypeStruct((rows, m), jnp.float32)
    positives = jax.ShapeDtypeStruct((rows, 5), jnp.int32)
    traced = jax.make_jaxpr(lambda t, p: rank_in_tile(t, p, k=10))(tile, positives)
    assert largest(traced.jaxpr) == rows * m < m * m / 100


def largest(jaxpr):
    """Return the number of entries of the largest array in a jaxpr."""
    sizes = []
    for equation in jaxpr.eqns:
        sizes += [v.aval.size for v in (*equation.invars, *equation.outvars)]
        inner = [p for p in equation.params.values() if isinstance(p, ClosedJaxpr)]
        sizes += [largest(closed.jaxpr) for closed in inner]
    return max(sizes)


def test_mrr_of_many_ties_uses_the_harmonic_numbers():
    """One positive among E tied others after G: (H(G + E + 1) - H(G)) / (E + 1)."""
    greater, other = np.array([0, 3, 3, 7]), np.array([4, 100, 100, 0])
    retrieval = Retrieval(greater, other, np.ones(4, int), np.zeros(200, int))
    h = np.concatenate([[0], np.cumsum(1 / np.arange(1, 201))])
    expected = np.mean((h[greater + other + 1] - h[greater]) / (other + 1))
    assert mean_reciprocal_rank(retrieval) == pytest.approx(expected)


def two_sides(seed=0):
    """Return x, y and the positives of pairs that share rows on both sides."""
    x, y = normal((40, 6), seed), normal((60, 6), seed + 1)
    pairs = np.stack([np.arange(70) % 40, np.arange(70) % 60], axis=1)
    rows = positives_from_pairs(pairs)
    return x, y, rows.positives_x2y, rows.positives_y2x


def test_evaluate_reports_every_key_as_a_float():
    """The keys are the documented ones and every value is a plain float."""
    x, y, x2y, y2x = two_sides()
    metrics = evaluate(x, y, x2y, y2x, ks=(1, 99))
    names = ["recall@1", "recall@99", "mean_rank", "median_rank", "mrr"]
    names.append("hubness_skewness@10")
    expected = {f"{way}/{name}" for way in ("x2y", "y2x") for name in names}
    expected |= {f"{side}/participation_ratio" for side in "xy"}
    assert set(metrics) == expected
    assert all(type(value) is float for value in metrics.values())
    assert metrics["x2y/recall@99"] == metrics["y2x/recall@99"] == 1.0


def test_evaluate_agrees_with_its_parts():
    """Values are those of the functions they are named after."""
    x, y, x2y, y2x = two_sides()
    added = 10 * normal(40, 2)
    metrics = evaluate(x, y, x2y, y2x, scale=2.0, offsets_y2x=added)
    retrieval = retrieve(y, x, y2x, scale=2.0, offsets=added, k=10)
    ranks = expected_rank(retrieval)
    assert metrics["y2x/recall@5"] == recall_at_k(retrieval, 5)
    assert metrics["y2x/mean_rank"] == ranks.mean()
    assert metrics["y2x/median_rank"] == np.median(ranks)
    assert metrics["y2x/mrr"] == mean_reciprocal_rank(retrieval)
    assert 0 in retrieval.k_occurrence
    assert metrics["y2x/hubness_skewness@10"] == skewness(retrieval.k_occurrence)
    assert metrics["y/participation_ratio"] == participation_ratio(y)


def test_swapping_the_sides_swaps_the_directions():
    """Evaluating (y, x) gives the same values under swapped names."""
    x, y, x2y, y2x = two_sides()
    added = {"offsets_x2y": normal(60, 2), "offsets_y2x": normal(40, 3)}
    swapped = dict(zip(added, reversed(added.values()), strict=True))
    forward = evaluate(x, y, x2y, y2x, scale=2.0, **added)
    backward = evaluate(y, x, y2x, x2y, scale=2.0, **swapped)
    names = str.maketrans("xy", "yx")
    assert forward == {key.translate(names): v for key, v in backward.items()}
    assert forward["x2y/mrr"] != forward["y2x/mrr"]


@pytest.mark.realdata
def test_real_captions_against_a_float64_sort(real_data):
    """Ranks of images' other captions are those of float64 scores, up to rounding."""
    with h5py.File(real_data / "flickr8k.h5") as file:
        images = file["image_index"][:400]
        captions, texts = file["text_all"][:400], file["text"][:]
    others = np.flatnonzero(np.arange(400) % 5)
    rows = positives_from_pairs(np.stack([images[others], others], axis=1))
    x, y = texts[rows.query_rows], captions[rows.gallery_rows]
    ranks = expected_rank(retrieve(x, y, rows.positives_x2y))
    scores = x.astype(np.float64) @ y.T.astype(np.float64)
    right = rows.query_rows[:, None] == images[None, rows.gallery_rows]
    best = np.where(right, scores, -np.inf).max(axis=1, keepdims=True)
    assert np.all(ranks >= 1 + (scores > best + 1e-6).sum(axis=1))
    assert np.all(ranks <= 1 + ((scores > best - 1e-6) & ~right).sum(axis=1))
    assert ranks.max() > 1


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12)
)
def test_positives_from_pairs_are_the_pairs(pairs):
    """Both tables hold exactly the given pairs; rows keep their first order."""
    rows = positives_from_pairs(np.array(pairs))
    assert list(rows.query_rows) == list(dict.fromkeys(x for x, _ in pairs))
    assert list(rows.gallery_rows) == list(dict.fromkeys(y for _, y in pairs))
    x2y = {
        (rows.query_rows[i], rows.gallery_rows[j])
        for i, row in enumerate(rows.positives_x2y)
        for j in row[row >= 0]
    }
    y2x = {
        (rows.query_rows[i], rows.gallery_rows[j])
        for j, row in enumerate(rows.positives_y2x)
        for i in row[row >= 0]
    }
    assert x2y == y2x == set(pairs)


def test_positives_from_pairs_example():
    """The example of the docstring."""
    rows = positives_from_pairs(np.array([[7, 2], [7, 3], [4, 2]]))
    np.testing.assert_array_equal(rows.query_rows, [7, 4])
    np.testing.assert_array_equal(rows.gallery_rows, [2, 3])
    np.testing.assert_array_equal(rows.positives_x2y, [[0, 1], [0, -1]])
    np.testing.assert_array_equal(rows.positives_y2x, [[0, 1], [0, -1]])


@pytest.mark.parametrize(
    "pairs", [[[0, -1]], [[0.0, 1.0]], [[0, 1, 2]], [0, 1], np.empty((0, 2), int)]
)
def test_pairs_must_be_row_numbers(pairs):
    """Pairs that are not two whole numbers >= 0 a line are refused."""
    with pytest.raises(InputError, match="pairs must be whole numbers >= 0 of shape"):
        positives_from_pairs(np.array(pairs))


@pytest.mark.parametrize(
    ("positives", "message"),
    [
        ([0], r"shape \(2,\) or \(2, p\).* got int64 of shape \(1,\)"),
        ([0.0, 1.0], "whole numbers .* got float64"),
        ([[[0]], [[1]]], r"got int64 of shape \(2, 1, 1\)"),
        ([0, 3], "positions from 0 to 2, or -1 .* values from 0 to 3"),
        ([[0, -2], [1, -1]], "got values from -2 to 1"),
        ([[0, 1], [-1, -1]], "query 1 has no positive in the gallery"),
        (np.empty((2, 0), int), "query 0 has no positive in the gallery"),
    ],
)
def test_bad_positives_are_named(positives, message):
    """Positives of the wrong shape, outside the gallery, or absent are refused."""
    with pytest.raises(InputError, match=message):
        retrieve(np.ones((2, 4)), np.ones((3, 4)), np.array(positives))


def test_other_bad_input_is_named():
    """Sizes that do not fit, and a cut-off below 1, are refused."""
    retrieval = of_scores([[1, 2]], [0])
    with pytest.raises(InputError, match="queries have 2 columns but gallery has 3"):
        retrieve(np.ones((2, 2)), np.ones((2, 3)), np.array([0, 1]))
    with pytest.raises(InputError, match="k must be a whole number >= 1"):
        recall_at_k(retrieval, 0)
    with pytest.raises(InputError, match="k must be a whole number >= 1"):
        of_scores([[1, 2]], [0], k=0)
    with pytest.raises(InputError, match="n_positives must be at most n_gallery = 3"):
        chance_recall(3, 4, 1)
