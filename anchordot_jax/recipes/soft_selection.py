"""Choosing the soft-matched CCA's settings by cross-validation over the anchors.

Each fold's pairs are held out of both CCAs and of the plan, and ranked, both ways, in
a gallery of the held-out items and some pool items, by the score that corrects hubs.
The criterion is the mean logarithm of the rank. First the ridge of the first stage is
chosen by that stage alone, then the sharpness of the plan together with the ratio of
the ridges.

The pool items of the gallery are held out of the plan, too. What the plan has matched
the second CCA draws to its match, away from the held-out items, so that in a gallery
of such items the second stage seems better than it is, the more so the smaller the
pool. The bank that corrects hubs is of matched items, as a model's own bank is.

Held-out items count in their side's covariance, as any unpaired item does, so one
eigendecomposition a side serves all folds, all candidates and the fit itself.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from anchordot_jax.config import CouplingConfig, SoftCcaConfig
from anchordot_jax.evaluation.score_matrix import partner_ranks
from anchordot_jax.matching.bank import BETA, LEAST_SPREAD
from anchordot_jax.recipes import canonical, soft_cca

MIN_ANCHORS = 10
GALLERY_SHARE = 5
"""At most one pool item in so many is held out of the plan for the gallery."""
MANY_ANCHORS = 300
"""From so many anchors on, the smaller ridges are among the candidates."""

RIDGES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
RIDGES_FEW = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
RATIOS = (0.06, 0.12, 0.25, 0.5, 1.0)
RATIOS_FEW = (0.015, 0.03, 0.06, 0.12, 0.25, 0.5)

USUAL = soft_cca.Settings(ridge=4.0, ridge_ratio=0.12, sharpness=6.0)
"""Taken where there are too few anchors to hold some out."""


class Candidate(NamedTuple):
    """One setting tried; of the first stage's, ridge_ratio and sharpness are None."""

    ridge: float
    ridge_ratio: float | None
    sharpness: float | None
    log_rank: float
    """Mean natural logarithm of the held-out ranks; 0 is perfect."""
    standard_error: float
    """Standard error of how far `log_rank` is behind the stage's best."""


class SoftSelection(NamedTuple):
    """The chosen settings, and every candidate tried."""

    ridge: float
    ridge_ratio: float
    sharpness: float
    curve: tuple[Candidate, ...]
    """The first stage's candidates, then the second's."""
    n_heldout: int
    """Held-out anchors ranked for each candidate, all folds together."""
    reason: str
    """One sentence saying how the choice was made."""

    @property
    def settings(self) -> soft_cca.Settings:
        """What was chosen."""
        return soft_cca.Settings(self.ridge, self.ridge_ratio, self.sharpness)


class _Fold(NamedTuple):
    """One part of the anchors held out, and what its candidates share."""

    kept: np.ndarray
    held: np.ndarray
    first: soft_cca.AnchorAxes
    cross: np.ndarray
    """Of the kept anchors, for the second stage."""


class _Gallery(NamedTuple):
    """Pool items that no plan sees, and some that it does: the banks."""

    x: np.ndarray
    y: np.ndarray
    bank_x: np.ndarray
    bank_y: np.ndarray


Progress = Callable[[int, int], None]


def select(
    sides: soft_cca.Sides,
    config: SoftCcaConfig,
    *,
    coupling: CouplingConfig,
    key: PRNGKeyArray,
    progress: Progress | None = None,
) -> SoftSelection:
    """Return the settings of smallest held-out log rank, stage by stage.

    A setting that the config fixes is not searched. With fewer than 10 anchors nothing
    is held out and the usual settings are taken.

    Args:
        sides: both sides, see `soft_cca.prepare`.
        config: the candidates, and how they are judged.
        coupling: settings of the transport.
        key: fixes the folds, the gallery and the pools' subset.
        progress: called with the number of candidates done and their total.
    """
    n = len(sides.x.anchors)
    ridges, pairs = candidates(config, n)
    if len(ridges) == 1 and len(pairs) == 1:
        only = soft_cca.Settings(ridges[0], *pairs[0])
        return SoftSelection(*only, (), 0, "Nothing was left to choose.")
    if n < MIN_ANCHORS:
        given = {k: v for k, v in _given(config).items() if v != "auto"}
        usual = USUAL._replace(**given)
        reason = f"{n} anchors are too few to hold some out; the defaults were taken."
        return SoftSelection(*usual, (), 0, reason)
    key_folds, key_pool = jax.random.split(key)
    folds = _folds(sides, config.folds, key=key_folds)
    few = subset(sides, config.pool_limit, key=key_pool)
    matched, gallery = _set_apart(few, config.gallery)
    total = len(folds) * (len(ridges) + len(pairs))
    done = itertools.count(1)

    def tick() -> None:
        if progress is not None:
            progress(next(done), total)

    first = [
        [_first_ranks(sides, fold, gallery, ridge, tick) for ridge in ridges]
        for fold in folds
    ]
    curve = _curve([(ridge, None, None) for ridge in ridges], first)
    ridge = _best(curve).ridge
    second = [
        _second_ranks(matched, fold, gallery, ridge, pairs, coupling, tick)
        for fold in folds
    ]
    points = [(ridge, ratio, sharpness) for ratio, sharpness in pairs]
    second_curve = _curve(points, second)
    best = _best(second_curve)
    return SoftSelection(
        ridge,
        float(best.ridge_ratio or 0),
        float(best.sharpness or 0),
        curve + second_curve,
        n,
        f"Chosen by the ranks of {n} held-out anchors.",
    )


def candidates(
    config: SoftCcaConfig, n_anchors: int
) -> tuple[tuple[float, ...], list[tuple[float, float]]]:
    """Return the ridges, and the (ridge_ratio, sharpness), to choose among."""
    many = n_anchors >= MANY_ANCHORS
    ridges = config.ridges or (RIDGES if many else RIDGES_FEW)
    ratios = config.ridge_ratios or (RATIOS if many else RATIOS_FEW)
    sharpnesses = config.sharpnesses
    if config.ridge != "auto":
        ridges = (config.ridge,)
    if config.ridge_ratio != "auto":
        ratios = (config.ridge_ratio,)
    if config.sharpness != "auto":
        sharpnesses = (config.sharpness,)
    # By sharpness, softest first: each plan starts from the one before.
    return ridges, [(ratio, c) for c in sorted(sharpnesses) for ratio in ratios]


def _given(config: SoftCcaConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in soft_cca.Settings._fields}


def subset(
    sides: soft_cca.Sides, limit: int | None, *, key: PRNGKeyArray
) -> soft_cca.Sides:
    """Return the sides with a random subset of each pool, in random order."""
    key_x, key_y = jax.random.split(key)
    return _take(
        sides,
        jax.random.permutation(key_x, len(sides.x.pool))[:limit],
        jax.random.permutation(key_y, len(sides.y.pool))[:limit],
    )


def _take(
    sides: soft_cca.Sides, rows_x: jax.Array | slice, rows_y: jax.Array | slice
) -> soft_cca.Sides:
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
    return soft_cca.Sides(x, y, a, b)


def _set_apart(sides: soft_cca.Sides, size: int) -> tuple[soft_cca.Sides, _Gallery]:
    """Return the pools without their first rows, and those rows as a gallery."""
    cut_x, cut_y = (
        min(size, len(side.pool) // GALLERY_SHARE) for side in (sides.x, sides.y)
    )
    matched = _take(sides, slice(cut_x, None), slice(cut_y, None))
    gallery = _Gallery(
        np.asarray(sides.x.pool[:cut_x]),
        np.asarray(sides.y.pool[:cut_y]),
        np.asarray(matched.x.pool[:size]),
        np.asarray(matched.y.pool[:size]),
    )
    return matched, gallery


def _folds(sides: soft_cca.Sides, count: int, *, key: PRNGKeyArray) -> list[_Fold]:
    n = len(sides.x.anchors)
    order = np.asarray(jax.random.permutation(key, n))
    folds = []
    for held in np.array_split(order, min(count, n // 2)):
        kept = np.setdiff1d(order, held)
        first = soft_cca.anchor_axes(sides, kept)
        folds.append(_Fold(kept, held, first, soft_cca.anchor_cross(sides, kept)))
    return folds


def _first_ranks(
    sides: soft_cca.Sides,
    fold: _Fold,
    gallery: _Gallery,
    ridge: float,
    tick: Callable[[], None],
) -> np.ndarray:
    ranks = _heldout_ranks(sides, fold, gallery, fold.first.weights(ridge))
    tick()
    return ranks


def _second_ranks(
    sides: soft_cca.Sides,
    fold: _Fold,
    gallery: _Gallery,
    ridge: float,
    pairs: Sequence[tuple[float, float]],
    config: CouplingConfig,
    tick: Callable[[], None],
) -> list[np.ndarray]:
    """Return the ranks of each (ridge_ratio, sharpness); one plan a sharpness."""
    weights = fold.first.weights(ridge)
    found, init = [], None
    for sharpness, group in itertools.groupby(pairs, key=lambda pair: pair[1]):
        solved, u, v = soft_cca.match_pools(
            sides, weights, sharpness, config=config, init=init
        )
        init = solved.f, solved.g
        cross = soft_cca.matched_cross(
            sides,
            fold.cross,
            soft_cca.plan_cross(solved, u, v, sides.x.pool, sides.y.pool),
            len(fold.kept),
        )
        for ratio, _ in group:
            own = canonical.canonical_weights(
                sides.x.axes, sides.y.axes, cross, ridge=ridge * ratio
            )
            found.append(_heldout_ranks(sides, fold, gallery, own))
            tick()
    return found


def _heldout_ranks(
    sides: soft_cca.Sides,
    fold: _Fold,
    gallery: _Gallery,
    weights: canonical.Weights,
) -> np.ndarray:
    """Return the ranks of the held-out anchors' partners, `[2, h]`."""
    x = np.concatenate([sides.x.anchors[fold.held], gallery.x])
    y = np.concatenate([sides.y.anchors[fold.held], gallery.y])
    u = _embed(x, weights.mean_x, weights.x)
    v = _embed(y, weights.mean_y, weights.y)
    bank_u = _embed(gallery.bank_x, weights.mean_x, weights.x)
    bank_v = _embed(gallery.bank_y, weights.mean_y, weights.y)
    return bank_ranks(u, v, bank_u, bank_v, len(fold.held))


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


def _curve(
    points: Sequence[tuple[float, float | None, float | None]],
    ranks: Sequence[Sequence[np.ndarray]],
) -> tuple[Candidate, ...]:
    """Return every candidate with its averages over all folds."""
    # One number an anchor: its two directions are not independent.
    logs = np.array(
        [
            np.log(np.concatenate([fold[i] for fold in ranks], axis=1)).mean(axis=0)
            for i in range(len(points))
        ]
    )
    best = logs[logs.mean(axis=1).argmin()]
    errors = (logs - best[None, :]).std(axis=1, ddof=1) / np.sqrt(logs.shape[1])
    return tuple(
        Candidate(*point, float(own.mean()), float(error))
        for point, own, error in zip(points, logs, errors, strict=True)
    )


def _best(curve: tuple[Candidate, ...]) -> Candidate:
    return min(curve, key=lambda candidate: candidate.log_rank)
