"""Scores normalised over banks of queries and of gallery items, in the log domain.

With b a query of the bank and beta an inverse temperature, the inverted softmax (Smith
et al., 2017, arXiv:1702.03859) is

    log IS(i, j) = beta S_ij - log sum_b exp(beta S_bj).

QB-Norm (Bogolin et al., 2022, arXiv:2112.12777) applies it to some queries only, and
dual-bank normalisation (Wang et al., 2023, arXiv:2310.11612) has a second bank. Each
function scores one direction; the other one is that of the transposed similarities.
"""

import math

import numpy as np
from scipy.special import logsumexp

from anchordot_jax.arrays import AnyArray
from anchordot_jax.errors import InputError
from anchordot_jax.matching.inverted_softmax import bank_offsets
from anchordot_jax.matching.nearest import as_embeddings, check_count

QB_BETA = 20.0
"""QB-Norm's inverse temperature, as in the authors' code."""

QUERY_BANK_BETA = 1 / 1.99
GALLERY_BANK_BETA = 3.0
"""Dual-bank inverse temperatures, as in the authors' code."""


def inverted_softmax(
    similarity: AnyArray, beta: float, *, bank: AnyArray | None = None
) -> np.ndarray:
    """Return log IS(i, j) = beta S_ij - log sum_b exp(beta S_bj) `[q, m]`.

    Args:
        similarity: S, queries by gallery, `[q, m]`.
        beta: inverse temperature, > 0.
        bank: similarities of the bank's queries to the gallery `[b, m]`; None: the
            test queries are the bank.

    Raises:
        InputError: If a matrix is not finite or of another width, or beta is not > 0.
    """
    s, bank_s = _with_bank(similarity, bank, "bank")
    scores: np.ndarray = check_beta(beta) * s - _log_sum(bank_s, beta)[None, :]
    return scores.astype(np.float32)


def qb_norm(
    similarity: AnyArray,
    *,
    bank: AnyArray | None = None,
    beta: float = QB_BETA,
    k: int = 1,
) -> np.ndarray:
    """Return the dynamic inverted softmax of QB-Norm, as logarithms `[q, m]`.

    The activation set holds the gallery items that are among the top k of some query
    of the bank. A query whose nearest item is in the set gets log IS(i, j), any other
    one beta S_ij. The authors' code leaves raw similarities in the latter rows and
    exponentials in the former; no row's ranking differs from theirs. With the test
    queries as the bank every query's nearest item is in the set, so that this is the
    inverted softmax.

    Args:
        similarity: S, queries by gallery, `[q, m]`.
        bank: similarities of the bank's queries to the gallery `[b, m]`; None: the
            test queries are the bank.
        beta: inverse temperature, > 0.
        k: items that a query of the bank activates; above m it counts as m.

    Raises:
        InputError: If a matrix is not finite or of another width, beta is not > 0, or
            k is not a whole number >= 1.
    """
    s, bank_s = _with_bank(similarity, bank, "bank")
    check_beta(beta)
    check_count("k", k)
    nearest = np.argsort(-bank_s, axis=1, kind="stable")[:, :k]
    active = np.isin(np.argmax(s, axis=1), nearest)
    correction = np.where(active[:, None], _log_sum(bank_s, beta)[None, :], 0.0)
    scores: np.ndarray = beta * s - correction
    return scores.astype(np.float32)


def dual_bank(
    similarity: AnyArray,
    *,
    gallery_bank: AnyArray,
    query_bank: AnyArray | None = None,
    query_beta: float = QUERY_BANK_BETA,
    gallery_beta: float = GALLERY_BANK_BETA,
) -> np.ndarray:
    """Return the sum of two log inverted softmaxes `[q, m]`, over both banks.

    With a query bank b and a gallery bank c, T being similarities within a modality,

        (beta_q + beta_g) S_ij - log sum_b exp(beta_q S_bj) - log sum_c exp(beta_g T_cj)

    the logarithm of the published product. The authors' function passes T where the
    numerators need S, which is taken for a slip.

    Args:
        similarity: S, queries by gallery, `[q, m]`.
        gallery_bank: T, similarities of the gallery bank's items to the gallery,
            `[c, m]`; the gallery may be its own bank.
        query_bank: similarities of the query bank to the gallery `[b, m]`; None: the
            test queries are the bank.
        query_beta: inverse temperature beta_q, > 0.
        gallery_beta: inverse temperature beta_g, > 0.

    Raises:
        InputError: If a matrix is not finite or of another width, or a beta is not
            > 0.
    """
    s, t = _with_bank(similarity, gallery_bank, "gallery_bank")
    over_queries = inverted_softmax(s, query_beta, bank=query_bank)
    over_gallery = inverted_softmax(s, gallery_beta, bank=t)
    scores: np.ndarray = over_queries + over_gallery
    return scores


def dual_bank_offsets(
    query_bank: AnyArray,
    gallery_bank: AnyArray,
    gallery: AnyArray,
    *,
    query_beta: float = QUERY_BANK_BETA,
    gallery_beta: float = GALLERY_BANK_BETA,
) -> np.ndarray:
    """Return every gallery item's offset of the dual-bank score `[m]`.

    Both normalisers depend on the gallery item alone, so the scores of `dual_bank` are

        top_k(q, g, k, scale=query_beta + gallery_beta, offsets=dual_bank_offsets(...))

    and no matrix of similarities is ever whole.

    Args:
        query_bank: embeddings `[b, d]`, of the queries' modality.
        gallery_bank: embeddings `[c, d]`, of the gallery's modality.
        gallery: embeddings `[m, d]`.
        query_beta: inverse temperature of the query bank, > 0.
        gallery_beta: inverse temperature of the gallery bank, > 0.

    Raises:
        InputError: If shapes do not match, a value is not finite, or a beta is not
            > 0.
    """
    over_queries = bank_offsets(query_bank, gallery, query_beta)
    over_gallery = bank_offsets(gallery_bank, gallery, gallery_beta)
    offsets: np.ndarray = over_queries + over_gallery
    return offsets


def check_beta(beta: float) -> float:
    """Return beta; raise InputError unless it is a finite number > 0."""
    if not (math.isfinite(beta) and beta > 0):
        raise InputError(f"beta must be a finite number > 0, got {beta!r}.")
    return beta


def _with_bank(
    similarity: AnyArray, bank: AnyArray | None, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return checked similarities and those of the bank, float64."""
    s = as_embeddings(similarity, "similarity").astype(np.float64)
    if bank is None:
        return s, s
    bank_s = as_embeddings(bank, name).astype(np.float64)
    if bank_s.shape[1] != s.shape[1]:
        raise InputError(
            f"similarity has {s.shape[1]} columns but {name} has {bank_s.shape[1]}; "
            "both must have one column per gallery item."
        )
    return s, bank_s


def _log_sum(bank: np.ndarray, beta: float) -> np.ndarray:
    """Return log sum_b exp(beta S_bj) over a bank `[b, m]`."""
    total: np.ndarray = logsumexp(beta * bank, axis=0)
    return total
