"""Variants of the refined recipe: teachers, averages and corrections of hubs.

Each is a function of anchors and pools alone; `beyond_search.py` says what they are and
compares them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchordot_jax import Config, CouplingConfig, coupling, distillation, profiles
from anchordot_jax.config import SoftCcaConfig
from anchordot_jax.evaluation.score_matrix import partner_ranks
from anchordot_jax.matching.bank import BETA, LEAST_SPREAD, cosine_spread
from anchordot_jax.matching.sinkhorn import sinkhorn_offsets
from anchordot_jax.recipes import (
    canonical,
    refined,
    soft_cca,
    soft_selection,
    two_sides,
)
from anchordot_jax.recipes.heldout_ranks import bank_ranks
from anchordot_jax.recipes.plan_cross import plan_cross

HELD_OUT = 5
"""One in so many anchors."""
GALLERY = 500
TRAININGS = 3
GAMMAS = (0.5, 0.75, 1.0)
KERNEL_RIDGES = (0.25, 0.5, 1.0, 2.0, 4.0)
RHOS = (1.0, 0.3)
SHARES = (0.5, 0.25)
BETAS = (0.75, 3.0)
BANKS = (100, 250, 1000)
METRICS = ("log_rank", "recall", "bank_log_rank", "bank_recall")
TRANSPORT = CouplingConfig(tolerance=SoftCcaConfig().tolerance)

Coordinates = tuple[jax.Array, jax.Array]
"""Rows of both pools whose inner products are similarities."""


class Embeddings(NamedTuple):
    """Unit rows in the shared space."""

    u: np.ndarray
    v: np.ndarray
    """The gallery: held-out anchors, then pool items that no variant saw."""
    bank_u: np.ndarray
    bank_v: np.ndarray
    """The pool that was matched."""


class Given(NamedTuple):
    """What a variant may see, and the anchors that judge it."""

    x: np.ndarray
    y: np.ndarray
    """Anchors, of both sides."""
    pool_x: np.ndarray
    pool_y: np.ndarray
    gallery_x: np.ndarray
    gallery_y: np.ndarray
    """Held-out anchors, then held-out pool items."""
    n_heldout: int
    """Anchors among them."""


def all_variants(given: Given, *, key: jax.Array) -> dict[str, float]:
    """Return every variant's figures, and the settings that all of them share."""
    sides = two_sides.prepare(given.x, given.y, given.pool_x, given.pool_y)
    key_choice, key_train = jax.random.split(key)
    chosen = soft_selection.select(
        sides, SoftCcaConfig(), coupling=TRANSPORT, key=key_choice
    ).settings
    teacher = anchor_teacher(sides, chosen)
    closed = closed_form(sides, *teacher, chosen)
    groups = {"closed": [closed]}
    for name, (u, v) in teachers(given, teacher).items():
        groups[f"teacher-{name}"] = [closed_form(sides, u, v, chosen)]
    for rho in RHOS:
        groups[f"rho-{rho:g}"] = [closed_form(sides, *teacher, chosen, rho=rho)]
    pools = (("x", given.pool_x), ("y", given.pool_y))
    own = [refined.student_outputs(closed[s], jnp.asarray(rows)) for s, rows in pools]
    groups["rounds-2"] = [closed_form(sides, *own, chosen)]
    for share in SHARES:
        fewer = [rows[: int(share * len(rows))] for _, rows in pools]
        part = two_sides.prepare(given.x, given.y, *fewer)
        found = closed_form(part, *anchor_teacher(part, chosen), chosen)
        groups[f"pools-{share:g}"] = [found]
    groups |= trainings(given, closed, chosen, key_train)
    figures: dict[str, float] = dict(chosen._asdict())
    h = given.n_heldout
    for name, group in groups.items():
        measured = measure(embed(given, group), h)
        figures |= {f"{name}/{metric}": value for metric, value in measured.items()}
    for name, value in bank_forms(embed(given, [closed]), h).items():
        figures[f"bank-{name}/bank_log_rank"] = value
    return figures


def anchor_teacher(sides: two_sides.Sides, chosen: soft_cca.Settings) -> Coordinates:
    """Return the pools in the coordinates of the CCA of the anchors."""
    found = soft_cca.anchor_axes(sides).weights(chosen)
    return (
        canonical.embed(sides.x.pool, found.mean_x, found.x),
        canonical.embed(sides.y.pool, found.mean_y, found.y),
    )


def teachers(given: Given, anchors: Coordinates) -> dict[str, Coordinates]:
    """Return the pools in the coordinates of the other teachers."""
    profile = _best(given, [("profile", gamma) for gamma in GAMMAS])
    kernel = _best(given, [("kernel", value) for value in KERNEL_RIDGES])
    return {
        "profiles": profile,
        "kernel": kernel,
        "cca-and-profiles": stacked(anchors, profile),
        "cca-and-kernel": stacked(anchors, kernel),
    }


def _best(given: Given, candidates: Sequence[tuple[str, float]]) -> Coordinates:
    """Return the pools by the candidate that ranks a fifth of the anchors best.

    The ranking is that of the choice of ridges: hubs corrected, among pool items.
    """
    h = len(given.x) // HELD_OUT
    ranked = []
    for kind, value in candidates:
        u, v = TEACHERS[kind](
            (given.x[h:], given.y[h:]),
            np.concatenate([given.x[:h], given.pool_x[:GALLERY]]),
            np.concatenate([given.y[:h], given.pool_y[:GALLERY]]),
            value,
        )
        u, v = np.asarray(u), np.asarray(v)
        ranks = bank_ranks(u, v, u[h:], v[h:], h)
        ranked.append(np.log(ranks).mean())
    kind, value = candidates[int(np.argmin(ranked))]
    return TEACHERS[kind]((given.x, given.y), given.pool_x, given.pool_y, value)


def profile_teacher(
    anchors: tuple[np.ndarray, np.ndarray], x: np.ndarray, y: np.ndarray, gamma: float
) -> Coordinates:
    """Return coordinates whose inner product is the profiles' cosine."""
    bases = [profiles.fit_basis(rows) for rows in anchors]
    return profiles.coordinates(x, y, profiles.coordinate_maps(*bases, gamma))


def kernel_teacher(
    anchors: tuple[np.ndarray, np.ndarray], x: np.ndarray, y: np.ndarray, ridge: float
) -> Coordinates:
    """Return coordinates of a CCA of Gaussian kernels to the anchors.

    A row's features are K(x, A) K(A, A)^(-1/2), whose inner products are the kernel's
    among anchors; the width is the median distance of the anchors.
    """
    known, asked = [], []
    for own, rows in zip(anchors, (x, y), strict=True):
        centres = np.asarray(two_sides.features(own), np.float64)
        width = np.median(_square_distances(centres, centres))
        values, vectors = np.linalg.eigh(
            np.exp(-_square_distances(centres, centres) / width)
        )
        root = vectors / np.sqrt(np.maximum(values, 1e-6 * values[-1]))[None, :]
        for target, some in ((known, own), (asked, rows)):
            part = np.asarray(two_sides.features(some), np.float64)
            target.append(np.exp(-_square_distances(part, centres) / width) @ root)
    axes = [canonical.axes_of_rows(rows) for rows in known]
    centred = [
        (rows - own.mean[None, :]) @ own.vectors
        for rows, own in zip(known, axes, strict=True)
    ]
    cross = centred[0].T @ centred[1] / len(centred[0])
    found = canonical.canonical_weights(*axes, cross, ridge=ridge)
    u, v = (
        canonical.embed(
            jnp.asarray(rows, jnp.float32),
            jnp.asarray(own.mean, jnp.float32),
            jnp.asarray(own.vectors @ weights, jnp.float32),
        )
        for rows, own, weights in zip(asked, axes, (found.x, found.y), strict=True)
    )
    return u, v


TEACHERS = {"profile": profile_teacher, "kernel": kernel_teacher}


def _square_distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    squares = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1)[None, :]
    return np.maximum(squares - 2 * x @ y.T, 0)


def stacked(one: Coordinates, other: Coordinates) -> Coordinates:
    """Return coordinates whose products are the mean of both, of equal deviation."""
    scales = [1 / np.sqrt(2 * cosine_spread(*pair)) for pair in (one, other)]
    u, v = (
        jnp.concatenate(
            [scale * side for scale, side in zip(scales, both, strict=True)], axis=1
        )
        for both in zip(one, other, strict=True)
    )
    return u, v


def closed_form(
    sides: two_sides.Sides,
    u: jax.Array,
    v: jax.Array,
    chosen: soft_cca.Settings,
    *,
    rho: float | None = None,
) -> dict[str, Any]:
    """Return the second CCA as students, the pools matched by some coordinates.

    Args:
        sides: both sides.
        u: coordinates of the x pool.
        v: of the y pool.
        chosen: ridges and sharpness.
        rho: of soft marginals, in standard deviations of the cosines.
    """
    spread = max(cosine_spread(u, v), LEAST_SPREAD)
    solved = coupling.solve_coupling(
        u,
        v,
        spread / chosen.sharpness,
        rho=None if rho is None else rho * spread,
        config=TRANSPORT,
    )
    matched = plan_cross(solved, u, v, sides.x.pool, sides.y.pool)
    if solved.mass is not None:
        matched = matched / solved.mass
    n = len(sides.x.anchors)
    cross = soft_cca.matched_cross(sides, soft_cca.anchor_cross(sides), matched, n)
    weights = soft_cca.second_weights(sides, cross, chosen)
    temperature = Config().refined.temperature
    return soft_cca.student_params(sides, weights, temperature=temperature)


def trainings(
    given: Given, start: dict[str, Any], chosen: soft_cca.Settings, key: jax.Array
) -> dict[str, list[dict[str, Any]]]:
    """Return the trained students, and what their weights can be averaged to."""
    pools = student_pools(given, start, chosen)
    anchors = distillation.Anchors(jnp.asarray(given.x), jnp.asarray(given.y))
    keys = jax.random.split(key, TRAININGS)
    paths = [train(pools, anchors, start, key=own) for own in keys]
    ends = [path[-1] for path in paths]
    return {
        "student": ends[:1],
        "averaged": [mean_weights(paths[0][len(paths[0]) // 2 :])],
        "halfway": [mean_weights([start, ends[0]])],
        "soup": [mean_weights(ends)],
        "ensemble": [start, *ends],
    }


def student_pools(
    given: Given, start: dict[str, Any], chosen: soft_cca.Settings
) -> distillation.Pools:
    """Return the pools with the plan of the students' own cosines."""
    x, y = jnp.asarray(given.pool_x), jnp.asarray(given.pool_y)
    u = refined.student_outputs(start["x"], x)
    v = refined.student_outputs(start["y"], y)
    epsilon = max(cosine_spread(u, v), LEAST_SPREAD) / chosen.sharpness
    solved = coupling.solve_coupling(u, v, epsilon, config=TRANSPORT)
    return distillation.Pools(x, y, u, v, solved.f, solved.g, solved.epsilon)


def train(
    pools: distillation.Pools,
    anchors: distillation.Anchors,
    start: dict[str, Any],
    *,
    key: jax.Array,
) -> list[dict[str, Any]]:
    """Return the students after every epoch of the refined recipe's training."""
    config = Config(recipe="refined").training()
    chunks = distillation.plan_chunks(
        len(pools.x), len(pools.y), len(anchors.x), config.chunk_size
    )
    state = distillation.init_training(
        pools.x.shape[1],
        pools.y.shape[1],
        config,
        total_steps=config.epochs * chunks.steps,
        key=key,
        start=start,
    )
    path = []
    for _ in range(config.epochs):
        state, _ = distillation.train_epoch(
            state, pools, anchors, config=config, chunks=chunks, key=key
        )
        # The next epoch reuses the state's buffers.
        path.append(jax.tree.map(np.array, state.params))
    return path


def mean_weights(several: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of some students' parameters."""
    return jax.tree.map(
        lambda *leaves: sum(jnp.asarray(leaf) for leaf in leaves) / len(leaves),
        *several,
    )


def embed(given: Given, several: Sequence[dict[str, Any]]) -> Embeddings:
    """Return unit rows whose products are the students' mean cosines."""
    asked = {
        "x": (given.gallery_x, given.pool_x),
        "y": (given.gallery_y, given.pool_y),
    }
    found = {
        side: [
            np.concatenate(
                [
                    np.asarray(refined.student_outputs(params[side], jnp.asarray(rows)))
                    for params in several
                ],
                axis=1,
            )
            / np.sqrt(len(several))
            for rows in own
        ]
        for side, own in asked.items()
    }
    (u, bank_u), (v, bank_v) = found["x"], found["y"]
    return Embeddings(u, v, bank_u, bank_v)


def measure(rows: Embeddings, h: int) -> dict[str, float]:
    """Return log rank and mean of the six recalls (%), plain and hubs corrected."""
    u, v, bank_u, bank_v = rows
    plain = both_ranks(u[:h] @ v.T, v[:h] @ u.T)
    bank = bank_ranks(u, v, bank_u[:GALLERY], bank_v[:GALLERY], h)
    values = [f for ranks in (plain, bank) for f in (log_rank(ranks), recall(ranks))]
    return dict(zip(METRICS, values, strict=True))


def bank_forms(rows: Embeddings, h: int) -> dict[str, float]:
    """Return the log rank of other corrections: strengths, sizes, a whole transport."""
    u, v = rows.u, rows.v
    bank_u, bank_v = rows.bank_u[:GALLERY], rows.bank_v[:GALLERY]
    scale = 1 / max(cosine_spread(bank_u, bank_v), LEAST_SPREAD)

    def corrected(bank_u: np.ndarray, bank_v: np.ndarray, beta: float) -> float:
        x2y = beta * u[:h] @ v.T - _log_sum(beta * bank_u @ v.T)
        y2x = beta * v[:h] @ u.T - _log_sum(beta * bank_v @ u.T)
        return log_rank(both_ranks(x2y, y2x))

    found = {
        f"beta-{beta:g}": corrected(bank_u, bank_v, beta * scale) for beta in BETAS
    }
    for size in BANKS:
        found[f"{size}-rows"] = corrected(
            rows.bank_u[:size], rows.bank_v[:size], BETA * scale
        )
    beta = BETA * scale
    offsets_v = sinkhorn_offsets(bank_u, v, 1 / beta)[None, :]
    offsets_u = sinkhorn_offsets(bank_v, u, 1 / beta)[None, :]
    x2y = beta * u[:h] @ v.T + offsets_v
    y2x = beta * v[:h] @ u.T + offsets_u
    return found | {"sinkhorn": log_rank(both_ranks(x2y, y2x))}


def _log_sum(logits: np.ndarray) -> np.ndarray:
    return np.asarray(jax.nn.logsumexp(logits, axis=0))[None, :]


def both_ranks(x2y: np.ndarray, y2x: np.ndarray) -> np.ndarray:
    """Return the rank of column k in row k of each matrix, `[2, h]`."""
    return np.stack([partner_ranks(x2y), partner_ranks(y2x)])


def log_rank(ranks: np.ndarray) -> float:
    """Return the mean natural logarithm of the ranks."""
    return float(np.log(ranks).mean())


def recall(ranks: np.ndarray) -> float:
    """Return the mean of recall@1, 5 and 10 of both directions, in %."""
    return float(100 * np.mean([(ranks <= k).mean() for k in (1, 5, 10)]))
