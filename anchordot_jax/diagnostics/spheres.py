"""Two clouds on the sphere with a gap made to measure (UOT-Gap, Section 5.3)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from anchordot_jax.diagnostics.decomposition import (
    Decomposition,
    decompose,
    plan_rows,
)
from anchordot_jax.diagnostics.pairs import mean_gap
from anchordot_jax.diagnostics.settings import UnbalancedConfig
from anchordot_jax.diagnostics.unbalanced import solve_unbalanced


class SpherePoint(NamedTuple):
    """One setting of a sweep and what was measured there."""

    separation: float
    """Angle between the two clouds' directions, in radians."""
    spread_x: float
    spread_y: float
    mean_gap: float
    terms: Decomposition


def sphere_cloud(
    n: int, direction: np.ndarray, spread: float, *, rng: np.random.Generator
) -> np.ndarray:
    """Return n unit rows (u + spread z / sqrt d), normalised, with z standard normal.

    Args:
        n: rows.
        direction: unit vector u `[d]`.
        spread: length of the typical noise beside u's 1; 0 is one point.
        rng: source of z.
    """
    noise = rng.normal(size=(n, len(direction))) / np.sqrt(len(direction))
    rows = direction + spread * noise
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def sphere_clouds(
    n: int,
    dim: int,
    *,
    separation: float,
    spread_x: float,
    spread_y: float,
    mirrored: bool = False,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return two clouds whose directions are `separation` radians apart.

    Args:
        n: rows of each.
        dim: dimensions, at least 2.
        separation: angle between the directions, in radians.
        spread_x: noise of the first cloud, see `sphere_cloud`.
        spread_y: noise of the second.
        mirrored: add each row's negative too (2 n rows). Both centroids are then zero
            and the mean gap with them, whatever else differs.
        seed: fixes the draws.
    """
    rng = np.random.default_rng(seed)
    first, second = np.eye(dim)[:2]
    other = np.cos(separation) * first + np.sin(separation) * second
    x = sphere_cloud(n, first, spread_x, rng=rng)
    y = sphere_cloud(n, other, spread_y, rng=rng)
    if mirrored:
        x, y = np.concatenate([x, -x]), np.concatenate([y, -y])
    return x, y


def sweep_spheres(
    settings: Sequence[tuple[float, float, float]],
    *,
    n: int = 500,
    dim: int = 32,
    mirrored: bool = False,
    seed: int = 0,
    config: UnbalancedConfig | None = None,
) -> list[SpherePoint]:
    """Return the mean gap and the decomposition at each (separation, spreads)."""
    points = []
    for separation, spread_x, spread_y in settings:
        x, y = sphere_clouds(
            n,
            dim,
            separation=separation,
            spread_x=spread_x,
            spread_y=spread_y,
            mirrored=mirrored,
            seed=seed,
        )
        solved = solve_unbalanced(x, y, config=config)
        terms = decompose(solved, plan_rows(solved, x, y))
        points.append(
            SpherePoint(separation, spread_x, spread_y, mean_gap(x, y), terms)
        )
    return points
