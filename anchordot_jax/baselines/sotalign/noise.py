"""Corrupting a fit's inputs on purpose: wrong pairs, random pool rows, noisy teachers.

SOTAlign's launcher has these switches for its robustness experiments. Only its README
was at hand: that a corrupted pair is one whose y side was exchanged with another
corrupted pair's is the reading adopted here.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from anchordot_jax.baselines.protocol import Anchors, numpy_rng


def corrupt_pairs(anchors: Anchors, share: float, *, key: jax.Array) -> Anchors:
    """Return the anchors with a share of the pairs mismatched among themselves.

    The y rows of round(share N) drawn pairs move on by one along a random cycle, so
    that none keeps its own, unless only one was drawn: then nothing changes.

    Args:
        anchors: the pairs.
        share: of the pairs, in [0, 1].
        key: fixes which, and the cycle.
    """
    n = len(anchors.y)
    drawn = numpy_rng(key).permutation(n)[: round(share * n)]
    y = anchors.y.copy()
    y[drawn] = anchors.y[np.roll(drawn, 1)]
    return Anchors(anchors.x, y)


def replace_rows(rows: np.ndarray, share: float, *, key: jax.Array) -> np.ndarray:
    """Return the rows with a share of them replaced by uniform unit vectors.

    Args:
        rows: `[n, d]`.
        share: of the rows, in [0, 1].
        key: fixes which, and by what.
    """
    rng = numpy_rng(key)
    n, d = rows.shape
    drawn = rng.permutation(n)[: round(share * n)]
    noise = rng.normal(size=(len(drawn), d))
    replaced = rows.copy()
    replaced[drawn] = noise / np.linalg.norm(noise, axis=1, keepdims=True)
    return replaced


def blur(
    affinity: Float[Array, "n m"], deviation: float, *, key: jax.Array
) -> Float[Array, "n m"]:
    """Return the affinity plus independent normal noise of this standard deviation."""
    return affinity + deviation * jax.random.normal(key, affinity.shape, jnp.float32)
