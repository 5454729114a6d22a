"""Seconds of the students of many seeds, one by one and in one program.

The bundled clip art: one split, one plan, and a key a seed for the students' first
weights; the chunks and their order are the same for all seeds, or each seed's own.
The first run of each way compiles and is told apart. Prints the largest difference
between the parameters of both ways, too.

    python benchmarks/many_seeds.py --seeds 16 --pool 300 --dim 128 --epochs 50
"""

import dataclasses
import functools
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import tyro

import anchordot_jax as ad
from anchordot_jax import distillation, geometry, many_seeds


@dataclasses.dataclass(frozen=True)
class Args:
    """Sizes of the problem."""

    seeds: int = 16
    """Number of seeds."""
    anchors: int = 300
    """Known pairs."""
    pool: int = 300
    """Rows of each pool."""
    dim: int = 128
    """Dimension of the shared space."""
    epochs: int = 50
    """Passes over the pools."""
    repeats: int = 3
    """Timed runs of each way, of which the fastest counts."""


def problem(args: Args) -> tuple[distillation.Pools, distillation.Anchors]:
    """Return pools with their plan, and anchors, of the bundled clip art."""
    art = ad.load_openclipart()
    split = ad.protocol_split(len(art.image), seed=0, anchors=args.anchors, test=400)
    anchors = distillation.Anchors(
        jnp.asarray(art.image[split.anchors[:, 0]]),
        jnp.asarray(art.text[split.anchors[:, 1]]),
    )
    x = jnp.asarray(art.image[split.pool_x[: args.pool]])
    y = jnp.asarray(art.text[split.pool_y[: args.pool]])
    maps = ad.coordinate_maps(ad.fit_basis(anchors.x), ad.fit_basis(anchors.y), 0.75)
    z_x, z_y = ad.coordinates(x, y, maps)
    median = geometry.sampled_median_cost(z_x, z_y, key=jax.random.key(0))
    solved = ad.solve_coupling(z_x, z_y, 0.02 * median)
    pools = distillation.Pools(x, y, z_x, z_y, solved.f, solved.g, solved.epsilon)
    return pools, anchors


class Timing(NamedTuple):
    """Seconds of some runs, compilation in the first only."""

    first: float
    wall: float
    """Least of the runs after the first."""
    cpu: float
    """Least of the processor's seconds, all cores together."""


def timed(work: Callable[[], Any], repeats: int) -> tuple[Timing, Any]:
    """Return the seconds of some work, and what it returned."""
    walls, cpus = [], []
    for _ in range(1 + repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        done = jax.block_until_ready(work())
        walls.append(round(time.perf_counter() - wall, 2))
        cpus.append(round(time.process_time() - cpu, 2))
    return Timing(walls[0], min(walls[1:]), min(cpus[1:])), done


def main(args: Args) -> None:
    """Time both ways and print one JSON object."""
    pools, anchors = problem(args)
    config = ad.DistillationConfig(dim=args.dim, epochs=args.epochs)
    keys = jax.random.split(jax.random.key(1), args.seeds)
    orders = jax.random.split(jax.random.key(2), args.seeds)

    def one_by_one(orders: list[jax.Array]) -> list[Any]:
        return [
            distillation.train(
                pools, anchors, config=config, key_students=key, key_chunks=order
            ).params
            for key, order in zip(keys, orders, strict=True)
        ]

    def together(order: jax.Array) -> Any:
        return many_seeds.train_many(
            pools, anchors, config=config, keys_students=keys, key_chunks=order
        )

    results = dataclasses.asdict(args) | {"backend": jax.default_backend()}
    for name, order, list_of_orders in (
        ("one order for all", orders[0], [orders[0]] * args.seeds),
        ("an order a seed", orders, list(orders)),
    ):
        alone = functools.partial(one_by_one, list_of_orders)
        seconds_alone, singles = timed(alone, args.repeats)
        many = functools.partial(together, order)
        seconds_many, stacked = timed(many, args.repeats)
        differences = jax.tree.map(
            lambda a, b: float(jnp.max(jnp.abs(a - b))),
            many_seeds.unstack(stacked),
            singles,
        )
        results[name] = {
            "one by one": seconds_alone._asdict(),
            "in one program": seconds_many._asdict(),
            "largest difference": max(jax.tree.leaves(differences)),
        }
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(tyro.cli(Args))
