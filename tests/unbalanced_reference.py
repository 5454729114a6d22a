"""Float64 unbalanced Sinkhorn, written from the formulas alone, and a small problem."""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, xlogy  # type: ignore[import-untyped]

from reference import unit


class Reference(NamedTuple):
    """The optimum and its terms."""

    plan: np.ndarray
    transport: float
    complexity: float
    variation_x: float
    variation_y: float


def clouds(n: int = 17, m: int = 29, d: int = 6, seed: int = 0) -> tuple:
    """Return two clouds of unit rows that do not lie on each other, float32."""
    rng = np.random.default_rng(seed)
    x = unit(rng.normal(size=(n, d)) + 0.5)
    y = unit(rng.normal(size=(m, d)) - 0.3)
    return x.astype(np.float32), y.astype(np.float32)


def kl(p: np.ndarray, q: np.ndarray) -> float:
    """Return sum p log(p/q) - p + q."""
    return float(np.sum(xlogy(p, p / q) - p + q))


def objective(
    plan: np.ndarray,
    cost: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    epsilon: float,
    rho_x: float,
    rho_y: float,
) -> tuple[float, float, float, float]:
    """Return the four terms of any plan."""
    return (
        float(np.sum(plan * cost)),
        epsilon * kl(plan, np.outer(a, b)),
        rho_x * kl(plan.sum(axis=1), a) if np.isfinite(rho_x) else 0.0,
        rho_y * kl(plan.sum(axis=0), b) if np.isfinite(rho_y) else 0.0,
    )


def solve(
    cost: np.ndarray,
    epsilon: float,
    rho_x: float,
    rho_y: float,
    *,
    a: np.ndarray | None = None,
    b: np.ndarray | None = None,
    iterations: int = 20000,
) -> Reference:
    """Return the optimum by plain iterations in the log domain."""
    cost = np.asarray(cost, np.float64)
    n, m = cost.shape
    a = np.full(n, 1 / n) if a is None else np.asarray(a, np.float64)
    b = np.full(m, 1 / m) if b is None else np.asarray(b, np.float64)
    tau_x, tau_y = 1 / (1 + epsilon / rho_x), 1 / (1 + epsilon / rho_y)
    f, g = np.zeros(n), np.zeros(m)
    for _ in range(iterations):
        before = g
        f = -tau_x * epsilon * logsumexp((g - cost) / epsilon, b=b, axis=1)
        g = (
            -tau_y
            * epsilon
            * logsumexp((f[:, None] - cost) / epsilon, b=a[:, None], axis=0)
        )
        if np.abs(g - before).max() < 1e-13:
            break
    plan = np.outer(a, b) * np.exp((f[:, None] + g - cost) / epsilon)
    return Reference(plan, *objective(plan, cost, a, b, epsilon, rho_x, rho_y))
