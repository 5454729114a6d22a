"""CSLS: similarities less how close each item is to its own neighbours.

Cross-domain similarity local scaling of Conneau et al. (2018), arXiv:1710.04087:

    CSLS(i, j) = 2 S_ij - r_i - r_j,

where r_i is the mean of the K largest similarities of query i to the gallery, and r_j
that of gallery item j to the queries. A hub is close to many queries, so its r_j is
large. One constant added to all similarities changes nothing.
"""

import numpy as np

from anchordot_jax.arrays import AnyArray
from anchordot_jax.matching.nearest import as_embeddings, check_count, top_k

K = 10
"""Neighbours averaged over, as in the paper."""


def csls(similarity: AnyArray, k: int = K) -> np.ndarray:
    """Return 2 S_ij - r_i - r_j `[q, m]`; its transpose is the other direction.

    Args:
        similarity: S, queries by gallery, `[q, m]`.
        k: number K of neighbours; beyond the size of a side it counts as that size.

    Raises:
        InputError: If S is not a finite matrix, or k is not a whole number >= 1.
    """
    s = as_embeddings(similarity, "similarity").astype(np.float64)
    check_count("k", k)
    r_query, r_gallery = _mean_of_largest(s, k), _mean_of_largest(s.T, k)
    scores: np.ndarray = (2 * s - r_query[:, None] - r_gallery[None, :]).astype(
        np.float32
    )
    return scores


def csls_offsets(bank: AnyArray, gallery: AnyArray, k: int = K) -> np.ndarray:
    """Return every gallery item's -r_j over a bank of queries `[m]`.

    r_j is the mean similarity of g_j to its K nearest queries of the bank. A query's
    own r_i is the same for the whole gallery, so its CSLS ranking is that of

        top_k(q, g, k, scale=2.0, offsets=csls_offsets(bank, g))

    and neither matrix of similarities is ever whole.

    Args:
        bank: query embeddings `[b, d]`; the test queries, or better a larger set from
            the same modality.
        gallery: embeddings `[m, d]`.
        k: number K of neighbours; above b it counts as b.

    Raises:
        InputError: If shapes do not match, a value is not finite, or k is not a whole
            number >= 1.
    """
    nearest = top_k(gallery, bank, k).scores
    offsets: np.ndarray = -nearest.mean(axis=1, dtype=np.float64)
    return offsets.astype(np.float32)


def _mean_of_largest(s: np.ndarray, k: int) -> np.ndarray:
    """Return the mean of each row's k largest entries `[n]`, all if it has fewer."""
    k = min(k, s.shape[1])
    largest = np.partition(s, s.shape[1] - k, axis=1)[:, s.shape[1] - k :]
    # In one order, so that rows of the same similarities get the same mean.
    mean: np.ndarray = np.sort(largest, axis=1).mean(axis=1)
    return mean
