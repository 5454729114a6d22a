"""The relation cost: hand values, the whole tensor in float64, laws, and bad input."""

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.special import softmax

from anchordot_jax.costs.keypoint import relation, relation_cost
from anchordot_jax.errors import InputError

X = np.array([[0.1, 0.9], [0.5, 0.2]])
Y = np.array([[0.3, 0.4], [0.8, 0.05]])


def distances(seed, shape):
    return np.random.default_rng(seed).random(shape).astype(np.float32)


def divergences(p, q):
    """Return SciPy's Jensen-Shannon divergences, float64."""
    p, q = np.asarray(p, np.float64), np.asarray(q, np.float64)
    return np.array([jensenshannon(row[None, :], q, axis=1) ** 2 for row in p])


@pytest.mark.parametrize(
    ("tau", "expected"),
    [
        (1.0, [[0.014353, 0.069785], [0.004963, 0.005877]]),
        (0.1, [[0.102499, 0.689289], [0.281874, 0.015401]]),
    ],
)
def test_hand_values(tau, expected):
    found = relation_cost(relation(X, tau), relation(Y, tau))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_relation_is_a_softmax_that_survives_far_rows():
    """A row of large distances underflows without its own largest one."""
    d = np.concatenate([distances(0, (4, 6)), 1000 + distances(1, (2, 6))])
    found = np.asarray(relation(d, 0.01))
    expected = softmax(-d.astype(np.float64) / 0.01, axis=1)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-36)
    np.testing.assert_allclose(found.sum(axis=1), np.ones(6), rtol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "tile"), [((1, 1, 1), None), ((19, 11, 17), None), ((19, 11, 17), 4)]
)
def test_tiles_equal_scipy(sizes, tile):
    """Rows and anchors that fill no tile or block do not count."""
    n, m, n_anchors = sizes
    for seed, tau in enumerate([0.005, 0.05, 0.5]):
        p = relation(distances(seed, (n, n_anchors)), tau)
        q = relation(distances(seed + 10, (m, n_anchors)), tau)
        found = np.asarray(relation_cost(p, q, tile=tile))
        np.testing.assert_allclose(found, divergences(p, q), atol=2e-6)
        assert found.min() >= 0
        assert found.max() <= np.log(2) + 1e-7


def test_nearly_uniform_relations_keep_their_digits():
    """A large tau makes all divergences tiny, not noise."""
    p, q = relation(distances(0, (8, 300)), 5.0), relation(distances(1, (9, 300)), 5.0)
    expected = divergences(p, q)
    assert expected.max() < 2e-3
    np.testing.assert_allclose(relation_cost(p, q), expected, rtol=2e-3)


def test_zero_probabilities():
    """0 log 0 is 0: disjoint relations are log 2 apart, equal ones 0."""
    rows = np.eye(2)
    expected = np.log(2) * (1 - np.eye(2))
    np.testing.assert_allclose(relation_cost(rows, rows), expected, atol=1e-6)


def test_small_tau_compares_nearest_anchors():
    x, y = distances(3, (19, 17)), distances(4, (11, 17))
    found = relation_cost(relation(x, 1e-5), relation(y, 1e-5))
    same = x.argmin(axis=1)[:, None] == y.argmin(axis=1)[None, :]
    assert 0 < same.sum() < same.size
    np.testing.assert_allclose(found, np.log(2) * ~same, atol=1e-5)


def test_symmetric_and_blind_to_a_constant_an_item():
    x, y = distances(5, (11, 9)), distances(6, (11, 9))
    p, q = relation(x, 0.1), relation(y, 0.1)
    cost = np.asarray(relation_cost(p, q))
    np.testing.assert_allclose(relation_cost(q, p), cost.T, atol=1e-6)
    shifted = relation(x + np.arange(11, dtype=np.float32)[:, None], 0.1)
    np.testing.assert_allclose(relation_cost(shifted, q), cost, atol=1e-5)


@pytest.mark.parametrize("tau", [0.0, -1.0, float("nan"), float("inf")])
def test_tau_must_be_positive(tau):
    with pytest.raises(InputError, match="tau must be a finite number > 0"):
        relation(X, tau)


def test_bad_shapes():
    with pytest.raises(InputError, match="one column for each of the same anchors"):
        relation_cost(np.full((2, 2), 0.5), np.full((2, 3), 1 / 3))
