"""One training-free report of two sets of embeddings, with or without pairs."""

import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from anchordot_jax import evaluation
from anchordot_jax.diagnostics import bounds, pairs
from anchordot_jax.diagnostics.decomposition import (
    Decomposition,
    PlanRows,
    decompose,
    plan_rows,
)
from anchordot_jax.diagnostics.settings import UnbalancedConfig
from anchordot_jax.diagnostics.unbalanced import solve_unbalanced
from anchordot_jax.errors import InputError
from anchordot_jax.transport.unbalanced_sinkhorn import Unbalanced

RECALLS = tuple(f"{way}/recall@{k}" for way in ("x2y", "y2x") for k in (1, 5, 10))


class PairReport(NamedTuple):
    """What the pairs add."""

    rows: np.ndarray
    """The pairs, row numbers of x and y, `[N, 2]`."""
    costs: np.ndarray
    """Each pair's cost 1 - cosine, `[N]`."""
    residuals: np.ndarray
    """Each pair's cost less its row's transport cost in the optimum, `[N]`."""
    pair_cost: float
    """Mean cost of the pairs."""
    pair_residual: float
    """PairCost less the optimum's transport a unit of mass."""
    strain: float
    """This package's composite, see `pairs.strain`."""
    recalls: dict[str, float]
    """Retrieval among the paired items, both ways, fractions."""


class Diagnosis(NamedTuple):
    """Everything that was measured."""

    x: np.ndarray
    """Unit rows that were compared, `[n, d]`: with pairs, one row a pair."""
    y: np.ndarray
    """`[m, d]`."""
    config: UnbalancedConfig
    solved: Unbalanced
    plan: PlanRows
    terms: Decomposition
    mean_gap: float
    mean_gap_bound: float
    """What the unbalanced plan bounds the mean gap by."""
    plan_entropy: float
    """Mean entropy of the plan's rows, in nats."""
    logit_entropy: float
    """Mean entropy of the softmax of the similarities, in nats."""
    modality_auc: float | None
    """Of a linear probe for the side; None with fewer than 5 rows a side,
    or if not asked for."""
    pairs: PairReport | None
    seconds: float
    """Of the transport problem, compilation included."""


def diagnose(
    x: ArrayLike,
    y: ArrayLike,
    known_pairs: ArrayLike | None = None,
    *,
    config: UnbalancedConfig | None = None,
    seed: int = 0,
    probe: bool = True,
    names: tuple[str, str] = ("x", "y"),
) -> Diagnosis:
    """Return the decomposition of the gap between two sides, and what pairs add to it.

    Rows are scaled to unit norm; both sides weigh all their rows alike. With pairs,
    only paired rows are compared, once a pair, so that the pairs' mean cost and the
    optimum's transport are of the same rows.

    Args:
        x: embeddings of one side `[n, d]`.
        y: embeddings of the other side `[m, d]`, of the same dimension.
        known_pairs: `[N, 2]` row numbers of x and y that belong together.
        config: eps, rho, threshold, iterations, memory for the cost.
        seed: fixes the folds of the modality probe.
        probe: whether to train that probe, the slowest part for a few thousand rows.
        names: what messages call the two sides.

    Raises:
        InputError: unequal dimensions, fewer than two rows or pairs, rows that are
            zero, not finite or all the same, or pairs out of range.
    """
    config = config or UnbalancedConfig()
    side_x, side_y = np.asarray(x, np.float32), np.asarray(y, np.float32)
    check_sides(side_x, side_y, names)
    rows = None
    if known_pairs is not None:
        rows = _checked_pairs(known_pairs, len(side_x), len(side_y))
        side_x, side_y = side_x[rows[:, 0]], side_y[rows[:, 1]]
    x, y = _unit(side_x, names[0]), _unit(side_y, names[1])
    start = time.perf_counter()
    solved = solve_unbalanced(x, y, config=config)
    plan = plan_rows(solved, x, y)
    seconds = time.perf_counter() - start
    terms = decompose(solved, plan)
    probed = probe and min(len(x), len(y)) >= pairs.PROBE_FOLDS
    return Diagnosis(
        x=x,
        y=y,
        config=config,
        solved=solved,
        plan=plan,
        terms=terms,
        mean_gap=pairs.mean_gap(x, y),
        mean_gap_bound=bounds.mean_gap_bound(
            plan, np.asarray(solved.a), np.asarray(solved.b)
        ),
        plan_entropy=float(plan.entropies.mean(dtype=np.float64)),
        logit_entropy=pairs.logit_entropy(x, y),
        modality_auc=pairs.modality_auc(x, y, seed=seed) if probed else None,
        pairs=None if rows is None else _pair_report(x, y, rows, plan, terms),
        seconds=seconds,
    )


def check_sides(x: np.ndarray, y: np.ndarray, names: tuple[str, str]) -> None:
    """Raise InputError unless both sides have rows of one dimension."""
    for side, name in zip((x, y), names, strict=True):
        if side.ndim != 2:
            raise InputError(f"{name} must be a matrix of rows, got {side.shape}.")
        if len(side) < 2:
            raise InputError(
                f"{name} has {len(side)} row; a diagnosis compares two distributions, "
                f"give at least 2 rows a side."
            )
    if x.shape[1] != y.shape[1]:
        raise InputError(
            f"{names[0]} has {x.shape[1]} dimensions and {names[1]} has {y.shape[1]}: "
            f"a cosine needs as many on both sides; compare embeddings of a model, or "
            f"the profiles that some known pairs give."
        )


def summary(found: Diagnosis) -> dict[str, Any]:
    """Return the figures as JSON values."""
    solved, terms = found.solved, found.terms
    values: dict[str, Any] = {
        "schema": 1,
        "rows_x": len(found.x),
        "rows_y": len(found.y),
        "dimensions": found.x.shape[1],
        "objective": {
            "epsilon": found.config.epsilon,
            "rho_x": _finite(found.config.rhos[0]),
            "rho_y": _finite(found.config.rhos[1]),
            "threshold": found.config.threshold,
            "converged": bool(solved.converged),
            "error": _finite(float(solved.error)),
            "iterations": int(solved.n_iterations),
            "seconds": found.seconds,
        },
        "terms": {**terms._asdict(), "unit_transport": terms.unit_transport},
        "mean_gap": found.mean_gap,
        "mean_gap_bound": found.mean_gap_bound,
        "plan_entropy": found.plan_entropy,
        "logit_entropy": found.logit_entropy,
        "modality_auc": found.modality_auc,
    }
    if found.pairs is not None:
        values["pairs"] = {
            "pairs": len(found.pairs.rows),
            "pair_cost": found.pairs.pair_cost,
            "pair_residual": found.pairs.pair_residual,
            "strain": found.pairs.strain,
            **found.pairs.recalls,
        }
    return values


def _checked_pairs(known_pairs: ArrayLike, n: int, m: int) -> np.ndarray:
    rows = np.asarray(known_pairs)
    if rows.ndim != 2 or rows.shape[1:] != (2,) or rows.dtype.kind not in "iu":
        raise InputError(
            f"Pairs must be whole numbers [N, 2], got {rows.dtype} of shape "
            f"{rows.shape}."
        )
    if len(rows) < 2:
        raise InputError(
            f"{len(rows)} pair(s) were given; pair metrics need at least 2."
        )
    for side, count, column in zip("xy", (n, m), rows.T, strict=True):
        if column.min() < 0 or column.max() >= count:
            raise InputError(
                f"The pairs name row {int(column.max())} of {side}, which has {count} "
                f"rows, counted from 0."
            )
    return rows


def _unit(rows: np.ndarray, name: str) -> np.ndarray:
    norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    bad = np.flatnonzero(~np.isfinite(norms[:, 0]) | (norms[:, 0] == 0))
    if len(bad):
        raise InputError(
            f"{name} has {len(bad)} rows without a direction, zero or not finite "
            f"(first: {bad[0]}); remove or encode them again."
        )
    unit = np.asarray(rows / norms, np.float32)
    if np.ptp(unit, axis=0).max() < 1e-6:
        raise InputError(
            f"{name} has the same direction in all of its {len(unit)} rows; constant "
            f"embeddings cannot be diagnosed, check the encoder."
        )
    return unit


def _pair_report(
    x: np.ndarray,
    y: np.ndarray,
    rows: np.ndarray,
    plan: PlanRows,
    terms: Decomposition,
) -> PairReport:
    costs = pairs.pair_costs(x, y)
    pair_cost = float(costs.mean())
    residual = pairs.pair_residual(pair_cost, terms.unit_transport)
    paired = evaluation.positives_from_pairs(rows)
    first_x = np.unique(rows[:, 0], return_index=True)
    first_y = np.unique(rows[:, 1], return_index=True)
    metrics = evaluation.evaluate(
        x[first_x[1][np.searchsorted(first_x[0], paired.query_rows)]],
        y[first_y[1][np.searchsorted(first_y[0], paired.gallery_rows)]],
        paired.positives_x2y,
        paired.positives_y2x,
    )
    return PairReport(
        rows=rows,
        costs=costs,
        residuals=costs - plan.costs,
        pair_cost=pair_cost,
        pair_residual=residual,
        strain=pairs.strain(
            terms.complexity, terms.variation_x, terms.variation_y, residual
        ),
        recalls={name: metrics[name] for name in RECALLS},
    )


def _finite(value: float) -> float | str:
    return value if np.isfinite(value) else str(value)
