"""What the theory says of the mean gap and of private mass (UOT-Gap, Section 4)."""

import math

import numpy as np

from anchordot_jax.diagnostics.decomposition import PlanRows


def transport_bound(transport: float) -> float:
    """Return sqrt(2 <C, gamma>), which bounds the mean gap of gamma's marginals.

    For a coupling gamma of total mass 1 (Theorem 4.1): by Jensen's inequality, and
    because |x - y|^2 = 2 - 2 x . y on the unit sphere.
    """
    return math.sqrt(2 * max(transport, 0.0))


def mean_gap_bound(rows: PlanRows, a: np.ndarray, b: np.ndarray) -> float:
    """Return the bound of the mean gap by an unbalanced plan, scaled to mass 1.

    sqrt(2 <C, pi>) + sqrt(2 KL(r | a)) + sqrt(2 KL(c | b)): the centroids of the plan's
    marginals are near each other by its transport, and near the data's by Pinsker's
    inequality.
    """
    r, c = rows.row_sums.astype(np.float64), rows.column_sums.astype(np.float64)
    r, c = r / r.sum(), c / c.sum()
    return (
        transport_bound(float(r @ rows.costs))
        + math.sqrt(2 * _divergence(r, np.asarray(a, np.float64)))
        + math.sqrt(2 * _divergence(c, np.asarray(b, np.float64)))
    )


def private_mass_bound(eta: float, delta: float, rho: float) -> float:
    """Return rho eta (1 - exp(-delta/rho)), what a private share of x must cost.

    Of every plan, <C, pi> + rho KL(pi 1 | a) is at least that if a share eta of the
    mass is at cost delta or more from all of y: a retained fraction s costs delta s,
    the deleted rest rho (s log s - s + 1), least at s = exp(-delta/rho).
    """
    return float(-rho * eta * math.expm1(-delta / rho))


def _divergence(p: np.ndarray, q: np.ndarray) -> float:
    """Return KL(p | q) of two distributions."""
    ratio = np.where(p > 0, p / q, 1)
    return max(float(p @ np.log(ratio)), 0.0)
