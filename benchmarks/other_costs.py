"""Time and memory of the costs that are no matrix product.

Command (about 20 seconds on 2 CPU cores):

    python benchmarks/other_costs.py --n 5000 --m 5000 --anchors 500

The bridge cost takes n m N additions and minima, the keypoint-guided relation cost as
many logarithms. Neither is ever whole: the peak is that of the process and must stay
below the limit. Each cost is computed in a process of its own.
"""

import dataclasses
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable

import jax
import tyro

from anchordot_jax.costs.bridge import bridge_cost
from anchordot_jax.costs.keypoint import relation, relation_cost

GIGA = 1e9


@dataclasses.dataclass(frozen=True)
class Args:
    """What to compute."""

    n: int = 5000
    m: int = 5000
    anchors: int = 500
    tau: float = 0.05
    limit: float = 2.0
    """Gigabytes that the process may take at its peak."""
    seed: int = 0


def distances(args: Args) -> list[jax.Array]:
    """Return random distances of both sides to the anchors."""
    keys = jax.random.split(jax.random.key(args.seed))
    sizes = (args.n, args.m)
    return [
        jax.random.uniform(key, (rows, args.anchors))
        for key, rows in zip(keys, sizes, strict=True)
    ]


def bridge(args: Args) -> jax.Array:
    """Return the bridge cost."""
    return bridge_cost(*distances(args))


def keypoint(args: Args) -> jax.Array:
    """Return the relation cost."""
    x, y = distances(args)
    return relation_cost(relation(x, args.tau), relation(y, args.tau))


COSTS: dict[str, Callable[[Args], jax.Array]] = {
    "bridge": bridge,
    "keypoint": keypoint,
}


def measure(name: str, args: Args) -> bool:
    """Print one cost's figures; return whether its memory is below the limit."""
    start, cpu = time.perf_counter(), time.process_time()
    COSTS[name](args).block_until_ready()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIGA
    terms = args.n * args.m * args.anchors
    print(
        f"{name} {args.n} x {args.m} x {args.anchors}: {seconds:.1f} s with "
        f"compilation ({terms / seconds / GIGA:.2f} G terms/s), {cpu:.1f} s of CPU "
        f"time, peak {peak:.2f} GB (limit {args.limit:g} GB)",
        flush=True,
    )
    return peak <= args.limit


def main(args: Args) -> None:
    """Measure each cost; exit with 1 if one took too much memory."""
    spawn = multiprocessing.get_context("spawn")
    ok = True
    for name in COSTS:
        with spawn.Pool(1) as pool:
            ok &= pool.apply(measure, (name, args))
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main(tyro.cli(Args))
