"""Ranks of anchors that were held out, hubs corrected: what settings are chosen by.

A fold's pairs are held out of both CCAs and of the plan, and ranked, both ways, in a
gallery of the held-out items and some pool items.

The pool items of the gallery are held out of the plan, too. What the plan has matched
the second CCA draws to its match, away from the held-out items, so that in a gallery
of such items the second stage seems better than it is, the more so the smaller the
pool. The bank that corrects hubs is of matched items, as a model's own bank is.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from anchordot_jax.evaluation.score_matrix import partner_ranks
from anchordot_jax.matching.bank import BETA, LEAST_SPREAD
from anchordot_jax.recipes import canonical, soft_cca, two_sides

GALLERY_SHARE = 5
"""At most one pool item in so many is held out of the plan for the gallery."""


class Fold(NamedTuple):
    """One part of the anchors held out, and what its candidates share."""

    kept: np.ndarray
    held: np.ndarray
    first: soft_cca.AnchorAxes
    cross: np.ndarray
    """Of the kept anchors, for the second stage."""


class Gallery(NamedTuple):
    """Pool items that no plan sees, and some that it does: the banks."""

    x: np.ndarray
    y: np.ndarray
    bank_x: np.ndarray
    bank_y: np.ndarray


def subset(
    sides: two_sides.Sides, limit: int | None, *, key: PRNGKeyArray
) -> two_sides.Sides:
    """Return the sides with a random subset of each pool, in random order."""
    key_x, key_y = jax.random.split(key)
    return _take(
        sides,
        jax.random.permutation(key_x, len(sides.x.pool))[:limit],
        jax.random.permutation(key_y, len(sides.y.pool))[:limit],
    )


def _take(
    sides: two_sides.Sides, rows_x: jax.Array | slice, rows_y: jax.Array | slice
) -> two_sides.Sides:
    """Return the sides with some rows of each pool, their weights summing to one."""
    chosen = []
    for side, weights, rows in (
        (sides.x, sides.a, rows_x),
        (sides.y, sides.b, rows_y),
    ):
        part = None if weights is None else jnp.asarray(weights)[rows]
        share = None if part is None else part / jnp.sum(part)
        chosen.append((side._replace(pool=side.pool[rows]), share))
    (x, a), (y, b) = chosen
    return two_sides.Sides(x, y, a, b)


def set_apart(sides: two_sides.Sides, size: int) -> tuple[two_sides.Sides, Gallery]:
    """Return the pools without their first rows, and those rows as a gallery."""
    cut_x, cut_y = (
        min(size, len(side.pool) // GALLERY_SHARE) for side in (sides.x, sides.y)
    )
    matched = _take(sides, slice(cut_x, None), slice(cut_y, None))
    gallery = Gallery(
        np.asarray(sides.x.pool[:cut_x]),
        np.asarray(sides.y.pool[:cut_y]),
        np.asarray(matched.x.pool[:size]),
        np.asarray(matched.y.pool[:size]),
    )
    return matched, gallery


def make_folds(sides: two_sides.Sides, count: int, *, key: PRNGKeyArray) -> list[Fold]:
    """Return so many parts of the anchors, each held out once.

    Args:
        sides: both sides.
        count: of parts; no part has fewer than two anchors.
        key: fixes the parts.

    Raises:
        InputError: all anchors that are kept are the same.
    """
    n = len(sides.x.anchors)
    order = np.asarray(jax.random.permutation(key, n))
    folds = []
    for held in np.array_split(order, min(count, n // 2)):
        kept = np.setdiff1d(order, held)
        first = soft_cca.anchor_axes(sides, kept)
        folds.append(Fold(kept, held, first, soft_cca.anchor_cross(sides, kept)))
    return folds


def heldout_logs(
    sides: two_sides.Sides,
    fold: Fold,
    gallery: Gallery,
    weights: canonical.Weights,
) -> np.ndarray:
    """Return the log ranks of the held-out anchors' partners, both ways' mean, `[h]`.

    One number an anchor: its two directions are not independent.
    """
    x = np.concatenate([sides.x.anchors[fold.held], gallery.x])
    y = np.concatenate([sides.y.anchors[fold.held], gallery.y])
    u = _embed(x, weights.mean_x, weights.x)
    v = _embed(y, weights.mean_y, weights.y)
    bank_u = _embed(gallery.bank_x, weights.mean_x, weights.x)
    bank_v = _embed(gallery.bank_y, weights.mean_y, weights.y)
    ranks = bank_ranks(u, v, bank_u, bank_v, len(fold.held))
    return np.asarray(np.log(ranks).mean(axis=0))


def _embed(rows: np.ndarray, mean: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return what `canonical.embed` does, of few rows, compiling nothing."""
    centred = rows - np.asarray(mean, np.float32)[None, :]
    projected = centred @ np.asarray(weights, np.float32)
    norms = np.linalg.norm(projected, axis=1, keepdims=True)
    return np.asarray(projected / np.where(norms > 0, norms, 1))


def bank_ranks(
    u: np.ndarray, v: np.ndarray, bank_u: np.ndarray, bank_v: np.ndarray, h: int
) -> np.ndarray:
    """Return the ranks of the first h rows' partners, hubs corrected, `[2, h]`.

    Row 0: of v_k for each u_k; row 1: the reverse; among all rows of the other side.
    Ties count half.

    Args:
        u: unit rows of the x side, `[h + p, k]`.
        v: unit rows of the y side, `[h + q, k]`; row k < h belongs to row k of u.
        bank_u: queries that no gallery row belongs to, x side, `[b, k]`.
        bank_v: the same of the y side.
        h: how many are held out.
    """
    beta = BETA / max(float((bank_u @ bank_v.T).std()), LEAST_SPREAD)
    offsets_v = _log_sum(beta * bank_u @ v.T)[None, :]
    offsets_u = _log_sum(beta * bank_v @ u.T)[None, :]
    x2y = beta * u[:h] @ v.T - offsets_v
    y2x = beta * v[:h] @ u.T - offsets_u
    return np.stack([partner_ranks(x2y), partner_ranks(y2x)])


def _log_sum(logits: np.ndarray) -> np.ndarray:
    """Return the log-sum-exp of each column; logits are at most beta."""
    top = logits.max(axis=0)
    return np.asarray(top + np.log(np.exp(logits - top[None, :]).sum(axis=0)))
