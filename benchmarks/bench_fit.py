"""Timings of a distillation epoch (one step) and of the choice of gamma and eta."""

from collections.abc import Callable
from typing import Any

import jax
import pytest
from views import Planted, planted

from anchordot_jax import Config, DistillationConfig, SelectionConfig, solve_coupling
from anchordot_jax import distillation as dist
from anchordot_jax.selection import select


@pytest.fixture(scope="module")
def problem() -> Planted:
    """Return the problem that all timings share."""
    return planted(1000)


def test_distillation_step(benchmark: Callable[..., Any], problem: Planted) -> None:
    solved = solve_coupling(problem.x, problem.y, problem.epsilon)
    pools = dist.Pools(
        *(problem.pool_x, problem.pool_y, problem.x, problem.y),
        *(solved.f, solved.g, solved.epsilon),
    )
    # No anchors: the epoch is one step on one chunk.
    nobody = dist.Anchors(problem.pool_x[:0], problem.pool_y[:0])
    config = DistillationConfig(chunk_size=1000, dim=256)
    chunks = dist.plan_chunks(len(problem.x), len(problem.y), 0, config.chunk_size)
    state = dist.init_training(
        problem.pool_x.shape[1],
        problem.pool_y.shape[1],
        config,
        total_steps=config.epochs * chunks.steps,
        key=jax.random.key(0),
    )

    def step() -> Any:
        nonlocal state
        state, metrics = dist.train_epoch(
            state, pools, nobody, config=config, chunks=chunks, key=jax.random.key(1)
        )
        return jax.block_until_ready(metrics)

    assert chunks.steps == 1
    first = step()
    last = benchmark.pedantic(step, rounds=5)
    assert last.pool_loss < first.pool_loss


def test_selection(benchmark: Callable[..., Any], problem: Planted) -> None:
    config = Config(
        recipe="paper",
        selection=SelectionConfig(gammas=(0.5, 1.0), etas=(0.02, 0.1), min_heldout=10),
    )

    def choose() -> Any:
        return select(
            *(problem.anchors_x, problem.anchors_y, problem.pool_x, problem.pool_y),
            config,
            key=jax.random.key(0),
        )

    choose()
    assert len(benchmark.pedantic(choose, rounds=3).curve) == 4
