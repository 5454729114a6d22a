"""Timings of the half-iteration and of whole solves.

    python -m pytest benchmarks --benchmark-only

Needs pytest-benchmark (pip install 'anchordot-jax[benchmark]').
"""

from collections.abc import Callable
from typing import Any

import jax
import pytest
from views import Planted, planted

from anchordot_jax import CouplingConfig, solve_coupling
from anchordot_jax.geometry import ProfileGeometry, cost_block

ROWS = 2000
STORED = {"streamed": False, "cached": True}


@pytest.fixture(scope="module")
def problem() -> Planted:
    """Return the problem that all timings share."""
    return planted(ROWS)


@pytest.mark.parametrize("form", STORED)
def test_half_iteration(
    benchmark: Callable[..., Any], problem: Planted, form: str
) -> None:
    cost = cost_block(problem.x, problem.y) if STORED[form] else None
    geometry = ProfileGeometry(problem.x, problem.y, epsilon=problem.epsilon, cost=cost)

    @jax.jit
    def half(geometry: ProfileGeometry, f: jax.Array, g: jax.Array) -> jax.Array:
        return geometry.apply_lse_kernel(f, g, geometry.epsilon, axis=1)[0]

    solved = solve_coupling(problem.x, problem.y, problem.epsilon)
    out = benchmark(lambda: half(geometry, solved.f, solved.g).block_until_ready())
    assert out.shape == (ROWS,)


@pytest.mark.parametrize("form", STORED)
def test_solve(benchmark: Callable[..., Any], problem: Planted, form: str) -> None:
    config = CouplingConfig(cost_memory=4 * ROWS**2 if STORED[form] else 0)

    def solve() -> Any:
        solved = solve_coupling(problem.x, problem.y, problem.epsilon, config=config)
        return jax.block_until_ready(solved)

    assert solve().converged
    benchmark.pedantic(solve, rounds=3)
