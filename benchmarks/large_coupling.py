"""Time and memory of one streamed coupling of large pools.

Command (about 4 minutes on 2 CPU cores):

    python benchmarks/large_coupling.py --n 50000 --m 50000

Synthetic embeddings: a shared latent space seen through two random maps with noise. The
cost is never stored. Printed beside the time is the floor of its own arithmetic:
4 n m r floating-point operations an iteration at this machine's measured rate of a
matrix product of the tile's shape.
"""

import dataclasses
import json
import time

import jax
import jax.numpy as jnp
import tyro
from flops import coupling_iteration
from machine import matmul_rate
from measuring import GIGA, peak_bytes, resident, start

from anchordot_jax import (
    CouplingConfig,
    coordinate_maps,
    coordinates,
    fit_basis,
    solve_coupling,
)
from anchordot_jax.geometry import sampled_median_cost
from anchordot_jax.tiles import tile_shape


@dataclasses.dataclass(frozen=True)
class Args:
    """What to solve."""

    n: int = 50_000
    m: int = 50_000
    dim: int = 384
    """Dimension of both sides' embeddings."""
    anchors: int = 100
    eta: float = 0.02
    max_iterations: int = 1000
    check_every: int = 10
    seed: int = 0
    json: bool = False
    """Print one JSON object instead, for memory.py."""


def embeddings(args: Args) -> tuple[jax.Array, ...]:
    """Return anchors and pools of both sides."""
    keys = jax.random.split(jax.random.key(args.seed), 6)
    latent = args.dim // 4
    maps = [jax.random.normal(key, (latent, args.dim)) for key in keys[:2]]

    def draw(key: jax.Array, rows: int) -> jax.Array:
        return jax.random.normal(key, (rows, latent))

    shared = draw(keys[2], args.anchors)
    noise = 0.5 * jax.random.normal(keys[3], (args.anchors, latent))
    anchors = shared @ maps[0], (shared + noise) @ maps[1]
    return *anchors, draw(keys[4], args.n) @ maps[0], draw(keys[5], args.m) @ maps[1]


def main(args: Args) -> None:
    """Solve and print."""
    start()
    jax.block_until_ready(jnp.ones(1))
    held = resident()
    anchors_x, anchors_y, pool_x, pool_y = embeddings(args)
    maps = coordinate_maps(fit_basis(anchors_x), fit_basis(anchors_y), 0.75)
    x, y = coordinates(pool_x, pool_y, maps)
    del pool_x, pool_y
    epsilon = args.eta * sampled_median_cost(x, y, key=jax.random.key(1))
    config = CouplingConfig(
        cost_memory=0,
        max_iterations=args.max_iterations,
        check_every=args.check_every,
    )
    clock = time.perf_counter()
    solved = solve_coupling(x, y, epsilon, config=config)
    solved.f.block_until_ready()
    seconds = time.perf_counter() - clock
    # A plain iteration comes before the counted ones.
    iterations = int(solved.n_iterations) + 1
    peak = peak_bytes()
    if args.json:
        told = {
            "r": x.shape[1],
            "iterations": iterations,
            "seconds": seconds,
            "start_gigabytes": held / GIGA,
            "peak_gigabytes": peak / GIGA,
        }
        print(json.dumps(told))
        return
    flops = coupling_iteration(args.n, args.m, x.shape[1])
    rows, columns = tile_shape(args.m)
    rate = matmul_rate(rows, x.shape[1], columns)
    print(f"pools {args.n} x {args.m}, r = {x.shape[1]}, {jax.devices()[0]}")
    print(
        f"{iterations} iterations, marginal error {float(solved.marginal_error):.1e}, "
        f"converged {bool(solved.converged)}"
    )
    print(f"{seconds:.1f} s in all with compilation, {seconds / iterations:.2f} s each")
    print(
        f"floor of the arithmetic: {flops / rate:.2f} s an iteration "
        f"({flops / GIGA:.0f} GFLOP at {rate / GIGA:.0f} GFLOP/s)"
    )
    print(f"peak memory of the process: {peak / GIGA:.2f} GB")
    print(f"a stored cost would take {4 * args.n * args.m / GIGA:.1f} GB")


if __name__ == "__main__":
    main(tyro.cli(Args))
