"""Metrics of score matrices: those of embeddings, ties, directions, bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchordot_jax.errors import InputError
from anchordot_jax.evaluation.retrieval import evaluate, expected_rank, retrieve
from anchordot_jax.evaluation.score_matrix import evaluate_scores, retrieve_scores

SCORES = np.array([[0.9, 0.8, 0.1], [0.7, 0.6, 0.2], [0.3, 0.65, 0.4]], np.float32)
DIAGONAL = np.arange(3)
SEEDS = st.integers(0, 10_000)


def whole_numbers(shape, seed):
    """Small integers: every inner product is exact, and many are equal."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


def test_hand_values():
    """The worked 3 x 3 example: ranks 1, 2, 2 by row and 1, 3, 1 by column."""
    found = evaluate_scores(SCORES, SCORES.T, DIAGONAL, DIAGONAL)
    assert found["x2y/recall@1"] == pytest.approx(1 / 3)
    assert found["x2y/recall@5"] == 1.0
    assert found["x2y/mean_rank"] == pytest.approx(5 / 3)
    assert found["x2y/mrr"] == pytest.approx(2 / 3)
    assert found["y2x/recall@1"] == pytest.approx(2 / 3)
    assert found["y2x/mean_rank"] == pytest.approx(5 / 3)
    assert found["y2x/median_rank"] == 1.0
    occurrences = retrieve_scores(SCORES, DIAGONAL, k=2).k_occurrence
    np.testing.assert_array_equal(occurrences, [2, 3, 1])


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS)
def test_scores_of_embeddings_give_their_metrics(seed):
    """With x y^T both ways it is `evaluate`, ties and several positives included."""
    x, y = whole_numbers((9, 3), seed), whole_numbers((12, 3), seed + 1)
    rng = np.random.default_rng(seed)
    x2y = np.where(rng.random((9, 2)) < 0.3, -1, rng.integers(0, 12, (9, 2)))
    x2y[:, 0] = rng.integers(0, 12, 9)
    y2x = rng.integers(0, 9, 12)
    found = evaluate_scores(x @ y.T, y @ x.T, x2y, y2x, ks=(1, 3, 20))
    expected = evaluate(x, y, x2y, y2x, ks=(1, 3, 20))
    del expected["x/participation_ratio"], expected["y/participation_ratio"]
    assert found == expected


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS)
def test_retrievals_agree(seed):
    """The identity as a gallery gives the same retrieval, number by number."""
    scores = whole_numbers((7, 11), seed)
    positives = np.random.default_rng(seed).integers(0, 11, 7)
    found = retrieve_scores(scores, positives, k=4)
    expected = retrieve(scores, np.eye(11), positives, k=4)
    for name in found._fields:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_equal_scores_are_chance():
    """All equal, also as zeros of either sign, is the expectation of a random order."""
    scores = np.zeros((4, 4), np.float32)
    scores[:, ::2] = -0.0
    retrieval = retrieve_scores(scores, np.arange(4), k=2)
    np.testing.assert_array_equal(expected_rank(retrieval), np.full(4, 2.5))
    np.testing.assert_array_equal(retrieval.k_occurrence, [4, 4, 0, 0])
    found = evaluate_scores(scores, scores.T, np.arange(4), np.arange(4))
    assert found["x2y/recall@1"] == found["y2x/recall@1"] == 0.25


def test_directions_are_read_from_their_own_matrix():
    """Scores that are right one way only are right in that direction only."""
    right, wrong = np.eye(4), np.eye(4)[::-1]
    found = evaluate_scores(right, wrong, np.arange(4), np.arange(4))
    assert (found["x2y/recall@1"], found["y2x/recall@1"]) == (1.0, 0.0)


def test_bad_scores():
    """Shapes that do not fit, values that are not finite, positives out of range."""
    with pytest.raises(InputError, match=r"x2y has shape \(3, 3\) and y2x \(2, 3\)"):
        evaluate_scores(SCORES, SCORES[:2], DIAGONAL, DIAGONAL)
    with pytest.raises(InputError, match="scores has a value that is not finite"):
        retrieve_scores(np.full((3, 3), -np.inf), DIAGONAL)
    with pytest.raises(InputError, match="positives must be gallery positions"):
        retrieve_scores(SCORES, DIAGONAL + 1)
    with pytest.raises(InputError, match="k must be a whole number >= 1"):
        retrieve_scores(SCORES, DIAGONAL, k=0)
