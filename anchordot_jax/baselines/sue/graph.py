"""The neighbour graph of one modality, its Laplacian, and its smallest eigenvectors.

An item is joined to its nearest others with weight exp(-d^2 / sigma^2), where sigma is
the median distance to the scale_k-th item of the sorted neighbour lists; the weights
are then averaged with their transpose. The recipe is that of SUE's code.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import threadpoolctl
from jaxtyping import Array, Float
from scipy.sparse.linalg import eigsh
from sklearn.neighbors import NearestNeighbors

from anchordot_jax.arrays import AnyArray
from anchordot_jax.errors import InputError

HIGHEST = jax.lax.Precision.HIGHEST

# Keeps 0/0 out where all items are equal, and is no denormal after a division.
TINY = 1e-30

_barrier: Callable[[tuple[Array, Array]], tuple[Array, Array]] = (
    jax.lax.optimization_barrier
)


class Graph(NamedTuple):
    """A symmetric sparse affinity of all items."""

    weights: scipy.sparse.csr_array
    """W, `[n, n]`, float64; the diagonal is 1, an item being its own neighbour."""
    bandwidth: float
    """sigma."""


class WalkVectors(NamedTuple):
    """Slowest modes of the graph's random walk D^{-1} W psi = mu psi."""

    vectors: np.ndarray
    """psi, `[n, k]`, with psi^T D psi = tr(D) I, the largest entry of each positive."""
    eigenvalues: np.ndarray
    """mu = 1 - lambda, `[k]`, decreasing; lambda is the normalised Laplacian's."""


def affinity_graph(rows: np.ndarray, *, neighbours: int, scale_k: int) -> Graph:
    """Return the affinity graph of all rows, with exact neighbours.

    Args:
        rows: `[n, d]`.
        neighbours: nearest other items of an item; all of them if there are fewer.
        scale_k: which of the sorted neighbours, the item itself being the first, sets
            sigma; the last if there are fewer.

    Raises:
        InputError: fewer than two rows, or so many equal ones that sigma is 0.
    """
    n = len(rows)
    if n < 2:
        raise InputError(f"A neighbour graph needs at least 2 items, got {n}.")
    count = min(neighbours + 1, n)
    search = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(rows)
    distances, found = search.kneighbors(rows)
    distances = np.asarray(distances, np.float64)
    bandwidth = float(np.median(distances[:, min(scale_k, count) - 1]))
    if not bandwidth > 0:
        raise InputError(
            f"Most of the {n} items are equal to {scale_k} others, so that their graph "
            "has no scale; remove repeated items, or raise scale_k."
        )
    values = np.exp(-((distances / bandwidth) ** 2)).ravel()
    starts = np.arange(0, n * count + 1, count)
    directed = scipy.sparse.csr_array((values, found.ravel(), starts), shape=(n, n))
    return Graph(scipy.sparse.csr_array((directed + directed.T) / 2), bandwidth)


def batch_affinity(
    rows: Float[AnyArray, "b d"], *, neighbours: int, scale_k: int
) -> Float[Array, "b b"]:
    """Return the same affinity of a batch's rows among themselves, dense.

    Args:
        rows: `[b, d]`.
        neighbours: as in `affinity_graph`.
        scale_k: as in `affinity_graph`.
    """
    rows = jnp.asarray(rows)
    b = len(rows)
    count = min(neighbours + 1, b)
    norms = jnp.sum(rows**2, axis=1)
    products = jnp.matmul(rows, rows.T, precision=HIGHEST)
    squares = jnp.maximum(norms[:, None] + norms[None, :] - 2 * products, 0)
    squares = jnp.where(jnp.eye(b, dtype=bool), 0, squares)
    # Without the barrier XLA merges the slice below into top_k and sorts whole rows.
    nearest, found = _barrier(jax.lax.top_k(-squares, count))
    width = jnp.median(jnp.sqrt(-nearest[:, min(scale_k, count) - 1]))
    values = jnp.exp(nearest / jnp.maximum(width**2, TINY))
    directed = jnp.zeros_like(squares).at[jnp.arange(b)[:, None], found].set(values)
    return (directed + directed.T) / 2


def laplacian_form(graph: Graph, embedding: np.ndarray) -> np.ndarray:
    """Return E^T L E `[k, k]`, L = D - W, in float64.

    Args:
        graph: of the embedded items.
        embedding: E, `[n, k]`.
    """
    coordinates = np.asarray(embedding, np.float64)
    degrees = graph.weights.sum(axis=1)
    moved = degrees[:, None] * coordinates - graph.weights @ coordinates
    form: np.ndarray = coordinates.T @ moved
    return form


def walk_vectors(graph: Graph, count: int) -> WalkVectors:
    """Return the `count` smallest eigenvectors of the normalised Laplacian.

    I - D^{-1/2} W D^{-1/2} = I - S; its smallest eigenvectors phi are S's largest, and
    psi = D^{-1/2} phi are those of the random walk. The first is constant. They are
    unique up to a sign, which is fixed here, and up to a rotation where eigenvalues
    coincide, as in a graph that falls apart.

    Args:
        graph: of n items.
        count: how many, at most n - 1.

    Raises:
        InputError: more are asked for than the graph has.
    """
    n = graph.weights.shape[0]
    if count >= n:
        raise InputError(
            f"A graph of {n} items has {n - 1} eigenvectors to use, and {count} were "
            "asked for; ask for fewer, or give larger pools."
        )
    degrees = graph.weights.sum(axis=1)
    root = 1 / np.sqrt(degrees)
    walk = scipy.sparse.csr_array(root[:, None] * graph.weights * root[None, :])
    # ARPACK's own start vector is random.
    start = np.random.default_rng(0).normal(size=n)
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        values, vectors = eigsh(walk, k=count, which="LA", v0=start)
    order = np.argsort(-values)
    walking = np.sqrt(degrees.sum()) * root[:, None] * vectors[:, order]
    largest = np.abs(walking).argmax(axis=0)
    signs = np.where(walking[largest, np.arange(count)] < 0, -1.0, 1.0)
    return WalkVectors(walking * signs[None, :], values[order])
