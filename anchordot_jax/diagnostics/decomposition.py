"""What the unbalanced optimum is made of (UOT-Gap, Section 3.1).

One pass over the plan, a tile of rows at a time, gives its row and column sums, each
row's cost and entropy and each row's barycentre; everything else follows from these.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from anchordot_jax import geometry
from anchordot_jax.arrays import AnyArray
from anchordot_jax.transport.unbalanced_sinkhorn import Unbalanced


class PlanRows(NamedTuple):
    """The plan's sums, and what each of its rows does."""

    row_sums: np.ndarray
    """r = pi 1, `[n]`."""
    column_sums: np.ndarray
    """c = pi^T 1, `[m]`."""
    costs: np.ndarray
    """sum_j pi_ij C_ij / r_i, `[n]`: the row's transport cost a unit of mass."""
    entropies: np.ndarray
    """Entropy of the row's distribution pi_ij / r_i over y, in nats, `[n]`."""
    barycentres: np.ndarray
    """sum_j pi_ij y_j / r_i, `[n, d]`."""


class Decomposition(NamedTuple):
    """The objective's terms at the optimum, each with its weight; they add up."""

    transport: float
    """<C, pi>."""
    complexity: float
    """eps KL(pi | ab^T)."""
    variation_x: float
    """rho_x KL(pi 1 | a); 0 for an infinite rho_x."""
    variation_y: float
    """rho_y KL(pi^T 1 | b)."""
    total: float
    """Their sum, the optimum's value."""
    dual: float
    """Value of the dual, a lower bound of the total that it meets at the optimum."""
    mass: float
    """sum pi; 1 where it is conserved."""

    @property
    def unit_transport(self) -> float:
        """Transport cost a unit of mass, <C, pi> / sum pi."""
        return self.transport / self.mass


def plan_rows(
    solved: Unbalanced,
    x: Float[AnyArray, "n d"],
    y: Float[AnyArray, "m d"],
    *,
    tile: int | None = None,
) -> PlanRows:
    """Return the plan's sums and each row's cost, entropy and barycentre.

    Args:
        solved: the optimum.
        x: the unit rows it was solved for.
        y: those of the other side.
        tile: rows of the plan that exist at once; None: see `geometry.tile_rows`.
    """
    n = len(x)
    tile = min(n, tile or geometry.tile_rows(len(y)))
    spare = -n % tile
    rows = np.pad(np.asarray(x, np.float32), ((0, spare), (0, 0)))
    f = np.pad(np.asarray(solved.f), (0, spare), constant_values=-np.inf)
    with jax.numpy_rank_promotion("allow"):
        per_row, columns = _pass(
            rows.reshape(-1, tile, rows.shape[1]),
            jnp.asarray(y, jnp.float32),
            f.reshape(-1, tile),
            solved.g,
            solved.epsilon,
        )
    sums, costs, entropies, barycentres = (np.asarray(part) for part in per_row)
    return PlanRows(
        row_sums=sums.reshape(-1)[:n],
        column_sums=np.asarray(columns),
        costs=costs.reshape(-1)[:n],
        entropies=entropies.reshape(-1)[:n],
        barycentres=barycentres.reshape(-1, rows.shape[1])[:n],
    )


@jax.jit
def _pass(
    tiles: Array, y: Array, potentials: Array, g: Array, epsilon: Array
) -> tuple[tuple[Array, Array, Array, Array], Array]:
    def step(
        columns: Array, part: tuple[Array, Array]
    ) -> tuple[Array, tuple[Array, Array, Array, Array]]:
        x, f = part
        cost = geometry.cost_block(x, y)
        log_plan = (f[:, None] + g[None, :] - cost) / epsilon
        plan = jnp.exp(log_plan)
        sums = jnp.sum(plan, axis=1)
        safe = jnp.where(sums > 0, sums, 1)
        logs = jnp.sum(jnp.where(plan > 0, plan * log_plan, 0), axis=1)
        barycentres = jnp.matmul(plan, y, precision=geometry.HIGHEST) / safe[:, None]
        per_row = (
            sums,
            jnp.sum(plan * cost, axis=1) / safe,
            jnp.log(safe) - logs / safe,
            barycentres,
        )
        return columns + jnp.sum(plan, axis=0), per_row

    columns, per_row = jax.lax.scan(step, jnp.zeros_like(g), (tiles, potentials))
    return per_row, columns


def decompose(solved: Unbalanced, rows: PlanRows) -> Decomposition:
    """Return the objective's terms; sums are taken in float64.

    With f' = f - eps log a and g' likewise, eps KL(pi | ab^T) =
    <r, f'> + <c, g'> - <C, pi> - eps (sum pi - 1), so that the plan itself is not
    needed.

    Args:
        solved: the optimum.
        rows: its plan's sums and costs, from `plan_rows`.
    """
    a, b, f, g = (np.asarray(part, np.float64) for part in _duals(solved))
    epsilon = float(solved.epsilon)
    r = rows.row_sums.astype(np.float64)
    c = rows.column_sums.astype(np.float64)
    mass = float(r.sum())
    transport = float(r @ rows.costs)
    relative = float(r @ f + c @ g) - transport
    loss = epsilon * (mass - float(a.sum() * b.sum()))
    complexity = relative - loss
    rho_x, rho_y = float(solved.rho_x), float(solved.rho_y)
    variation_x, variation_y = _variation(r, a, rho_x), _variation(c, b, rho_y)
    dual = _conjugate(f, a, rho_x) + _conjugate(g, b, rho_y)
    return Decomposition(
        transport=transport,
        complexity=complexity,
        variation_x=variation_x,
        variation_y=variation_y,
        total=transport + complexity + variation_x + variation_y,
        dual=dual - loss,
        mass=mass,
    )


def generalized_kl(p: np.ndarray, q: np.ndarray) -> float:
    """Return sum p log(p/q) - p + q for p >= 0 and q > 0."""
    p, q = np.asarray(p, np.float64), np.asarray(q, np.float64)
    ratio = np.where(p > 0, p / q, 1)
    return float(np.sum(p * np.log(ratio) - p + q))


def _duals(solved: Unbalanced) -> tuple[np.ndarray, ...]:
    """Return a, b and the potentials of the plan's density against ab^T, float64."""
    a, b = np.asarray(solved.a, np.float64), np.asarray(solved.b, np.float64)
    epsilon = float(solved.epsilon)
    f = np.asarray(solved.f, np.float64) - epsilon * np.log(a)
    g = np.asarray(solved.g, np.float64) - epsilon * np.log(b)
    return a, b, f, g


def _variation(sums: np.ndarray, target: np.ndarray, rho: float) -> float:
    return rho * generalized_kl(sums, target) if np.isfinite(rho) else 0.0


def _conjugate(potential: np.ndarray, weights: np.ndarray, rho: float) -> float:
    """Return -rho <a, exp(-f/rho) - 1>, which is <a, f> for an infinite rho."""
    if not np.isfinite(rho):
        return float(weights @ potential)
    return float(-rho * (weights @ np.expm1(-potential / rho)))
