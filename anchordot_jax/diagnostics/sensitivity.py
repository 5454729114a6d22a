"""How far a metric follows retrieval, and how far that depends on eps and rho."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from anchordot_jax.arrays import AnyArray
from anchordot_jax.diagnostics.decomposition import Decomposition, decompose, plan_rows
from anchordot_jax.diagnostics.settings import UnbalancedConfig
from anchordot_jax.diagnostics.unbalanced import solve_many, solve_unbalanced
from anchordot_jax.transport.unbalanced_sinkhorn import Unbalanced

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
    together: bool = True,
    config: UnbalancedConfig | None = None,
) -> list[SweepPoint]:
    """Return the decomposition at every pair of eps and rho.

    Args:
        x: unit rows of one side.
        y: unit rows of the other side.
        epsilons: the values of eps.
        rhos: the values of rho.
        together: whether to solve all in one program mapped over the settings, which
            keeps an accelerator busy. One by one is the same answer, some ten times
            sooner on a CPU, whose caches hold one plan but not 25, and within the
            config's `cost_memory`.
        config: threshold and iterations.
    """
    grid = [(epsilon, rho) for epsilon in epsilons for rho in rhos]
    config = config or UnbalancedConfig()
    settings = [
        dataclasses.replace(config, epsilon=epsilon, rho=rho, rho_y=None)
        for epsilon, rho in grid
    ]
    if together:
        values = np.asarray(grid, np.float32)
        mapped = solve_many(x, y, values[:, 0], values[:, 1], config=config)
        solved = [Unbalanced(*(part[k] for part in mapped)) for k in range(len(grid))]
    else:
        solved = [solve_unbalanced(x, y, config=own) for own in settings]
    points = []
    for (epsilon, rho), one in zip(grid, solved, strict=True):
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
