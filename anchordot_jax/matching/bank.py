"""The query bank of a model: how its embeddings' hubs are corrected.

Rows of both pools in the shared space, and one inverse temperature

    beta = 1.5 / std(cosines between the banks),

which makes the correction of the inverted softmax about as strong whatever the scale
of a model's cosines.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from anchordot_jax.arrays import AnyArray
from anchordot_jax.errors import InputError
from anchordot_jax.matching.nearest import as_embeddings
from anchordot_jax.matching.query_bank import check_beta

BETA = 1.5
"""beta times the standard deviation of the cosines."""

STORED = np.float16
"""Rows are kept in half precision: cosines change by less than 1e-3."""

LEAST_SPREAD = 1e-6


class Bank(NamedTuple):
    """Query banks of both directions, in the shared space."""

    x: np.ndarray
    """`[p, k]`: queries of the x side, float16."""
    y: np.ndarray
    """`[q, k]`."""
    beta: float
    """Inverse temperature."""


def make_bank(x: AnyArray, y: AnyArray, *, beta: float | None = None) -> Bank:
    """Return the bank of some embeddings of unpaired items.

    Args:
        x: rows of the x side in the shared space, `[p, k]`.
        y: rows of the y side, `[q, k]`.
        beta: inverse temperature; by default 1.5 / std(x y^T).

    Raises:
        InputError: rows that are empty, not finite or of different widths, or beta not
            > 0.
    """
    x, y = as_embeddings(x, "bank x"), as_embeddings(y, "bank y")
    if x.shape[1] != y.shape[1]:
        raise InputError(
            f"The banks have {x.shape[1]} and {y.shape[1]} columns; both must live in "
            f"the same space."
        )
    if beta is None:
        beta = BETA / max(cosine_spread(x, y), LEAST_SPREAD)
    return Bank(x.astype(STORED), y.astype(STORED), check_beta(beta))


def bank_rows(n: int, limit: int, *, key: PRNGKeyArray) -> np.ndarray:
    """Return the row numbers of a random part of a pool, all of a small one, sorted."""
    if n <= limit:
        return np.arange(n)
    return np.sort(np.asarray(jax.random.permutation(key, n))[:limit])


def cosine_spread(x: AnyArray, y: AnyArray) -> float:
    """Return the standard deviation of all entries of x y^T, which is never formed.

    Its mean square is the inner product of the two sides' Gram matrices.
    """
    mean_x, gram_x = _first_and_second(jnp.asarray(x))
    mean_y, gram_y = _first_and_second(jnp.asarray(y))
    square = float(np.sum(np.asarray(gram_x, np.float64) * np.asarray(gram_y)))
    mean = float(np.asarray(mean_x, np.float64) @ np.asarray(mean_y))
    return math.sqrt(max(0.0, square - mean**2))


@jax.jit
def _first_and_second(rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    gram = jnp.matmul(rows.T, rows, precision=jax.lax.Precision.HIGHEST)
    return jnp.mean(rows, axis=0), gram / len(rows)
