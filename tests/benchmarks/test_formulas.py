"""Exponents of known laws; counted operations against XLA's; times of other devices."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import analytic
import growth
import jax
import jax.numpy as jnp
import pytest
from flops import coupling_iteration, distillation_step

from anchordot_jax import distillation as dist
from anchordot_jax import files, geometry
from anchordot_jax.students import init_params

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"


def test_exponents_of_known_laws() -> None:
    sizes = [100, 200, 400, 1600]
    square = growth.exponent((n, 3e-6 * n**2) for n in sizes)
    assert square == pytest.approx(2, abs=1e-9)
    assert growth.exponent((n, 5.0) for n in sizes) == pytest.approx(0, abs=1e-9)
    noisy = [(n, n * (1 + 0.1 * (-1) ** k)) for k, n in enumerate(sizes)]
    assert growth.exponent(noisy) == pytest.approx(1, abs=0.1)


def test_one_size_has_no_exponent() -> None:
    assert growth.exponent([]) is None
    assert growth.exponent([(5, 1.0), (5, 2.0)]) is None
    assert growth.exponent([(5, 1.0), (10, 0.0)]) is None


def xla_flops(work: Callable[..., Any], *arrays: Any) -> float:
    """Return the operations that XLA counts in a compiled program."""
    analysis = jax.jit(work).lower(*arrays).compile().cost_analysis()
    assert analysis is not None
    return float(analysis["flops"])


def test_an_iteration_computes_the_cost_twice() -> None:
    n, m, r = 300, 200, 96
    counted = xla_flops(geometry.cost_block, jnp.ones((n, r)), jnp.ones((m, r)))
    # XLA counts the subtraction from 1, too.
    assert coupling_iteration(n, m, r) == pytest.approx(2 * counted, rel=2e-2)


@pytest.mark.parametrize(
    ("b", "c", "d_x", "d_y", "k", "share"),
    [
        # The norms by the Gram matrix on no side, on the shorter one, on both; and the
        # shorter input first.
        (128, 96, 255, 191, 128, 0.95),
        (256, 256, 320, 63, 256, 0.94),
        (512, 512, 127, 95, 512, 0.86),
        (256, 192, 63, 255, 256, 0.93),
    ],
)
def test_a_step_needs_what_xla_counts(
    b: int, c: int, d_x: int, d_y: int, k: int, share: float
) -> None:
    params = init_params(d_x, d_y, k, temperature=0.07, key=jax.random.key(0))
    sides = jnp.ones((b, d_x)), jnp.ones((c, d_y))
    targets = jnp.full((b, c), 1 / c), jnp.full((b, c), 1 / b)

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        logits = dist.pair_logits(params, x, y)
        return dist.soft_contrastive_loss(logits, *targets)

    # A small share of softmaxes, LayerNorms and norms comes on top of the products.
    counted = xla_flops(jax.value_and_grad(loss), params, *sides)
    needed = distillation_step(b, c, d_x + 1, d_y + 1, k, 0)
    assert share * counted < needed <= counted


def test_the_target_is_one_product_more() -> None:
    sizes = (100, 80, 51, 41, 32)
    more = distillation_step(*sizes, 7) - distillation_step(*sizes, 0)
    assert more == 2 * 100 * 80 * 7


def test_expected_times_of_many_devices() -> None:
    device = analytic.Device("some", 1e13, 1e12, 80e9, 1e11)
    one = analytic.iteration(device, 1_000_000, 1_000_000, 384)
    many = analytic.iteration(device, 1_000_000, 1_000_000, 384, devices=8)
    assert one.flops == 4e12 * 384
    assert one.least == pytest.approx(one.flops / 1e13)
    assert one.sent == 0 < many.sent
    assert many.flops == one.flops / 8
    assert many.resident < one.resident < 4e12
    assert one.least <= one.most
    double = analytic.iteration(device, 2_000_000, 1_000_000, 384)
    assert double.flops == 2 * one.flops
    # Twice the rows on one side: less than twice what is held, never n m.
    assert double.resident < 2 * one.resident


def test_measured_times_follow_the_formula() -> None:
    """Of the stored results: times of the formula's order, and the same growth."""
    rates = files.read_json(RESULTS / "floors.json", "The floors")
    with (RESULTS / "coupling.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["warm_seconds"]]
    by_rank: dict[int, list[tuple[int, float, float]]] = {}
    for row in rows:
        # Of fewer than two whole tiles XLA takes the cost out of the iterations.
        if row["implementation"] != "ours-streamed" or int(row["n"]) < 3000:
            continue
        n, m, r, count = (int(row[name]) for name in ("n", "m", "r", "iterations"))
        seconds = float(row["warm_seconds"]) - float(row["profile_seconds"])
        formula = analytic.solve_seconds(
            n, m, r, count, flops=rates["tile_rate"], bandwidth=rates["read_rate"]
        )
        # The exponentials are not counted, and rates differ from minute to minute.
        assert 0.1 < seconds / formula < 8, row
        by_rank.setdefault(r, []).append((n * m, seconds / count, formula / count))
    assert by_rank
    for points in by_rank.values():
        measured = growth.exponent((size, seconds) for size, seconds, _ in points)
        expected = growth.exponent((size, formula) for size, _, formula in points)
        if measured is not None:
            assert measured == pytest.approx(expected, abs=0.3)
