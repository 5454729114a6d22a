"""A few seconds' test of the method's steps on a planted problem.

Two linear views of one latent space, whose right answers are known. It finds what an
installation can break: wrong linear algebra, products at reduced precision, a
transport that depends on how its cost is computed.
"""

import dataclasses
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchordot_jax import coupling, geometry, profiles
from anchordot_jax.config import CouplingConfig

N_ANCHORS, N_POOL_X, N_POOL_Y, N_TEST = 48, 300, 260, 200
DIM_X, DIM_Y, LATENT, NOISE = 40, 28, 12, 0.05
GAMMA, ETA = 0.75, 0.05

LEAST_FOUND = 0.95
"""Recall@1 of the anchors among themselves; on a sound machine it is 1."""
FROM_CHANCE = 4.0
"""Standard deviations of a random recall@10 that shuffled anchors may be above it."""
TOLERANCE = 1e-5
POTENTIALS = 1e-3
"""Largest difference of (f_i + g_j) / epsilon, which is the factor of a plan's entry
less 1."""
PRODUCTS = 1e-5
"""Largest error of a full-precision product of unit rows. TF32's is 1e-3."""

STORED = 1 << 30


class Check(NamedTuple):
    """One check's outcome."""

    name: str
    ok: bool
    found: str
    """What was measured, and what it should be."""
    seconds: float


class _Problem(NamedTuple):
    anchors_x: np.ndarray
    anchors_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    pool_x: np.ndarray
    pool_y: np.ndarray


def run_selftest() -> list[Check]:
    """Return the outcome of every check."""
    given = _planted()
    checks = []
    for name, check in (
        ("float32 products", _products),
        ("anchors find themselves", _anchors),
        ("shuffled anchors are at chance", _shuffled),
        ("streamed transport equals stored", _streamed),
    ):
        start = time.perf_counter()
        ok, found = check(given)
        checks.append(Check(name, ok, found, time.perf_counter() - start))
    return checks


def _planted() -> _Problem:
    """Return noisy linear views of latent points; row k of the two sides are partners.

    The pools share no item.
    """
    draws = np.random.default_rng(0)
    views = draws.normal(size=(LATENT, DIM_X)), draws.normal(size=(LATENT, DIM_Y))

    def view(latent: np.ndarray, side: int) -> np.ndarray:
        seen = latent @ views[side]
        return (seen + NOISE * draws.normal(size=seen.shape)).astype(np.float32)

    anchors, test, pool_x, pool_y = (
        draws.normal(size=(n, LATENT)) for n in (N_ANCHORS, N_TEST, N_POOL_X, N_POOL_Y)
    )
    return _Problem(
        view(anchors, 0),
        view(anchors, 1),
        view(test, 0),
        view(test, 1),
        view(pool_x, 0),
        view(pool_y, 1),
    )


def _recall(
    x: np.ndarray, y: np.ndarray, maps: profiles.CoordinateMaps, k: int
) -> float:
    """Return the share of rows whose partner has one of the k largest cosines."""
    u, v = profiles.coordinates(x, y, maps)
    scores = np.asarray(u, np.float64) @ np.asarray(v, np.float64).T
    better = (scores > np.diag(scores)[:, None]).sum(axis=1)
    return float((better < k).mean())


def _maps(x: np.ndarray, y: np.ndarray) -> profiles.CoordinateMaps:
    return profiles.coordinate_maps(profiles.fit_basis(x), profiles.fit_basis(y), GAMMA)


def _products(given: _Problem) -> tuple[bool, str]:
    """Check a full-precision product of unit rows against float64."""
    rows = np.asarray(profiles.normalize(given.pool_x))
    ours = jnp.matmul(rows, rows.T, precision=jax.lax.Precision.HIGHEST)
    exact = rows.astype(np.float64) @ rows.astype(np.float64).T
    error = float(np.abs(np.asarray(ours, np.float64) - exact).max())
    return error <= PRODUCTS, f"error {error:.1e}, at most {PRODUCTS:g}"


def _anchors(given: _Problem) -> tuple[bool, str]:
    """Check that each anchor's profile is nearest to its own partner's."""
    maps = _maps(given.anchors_x, given.anchors_y)
    found = _recall(given.anchors_x, given.anchors_y, maps, 1)
    return found >= LEAST_FOUND, f"recall@1 {found:.2f}, at least {LEAST_FOUND:g}"


def _shuffled(given: _Problem) -> tuple[bool, str]:
    """Check that wrong pairs carry nothing over to other items, and right ones do."""
    right = _recall(
        given.test_x, given.test_y, _maps(given.anchors_x, given.anchors_y), 10
    )
    order = np.random.default_rng(1).permutation(N_ANCHORS)
    wrong = _recall(
        given.test_x, given.test_y, _maps(given.anchors_x, given.anchors_y[order]), 10
    )
    chance = 10 / N_TEST
    most = chance + FROM_CHANCE * float(np.sqrt(chance * (1 - chance) / N_TEST))
    return wrong <= most < right, (
        f"recall@10 {wrong:.2f}, at most {most:.2f}; with the right pairs {right:.2f}"
    )


def _streamed(given: _Problem) -> tuple[bool, str]:
    """Check that both ways of computing the cost lead to one plan, and converge."""
    maps = _maps(given.anchors_x, given.anchors_y)
    x, y = profiles.coordinates(given.pool_x, given.pool_y, maps)
    median = geometry.sampled_median_cost(x, y, key=jax.random.key(0))
    settings = CouplingConfig(cost_memory=0, tolerance=TOLERANCE)
    solved = [
        coupling.solve_coupling(x, y, ETA * median, config=config)
        for config in (settings, dataclasses.replace(settings, cost_memory=STORED))
    ]
    sums = [np.add.outer(np.asarray(s.f), np.asarray(s.g)) for s in solved]
    epsilon = float(solved[0].epsilon)
    difference = float(np.abs(sums[0] - sums[1]).max()) / epsilon
    converged = all(bool(one.converged) for one in solved)
    found = f"potentials differ by {difference:.1e} epsilon, at most {POTENTIALS:g}"
    if not converged:
        found += "; the transport did not converge"
    return converged and difference <= POTENTIALS, found
