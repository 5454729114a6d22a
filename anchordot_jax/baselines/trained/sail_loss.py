"""The SAIL / SigLIP loss: every entry of a batch's matrix is a yes-or-no question.

Zhai et al. 2023 (SigLIP, arXiv:2303.15343), with the mean over all n^2 entries that
SAIL's code takes (Zhang et al. 2025, arXiv:2412.04616).
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax.arrays import AnyArray

Reduction = Literal["mean", "sum/n"]


def sail_loss(
    similarities: Float[AnyArray, "n n"],
    log_scale: Float[AnyArray, ""],
    bias: Float[AnyArray, ""],
    *,
    reduction: Reduction = "mean",
) -> Float[Array, ""]:
    """Return -log sigmoid(z (exp(log_scale) S + bias)) over a batch's entries.

    z is +1 on the diagonal and -1 off it.

    Args:
        similarities: cosines S `[n, n]`; row k belongs to column k.
        log_scale: logarithm of the logits' scale.
        bias: added to the logits.
        reduction: `mean` divides the sum over all entries by n^2 as SAIL does, `sum/n`
            by n as SigLIP does, which makes the loss n times larger.
    """
    n = len(similarities)
    logits = jnp.exp(log_scale) * jnp.asarray(similarities) + bias
    signs = 2 * jnp.eye(n, dtype=logits.dtype) - 1
    total = -jnp.sum(jax.nn.log_sigmoid(signs * logits))
    return total / (n * n if reduction == "mean" else n)
