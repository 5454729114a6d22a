"""How far a metric follows retrieval, and how far that depends on eps and rho."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from anchordot_jax.arrays import AnyArray
from anchordot_jax.diagnostics.decomposition import Decomposition, decompose, plan_rows
from anchordot_jax.diagnostics.settings import UnbalancedConfig
from anchordot_jax.diagnostics.unbalanced import Unbalanced, solve_many

EPSILONS = (0.02, 0.05, 0.08, 0.12, 0.2)
RHOS = (0.2, 0.5, 0.8, 1.5, 3.0)


class SweepPoint(NamedTuple):
    """The decomposition at one (eps, rho)."""

    epsilon: float
    rho: float
    terms: Decomposition
    converged: bool
    error: float


def sweep(
    x: AnyArray,
    y: AnyArray,
    *,
    epsilons: Sequence[float] = EPSILONS,
    rhos: Sequence[float] = RHOS,
    config: UnbalancedConfig | None = None,
) -> list[SweepPoint]:
    """Return the decomposition at every pair of eps and rho, solved in one program.

    Args:
        x: unit rows of one side.
        y: unit rows of the other side.
        epsilons: the values of eps.
        rhos: the values of rho.
        config: threshold and iterations.
    """
    grid = [(epsilon, rho) for epsilon in epsilons for rho in rhos]
    for epsilon, rho in grid:
        UnbalancedConfig(epsilon=epsilon, rho=rho)  # Checks the ranges.
    values = np.asarray(grid, np.float32)
    solved = solve_many(x, y, values[:, 0], values[:, 1], config=config)
    points = []
    for k, (epsilon, rho) in enumerate(grid):
        one = Unbalanced(*(part[k] for part in solved))
        terms = decompose(one, plan_rows(one, x, y))
        points.append(
            SweepPoint(epsilon, rho, terms, bool(one.converged), float(one.error))
        )
    return points


def spearman(values: Sequence[float], other: Sequence[float]) -> float:
    """Return Spearman's rank correlation, ties taking their mean rank.

    0 where one side is constant: it then tells nothing of the other.
    """
    import scipy.stats

    if np.ptp(values) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(scipy.stats.spearmanr(values, other).statistic)
