"""The students' losses: soft contrastive for the pools, InfoNCE for the anchors.

Both are functions of the logits alone (Eq. 11-12); the targets are constants.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax.arrays import AnyArray


def soft_contrastive_loss(
    logits: Float[AnyArray, "b c"],
    row_targets: Float[AnyArray, "b c"],
    column_targets: Float[AnyArray, "b c"],
    weights: tuple[Float[AnyArray, " b"], Float[AnyArray, " c"]] | None = None,
) -> Float[Array, ""]:
    """Return half the sum of the two directions' soft cross-entropies (Eq. 11-12).

    The targets and weights are constants: no gradient reaches them.

    Args:
        logits: of every x with every y.
        row_targets: rows that sum to one.
        column_targets: columns that sum to one.
        weights: of the rows' and of the columns' cross-entropies; None: all 1.
    """
    b, c = logits.shape
    if weights is None:
        return _cross_entropies(logits, row_targets / b + column_targets / c, None)
    by_row, by_column = weights[0][:, None], weights[1][None, :]
    targets = by_row * row_targets / b + by_column * column_targets / c
    return _cross_entropies(logits, targets, (by_row, by_column))


_Weights = tuple[Array, Array] | None


@jax.custom_vjp
def _cross_entropies(logits: Array, targets: Array, weights: _Weights) -> Array:
    """Return (mean_i w_i lse_j l_ij + mean_j v_j lse_i l_ij - <T, l>) / 2.

    With rows of the row targets, and columns of the column targets, that sum to one,
    this is the loss for T = w R / b + v K / c. Its gradient by hand reads the logits
    once more where the transposed program keeps and reads both softmaxes. No weights
    are weights of 1, without the products.
    """
    return _cross_entropies_forward(logits, targets, weights)[0]


def _cross_entropies_forward(
    logits: Array, targets: Array, weights: _Weights
) -> tuple[Array, tuple[Array, Array, _Weights, Array, Array]]:
    rows = jax.nn.logsumexp(logits, axis=1, keepdims=True)
    columns = jax.nn.logsumexp(logits, axis=0, keepdims=True)
    sums = [rows, columns]
    if weights is not None:
        sums = [sum_ * own for sum_, own in zip(sums, weights, strict=True)]
    loss = (jnp.mean(sums[0]) + jnp.mean(sums[1]) - jnp.sum(targets * logits)) / 2
    return loss, (logits, targets, weights, rows, columns)


def _cross_entropies_backward(
    residuals: tuple[Array, Array, _Weights, Array, Array], cotangent: Array
) -> tuple[Array, None, None]:
    logits, targets, weights, rows, columns = residuals
    b, c = logits.shape
    by_row, by_column = jnp.exp(logits - rows), jnp.exp(logits - columns)
    if weights is not None:
        by_row, by_column = by_row * weights[0], by_column * weights[1]
    softmaxes = by_row / b + by_column / c
    return cotangent * (softmaxes - targets) / 2, None, None


_cross_entropies.defvjp(_cross_entropies_forward, _cross_entropies_backward)


def info_nce(logits: Float[AnyArray, "b b"]) -> Float[Array, ""]:
    """Return the soft contrastive loss for the identity plan: the symmetric InfoNCE."""
    diagonal = jnp.diagonal(logits)
    x_to_y = jax.nn.logsumexp(logits, axis=1) - diagonal
    y_to_x = jax.nn.logsumexp(logits, axis=0) - diagonal
    return (jnp.mean(x_to_y) + jnp.mean(y_to_x)) / 2
