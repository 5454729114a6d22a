"""The neighbour graph: hand values, sparse against dense, and its eigenvectors."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from anchordot_jax.baselines.sue.graph import (
    affinity_graph,
    batch_affinity,
    laplacian_form,
    walk_vectors,
)
from anchordot_jax.errors import InputError

LINE = np.array([[0.0], [1.0], [3.0], [6.0]], np.float32)


def rows(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def reference(x, neighbours, scale_k):
    """Return the affinity by loops, in float64, and sigma."""
    x = np.asarray(x, np.float64)
    distances = np.linalg.norm(x[:, None] - x[None, :], axis=2)
    order = np.argsort(distances, axis=1, kind="stable")[:, : neighbours + 1]
    sigma = np.median([distances[i, o[scale_k - 1]] for i, o in enumerate(order)])
    weights = np.zeros_like(distances)
    for i, chosen in enumerate(order):
        weights[i, chosen] = np.exp(-(distances[i, chosen] ** 2) / sigma**2)
    return (weights + weights.T) / 2, sigma


@pytest.mark.parametrize("sparse", [True, False])
def test_hand_values(sparse):
    """Four points on a line, two neighbours each, sigma from the nearest one."""
    options = {"neighbours": 2, "scale_k": 2}
    graph = affinity_graph(LINE, **options)
    assert graph.bandwidth == pytest.approx(1.5)
    dense = graph.weights.toarray() if sparse else batch_affinity(LINE, **options)
    found = [dense[i, j] for i, j in ((0, 1), (1, 2), (0, 2), (2, 3), (1, 3), (0, 3))]
    expected = [0.641180, 0.169013, 0.018316, 0.009158, 0.000007, 0.0]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_array_equal(np.diag(dense), np.ones(4))


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 1000), scale_k=st.integers(2, 6))
def test_sparse_and_dense_equal_loops(seed, scale_k):
    """Both forms are the definition, for any place of sigma in the lists."""
    x = rows(24, 5, seed)
    expected, sigma = reference(x, 5, scale_k)
    graph = affinity_graph(x, neighbours=5, scale_k=scale_k)
    assert graph.bandwidth == pytest.approx(sigma, rel=1e-5)
    np.testing.assert_allclose(graph.weights.toarray(), expected, atol=1e-5)
    dense = batch_affinity(x, neighbours=5, scale_k=scale_k)
    np.testing.assert_allclose(dense, expected, atol=1e-5)


def test_more_neighbours_than_items_is_all_of_them():
    """A small batch is joined completely."""
    dense = affinity_graph(LINE, neighbours=30, scale_k=15).weights.toarray()
    assert np.all(dense > 0)
    small = batch_affinity(LINE, neighbours=30, scale_k=15)
    np.testing.assert_allclose(small, dense, rtol=1e-5)


def test_laplacian_form_is_the_sum_over_edges():
    """tr(E^T L E) is half the weighted sum of squared differences."""
    graph = affinity_graph(rows(20, 4), neighbours=4, scale_k=3)
    embedding = rows(20, 3, seed=1)
    weights = graph.weights.toarray()
    differences = embedding[:, None] - embedding[None, :]
    form = laplacian_form(graph, embedding)
    expected = np.einsum("ij,ijk,ijl->kl", weights, differences, differences) / 2
    np.testing.assert_allclose(form, expected, rtol=1e-5, atol=1e-6)


def test_walk_vectors_are_scipys():
    """They solve L psi = lambda D psi, smallest first, as SciPy's dense solver."""
    graph = affinity_graph(rows(60, 3), neighbours=8, scale_k=5)
    weights = graph.weights.toarray()
    degrees = weights.sum(axis=1)
    found = walk_vectors(graph, 6)
    laplacian = np.diag(degrees) - weights
    values, vectors = scipy.linalg.eigh(laplacian, np.diag(degrees))
    np.testing.assert_allclose(1 - found.eigenvalues, values[:6], atol=1e-8)
    scaled = vectors[:, :6] * np.sqrt(degrees.sum())
    np.testing.assert_allclose(np.abs(found.vectors), np.abs(scaled), atol=1e-5)
    np.testing.assert_allclose(found.vectors[:, 0], np.ones(60), atol=1e-8)


def test_walk_vectors_fix_what_is_free():
    """Twice the same graph gives the same bits; the largest entries are positive."""
    graph = affinity_graph(rows(60, 3), neighbours=8, scale_k=5)
    one, two = walk_vectors(graph, 5), walk_vectors(graph, 5)
    np.testing.assert_array_equal(one.vectors, two.vectors)
    assert np.all(one.vectors.max(axis=0) >= -one.vectors.min(axis=0))
    # Fewer vectors are the first of more.
    few = walk_vectors(graph, 3)
    np.testing.assert_allclose(few.vectors, one.vectors[:, :3], atol=1e-6)


def test_a_graph_that_falls_apart_has_as_many_zeros():
    """Two far clusters give eigenvalue 0 twice, and vectors constant on either."""
    x = np.concatenate([rows(20, 3), rows(20, 3, seed=1) + 100])
    found = walk_vectors(affinity_graph(x, neighbours=5, scale_k=3), 3)
    np.testing.assert_allclose(found.eigenvalues[:2], np.ones(2), atol=1e-9)
    assert found.eigenvalues[2] < 0.999
    assert np.ptp(found.vectors[:20, :2], axis=0).max() < 1e-6


def test_refusals():
    """One item, equal items, and too many eigenvectors are refused."""
    with pytest.raises(InputError, match="at least 2 items, got 1"):
        affinity_graph(LINE[:1], neighbours=2, scale_k=2)
    with pytest.raises(InputError, match="Most of the 9 items are equal"):
        affinity_graph(np.ones((9, 2), np.float32), neighbours=3, scale_k=2)
    graph = affinity_graph(LINE, neighbours=2, scale_k=2)
    with pytest.raises(InputError, match="A graph of 4 items has 3 eigenvectors"):
        walk_vectors(graph, 4)
