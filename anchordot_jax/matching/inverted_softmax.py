"""Inverted softmax: scores corrected for hubs by a bank of queries.

Smith et al. (2017), arXiv:1702.03859, normalise a gallery item's score over a bank of
queries instead of a query's score over the gallery:

    log IS(q, j) = beta <q, g_j> - log sum_{b in bank} exp(beta <b, g_j>).

An item that is close to every query of the bank, a hub, is paid for it. The second
term depends on j alone, so it is an offset of `top_k`:

    top_k(q, g, k, scale=beta, offsets=bank_offsets(bank, g, beta))
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from anchordot_jax.arrays import AnyArray
from anchordot_jax.errors import InputError
from anchordot_jax.matching.nearest import (
    BLOCK_BYTES,
    LEAST_ROWS,
    check_count,
    pad_rows,
    score_tile,
    score_with,
)


def bank_offsets(
    bank: AnyArray, gallery: AnyArray, beta: float, *, block_bytes: int = BLOCK_BYTES
) -> np.ndarray:
    """Return every gallery item's -log sum_{b in bank} exp(beta <b, g_j>) [m].

    Streamed over blocks of the gallery and of the bank, so that the products [b, m]
    are never whole: each tile gives its items' log-sum-exp, and the blocks of the
    bank are joined by a running log-sum-exp in float64.

    Args:
        bank: Query embeddings to normalise over [b, d]; the test queries, or better
            a larger set from the same modality.
        gallery: Embeddings [m, d].
        beta: Inverse temperature, > 0.
        block_bytes: Size of a tile of products.

    Raises:
        InputError: If shapes do not match, a value is not finite, or beta is not > 0.
    """
    if not (math.isfinite(beta) and beta > 0):
        raise InputError(f"beta must be a finite number > 0, got {beta!r}.")
    scoring = score_with(bank, gallery, offsets=None, scale=beta)
    b, m = len(scoring.queries), len(scoring.gallery)
    rows, columns = _tile_shape(b, m, block_bytes)
    zeros = jnp.zeros(columns, jnp.float32)
    total = np.full(m, -np.inf)
    for left in range(0, m, columns):
        part = total[left : left + columns]
        items = jnp.asarray(pad_rows(scoring.gallery[left : left + columns], columns))
        for start in range(0, b, rows):
            queries = pad_rows(scoring.queries[start : start + rows], rows)
            tile = score_tile(queries, items, zeros, scoring.scale)
            sums = np.asarray(_log_sum_exp(tile, b - start), np.float64)
            np.logaddexp(part, sums[: len(part)], out=part)
    return (-total).astype(np.float32)


def _tile_shape(bank: int, gallery: int, block_bytes: int) -> tuple[int, int]:
    """Return (bank rows, gallery rows) of a tile that is square if both are long."""
    check_count("block_bytes", block_bytes)
    entries = block_bytes // 4
    rows = max(LEAST_ROWS, min(bank, math.isqrt(entries)))
    return rows, max(1, min(gallery, entries // rows))


@jax.jit
def _log_sum_exp(tile: jax.Array, n_valid: int) -> jax.Array:
    """Return the log-sum-exp [m] over the first n_valid rows of a tile [b, m]."""
    valid = jnp.arange(len(tile)) < n_valid
    return jax.nn.logsumexp(jnp.where(valid[:, None], tile, -jnp.inf), axis=0)
