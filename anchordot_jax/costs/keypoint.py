"""The keypoint-guided relation cost: do two items relate to the anchors alike?

An item's relation is a softmax over the anchors, R(x)_k ~ exp(-d(x, a_k) / tau), and
the cost of two items is the Jensen-Shannon divergence of their relations (Gu et al.,
Keypoint-guided optimal transport with applications in heterogeneous domain adaptation,
NeurIPS 2022), without the authors' mask on the keypoints themselves. The authors'
package writes exp(-2 d / tau): its tau is twice this one.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax.arrays import AnyArray
from anchordot_jax.costs.tiles import over_anchors
from anchordot_jax.errors import InputError

# The smallest normal float32 number: 0 log 0 becomes 0 times a finite number.
TINY = 1.1754944e-38


def relation(distances: Float[AnyArray, "n N"], tau: float) -> Float[Array, "n N"]:
    """Return the rows' softmax of -d / tau, `[n, N]`.

    A row's smallest distance is subtracted first, so that far rows neither underflow
    nor lose digits.

    Raises:
        InputError: tau is not > 0.
    """
    if not (math.isfinite(tau) and tau > 0):
        raise InputError(f"tau must be a finite number > 0, got {tau!r}.")
    d = jnp.asarray(distances, jnp.float32)
    nearest = jnp.min(d, axis=1, keepdims=True)
    return jax.nn.softmax((nearest - d) / tau, axis=1)


def relation_cost(
    relation_x: Float[AnyArray, "n N"],
    relation_y: Float[AnyArray, "m N"],
    *,
    tile: int | None = None,
) -> Float[Array, "n m"]:
    """Return the Jensen-Shannon divergences of all pairs of rows, in [0, log 2].

    JS(P, Q) = H((P + Q) / 2) - (H(P) + H(Q)) / 2, whose first term alone needs all
    pairs and is summed tile by tile. All probabilities are multiplied by N: log N
    cancels, and nearly uniform relations, whose divergence is tiny, lose no digits.

    Args:
        relation_x: `[n, N]`, rows that sum to 1.
        relation_y: `[m, N]`.
        tile: rows of the cost held at once; chosen by their length if None.

    Raises:
        InputError: the sides have another number of anchors, or none.
    """
    p, q = (jnp.asarray(r, jnp.float32) for r in (relation_x, relation_y))
    scale = p.shape[-1] / 2
    mixture = over_anchors(
        scale * p, scale * q, _add_x_log_x, start=0.0, padding=0.0, tile=tile
    )
    cost: Array = _divergence(p, q, mixture)
    return cost


def _add_x_log_x(total: Array, x: Array) -> Array:
    return total + x * jnp.log(jnp.maximum(x, TINY))


@jax.jit
def _divergence(p: Array, q: Array, mixture: Array) -> Array:
    n_anchors = p.shape[1]

    def own(r: Array) -> Array:
        return jnp.sum(_add_x_log_x(jnp.zeros(()), n_anchors * r), axis=1)

    total = (own(p)[:, None] + own(q)[None, :]) / 2 - mixture
    return jnp.clip(total / n_anchors, 0, math.log(2))
