"""NumPy float64 references of the numerics, written from the formulas alone."""

from typing import Any

import numpy as np
from scipy.special import log_softmax, logsumexp  # type: ignore[import-untyped]

Array = np.ndarray[Any, Any]


def unit(rows: Array) -> Array:
    """Return the rows scaled to unit norm, float64."""
    rows = np.asarray(rows, np.float64)
    scaled: Array = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return scaled


def unit_rows(n: int, d: int, seed: int) -> Array:
    """Return `[n, d]` random unit rows, float32."""
    return unit(np.random.default_rng(seed).normal(size=(n, d))).astype(np.float32)


def profile(x: Array, anchors: Array, gamma: float, *, clip: float = 1e-6) -> Array:
    """Return A M^(-gamma/2) x with M = A^T A / N clipped at clip times its mean."""
    rows = unit(anchors)
    values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
    values = np.maximum(values, clip * values.mean())
    power = vectors * values ** (-gamma / 2) @ vectors.T
    profiles: Array = unit(x) @ power @ rows.T
    return profiles


def profile_cosine(
    x: Array, anchors_x: Array, y: Array, anchors_y: Array, gamma: float
) -> Array:
    """Return the cosines of the N-dimensional profiles of two sides."""
    p_x = unit(profile(x, anchors_x, gamma))
    p_y = unit(profile(y, anchors_y, gamma))
    cosines: Array = p_x @ p_y.T
    return cosines


def cost(x: Array, y: Array) -> Array:
    """Return 1 - x y^T."""
    return 1 - np.asarray(x, np.float64) @ np.asarray(y, np.float64).T


def log_kernel(
    h: Array, costs: Array, epsilon: float, axis: int, vec: Array | None = None
) -> tuple[Array, Array]:
    """Return eps log |K (exp(h/eps) vec)| and its sign, K = exp(-C/eps)."""
    expand = 0 if axis == 1 else 1
    h = np.expand_dims(np.asarray(h, np.float64), expand)
    weights = np.expand_dims(np.ones(h.size) if vec is None else vec, expand)
    log_sum, sign = logsumexp(
        (h - costs) / epsilon, axis=axis, b=weights, return_sign=True
    )
    return epsilon * log_sum, sign


def plan(costs: Array, f: Array, g: Array, epsilon: float) -> Array:
    """Return exp((f_i + g_j - C_ij)/eps)."""
    f, g = np.asarray(f, np.float64), np.asarray(g, np.float64)
    coupling: Array = np.exp((f[:, None] + g[None, :] - costs) / epsilon)
    return coupling


def centred(f: Array, g: Array) -> tuple[Array, Array]:
    """Return the potentials with the free constant chosen so that f has mean zero."""
    f, g = np.asarray(f, np.float64), np.asarray(g, np.float64)
    shift = f[np.isfinite(f)].mean()
    return f - shift, g + shift


def layer_norm(x: Array, gain: Array, bias: Array, epsilon: float) -> Array:
    """Return (x - mean) / sqrt(variance + epsilon) * gain + bias over the last axis."""
    x = np.asarray(x, np.float64)
    centre = x - x.mean(axis=-1, keepdims=True)
    spread = np.sqrt(x.var(axis=-1, keepdims=True) + epsilon)
    normed: Array = centre / spread * np.asarray(gain) + np.asarray(bias)
    return normed


def student(x: Array, params: dict[str, Any], epsilon: float = 1e-5) -> Array:
    """Return one side's unit outputs: Linear(LayerNorm(x / |x|)), normalised."""
    norm, linear = params["norm"], params["linear"]
    hidden = layer_norm(unit(x), norm["scale"], norm["bias"], epsilon)
    kernel = np.asarray(linear["kernel"], np.float64)
    return unit(hidden @ kernel + np.asarray(linear["bias"], np.float64))


def soft_loss(
    logits: Array,
    rows: Array,
    columns: Array,
    weights: tuple[Array | float, Array | float] = (1.0, 1.0),
) -> float:
    """Return half the sum of the mean cross-entropies over rows and over columns."""
    logits = np.asarray(logits, np.float64)
    x_to_y = -(rows * log_softmax(logits, axis=1)).sum(axis=1)
    y_to_x = -(columns * log_softmax(logits, axis=0)).sum(axis=0)
    return float(((weights[0] * x_to_y).mean() + (weights[1] * y_to_x).mean()) / 2)


def rank(scores: Array, own: int) -> float:
    """Return 1 + how many scores beat scores[own], ties counting half."""
    return float(
        1 + (scores > scores[own]).sum() + ((scores == scores[own]).sum() - 1) / 2
    )
