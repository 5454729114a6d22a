"""Times against the floors set by arithmetic and memory traffic on this machine.

    python benchmarks/floors.py --data-folder ../shared/data --out runs/benchmark

The rates are measured in the same process, in turn with what they are the floor of, the
fastest of several counting for both: a float32 product of the streamed tile's shape,
one of the students' largest, and reading as many bytes as a stored cost. The results
are written after each part. About three minutes on two CPU cores.
"""

import dataclasses
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import machine
import tyro
from floors_table import page
from flops import coupling_iteration, distillation_step
from output import DOCS, one_sentence, write_markdown
from problem import ETA, Problem, draw, gamma_of, parse_size
from processes import available_cores

from anchordot_jax import (
    Config,
    Coupling,
    CouplingConfig,
    DistillationConfig,
    InputError,
    coordinate_maps,
    coordinates,
    files,
    fit_basis,
    solve_coupling,
)
from anchordot_jax import distillation as dist
from anchordot_jax.geometry import sampled_median_cost
from anchordot_jax.selection import select
from anchordot_jax.tiles import tile_shape

# No error is that small, so that all iterations are made.
NEVER = 1e-30
ITERATIONS = 20


@dataclasses.dataclass(frozen=True)
class Args:
    """What to time."""

    data_folder: Path
    """Where the data sets' files lie."""
    data: str = "flickr8k"
    size: str = "3600"
    """Rows of both pools."""
    anchors: tuple[int, int] = (500, 5000)
    """Numbers of anchors that the coupling's growth is taken from; the first one holds
    for all else."""
    dim: int = 1024
    """Dimension of the shared space."""
    epochs: int = 200
    """Epochs of the distillation that the selection is compared with."""
    timed_epochs: int = 3
    """Epochs timed; the others take as long."""
    docs: Path = DOCS
    """Folder of the results."""


def main(args: Args) -> None:
    """Time everything, and write floors.json and floors.md."""
    with one_sentence():
        if args.timed_epochs < 1 or args.epochs < 1:
            raise InputError("--epochs and --timed-epochs must be at least 1.")
        about = machine.describe(len(available_cores()))
        few, many = (prepare(args, count) for count in args.anchors)
        results: dict[str, Any] = {
            "machine": about,
            "settings": {
                "data": args.data,
                "size": args.size,
                "anchors": list(args.anchors),
                "r": few.x.shape[1],
                "epochs": args.epochs,
                "dim": args.dim,
            },
        }
        parts = (
            lambda: coupling_floors(few),
            lambda: {"growth": growth(few, many)},
            lambda: {"epoch": epoch_floor(few, args)},
            lambda: {"selection": selection_time(few, args, results["epoch"])},
        )
        for part in parts:
            results |= part()
            files.write_json(args.docs / "floors.json", results)
            write_markdown("floors", page(results), args.docs)


class Timed(NamedTuple):
    """One problem and its coordinates."""

    problem: Problem
    x: jax.Array
    y: jax.Array
    epsilon: jax.Array

    @property
    def cost_bytes(self) -> int:
        """Bytes of the whole cost."""
        return 4 * len(self.x) * len(self.y)


def prepare(args: Args, anchors: int) -> Timed:
    """Return one problem with its coordinates and epsilon."""
    problem = draw(args.data, args.data_folder, parse_size(args.size), anchors)
    bases = fit_basis(problem.anchors_x), fit_basis(problem.anchors_y)
    maps = coordinate_maps(*bases, gamma_of(args.data))
    x, y = coordinates(problem.pool_x, problem.pool_y, maps)
    median = sampled_median_cost(x, y, key=jax.random.key(0))
    return Timed(problem, x, y, ETA * median)


def solve(timed: Timed, **settings: Any) -> Coupling:
    """Return the coupling by some settings, once it is there."""
    config = CouplingConfig(**settings)
    solved = solve_coupling(timed.x, timed.y, timed.epsilon, config=config)
    return jax.block_until_ready(solved)


def coupling_floors(timed: Timed) -> dict[str, Any]:
    """Return both forms' seconds an iteration beside their floors."""
    n, (m, r) = len(timed.x), timed.y.shape
    rows, columns = tile_shape(m)
    own = {"tolerance": NEVER, "max_iterations": ITERATIONS}
    product = machine.product_work(rows, r, columns)
    streamed = machine.seconds_in_turn(
        {"solve": lambda: solve(timed, cost_memory=0, **own), "product": product}
    )
    reads = machine.read_works(n, m)
    cached = machine.seconds_in_turn(
        {"solve": lambda: solve(timed, cost_memory=timed.cost_bytes, **own), **reads}
    )
    rate = 2 * rows * r * columns / streamed["product"]
    read = timed.cost_bytes / min(cached[name] for name in reads)
    # A plain iteration comes before the counted ones.
    return {
        "tile_rate": rate,
        "read_rate": read,
        "streamed": {
            "seconds": streamed["solve"] / (ITERATIONS + 1),
            "floor": coupling_iteration(n, m, r) / rate,
        },
        "cached": {
            "seconds": cached["solve"] / (ITERATIONS + 1),
            "floor": 2 * timed.cost_bytes / read,
        },
    }


def growth(few: Timed, many: Timed) -> dict[str, Any]:
    """Return the seconds of whole solves with few and with many anchors, in turn."""
    grown: dict[str, Any] = {}
    for name, memory in (("streamed", 0), ("cached", few.cost_bytes)):
        works = {
            size: lambda timed=timed, memory=memory: solve(timed, cost_memory=memory)
            for size, timed in (("few", few), ("many", many))
        }
        seconds = machine.seconds_in_turn(works, repeats=3)
        grown[name] = [
            {"seconds": seconds[size], "iterations": int(work().n_iterations) + 1}
            for size, work in works.items()
        ]
    return grown


def epoch_floor(timed: Timed, args: Args) -> dict[str, Any]:
    """Return the rate of an epoch's products beside that of one product alone."""
    problem = timed.problem
    solved = solve(timed)
    config = DistillationConfig(dim=args.dim, epochs=args.epochs)
    pools = dist.Pools(
        *(jax.device_put(pool) for pool in (problem.pool_x, problem.pool_y)),
        *(timed.x, timed.y, solved.f, solved.g, solved.epsilon),
    )
    anchors = dist.Anchors(
        *(jax.device_put(side) for side in (problem.anchors_x, problem.anchors_y))
    )
    chunks = dist.plan_chunks(
        len(pools.x), len(pools.y), len(anchors.x), config.chunk_size
    )
    state = dist.init_training(
        pools.x.shape[1],
        pools.y.shape[1],
        config,
        total_steps=config.epochs * chunks.steps,
        key=jax.random.key(0),
    )
    columns = pools.x.shape[1] + 1, pools.y.shape[1] + 1
    work = chunks.pool_steps * distillation_step(
        chunks.size_x, chunks.size_y, *columns, config.dim, timed.x.shape[1]
    )
    work += chunks.anchor_steps * distillation_step(
        chunks.anchor_size, chunks.anchor_size, *columns, config.dim, 0
    )
    shape = chunks.size_x, max(columns), config.dim
    product = machine.product_work(*shape)
    epochs, products = [], []
    for _ in range(1 + args.timed_epochs):
        clock = time.perf_counter()
        state, metrics = dist.train_epoch(
            state, pools, anchors, config=config, chunks=chunks, key=jax.random.key(1)
        )
        jax.block_until_ready(metrics)
        epochs.append(time.perf_counter() - clock)
        products.append(machine.seconds_of(product, repeats=1))
    epoch = min(epochs[1:])
    return {
        "seconds": epoch,
        "first_seconds": epochs[0],
        "steps": chunks.steps,
        "flops": work,
        "rate": work / epoch,
        "matmul_shape": list(shape),
        "matmul_rate": 2 * math.prod(shape) / min(products),
    }


def selection_time(timed: Timed, args: Args, epoch: dict[str, Any]) -> dict[str, Any]:
    """Return the selection's seconds beside those of a distillation."""
    problem = timed.problem
    clock = time.perf_counter()
    chosen = select(
        *(problem.anchors_x, problem.anchors_y, problem.pool_x, problem.pool_y),
        Config(recipe="paper"),
        key=jax.random.key(2),
    )
    whole = epoch["first_seconds"] + (args.epochs - 1) * epoch["seconds"]
    return {
        "seconds": time.perf_counter() - clock,
        "candidates": len(chosen.curve),
        "distillation_seconds": whole,
    }


if __name__ == "__main__":
    main(tyro.cli(Args))
