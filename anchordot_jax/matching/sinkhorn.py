"""Converged Sinkhorn as a matching rule: items are ranked by the transport plan.

The plan of the entropic problem with cost C = 1 - S and uniform marginals,

    log pi_ij = (f_i + g_j - C_ij)/epsilon,

gives every query and every gallery item the same mass, so that no hub is left. The
inverted softmax is its first half step. Rows rank the gallery for a query, columns the
queries for a gallery item: both directions read one matrix.

This module imports the transport solver, which `anchordot_jax.matching` does not.
"""

import math

import jax.numpy as jnp
import numpy as np

from anchordot_jax import coupling
from anchordot_jax.arrays import AnyArray
from anchordot_jax.config import CouplingConfig
from anchordot_jax.errors import InputError
from anchordot_jax.matching.nearest import as_embeddings


def sinkhorn(
    similarity: AnyArray, epsilon: float, *, config: CouplingConfig | None = None
) -> np.ndarray:
    """Return log pi `[q, m]` of cost 1 - S; its transpose is the other direction.

    Adding a constant to a row or a column of S changes nothing. With a single row or
    column the marginals leave no choice, and all entries are equal.

    Args:
        similarity: S, queries by gallery, `[q, m]`.
        epsilon: regularisation in units of the cost, > 0.
        config: the solver's tolerance and number of iterations; a solve that ends at
            the latter is used as it is.

    Raises:
        InputError: If S is not a finite matrix, epsilon is not > 0, or no plan was
            found, because epsilon is too small for float32.
    """
    s = as_embeddings(similarity, "similarity")
    _check_epsilon(epsilon)
    if 1 in s.shape:
        return np.full(s.shape, -np.log(s.size), np.float32)
    cost = jnp.asarray(1 - s)
    solved = coupling.solve_cost(cost, epsilon, config=config)
    scores = np.asarray(coupling.log_plan(solved, cost))
    _check_solved(scores, epsilon)
    return scores


def sinkhorn_offsets(
    bank: AnyArray,
    gallery: AnyArray,
    epsilon: float,
    *,
    config: CouplingConfig | None = None,
) -> np.ndarray:
    """Return every gallery item's g_j/epsilon `[m]`, g its potential.

    The transport problem is that between a bank of queries and the gallery, with cost
    1 - <b, g_j>. A new query's row of the plan, (g_j - C_qj)/epsilon up to what is the
    same for the whole gallery, ranks as

        top_k(q, g, k, scale=1 / epsilon, offsets=sinkhorn_offsets(bank, g, epsilon))

    Args:
        bank: query embeddings `[b, d]`.
        gallery: embeddings `[m, d]`.
        epsilon: regularisation in units of the cost, > 0.
        config: the solver's settings.

    Raises:
        InputError: If shapes do not match, a value is not finite, epsilon is not > 0,
            or no plan was found.
    """
    queries = as_embeddings(bank, "bank")
    items = as_embeddings(gallery, "gallery")
    if queries.shape[1] != items.shape[1]:
        raise InputError(
            f"bank has {queries.shape[1]} columns but gallery has {items.shape[1]}; "
            "both must live in the same space."
        )
    _check_epsilon(epsilon)
    solved = coupling.solve_coupling(
        jnp.asarray(queries), jnp.asarray(items), epsilon, config=config
    )
    offsets: np.ndarray = np.asarray(solved.g) / np.float32(epsilon)
    _check_solved(offsets, epsilon)
    return offsets


def _check_epsilon(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise InputError(f"epsilon must be a finite number > 0, got {epsilon!r}.")


def _check_solved(values: np.ndarray, epsilon: float) -> None:
    if not np.isfinite(values).all():
        raise InputError(
            f"Sinkhorn found no plan with epsilon {epsilon!r}; give a larger one."
        )
