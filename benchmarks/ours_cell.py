"""Solve one stored problem with this package and print what it took.

    python benchmarks/ours_cell.py pools.npz --gamma 0.75 --epsilon 0.01 --cost-memory 0

The call that is timed begins with anchors and pools: the anchors' singular value
decompositions, the pools' coordinates, then the coupling.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from measuring import Solved, column_error, report, start


def main() -> None:
    """Read the arguments, solve twice and print."""
    began = start()
    parser = argparse.ArgumentParser()
    parser.add_argument("inputs", type=Path)
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--gamma", type=float, required=True)
    parser.add_argument("--cost-memory", type=int, required=True)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--max-iterations", type=int, default=1000)
    parser.add_argument("--limit", type=float, default=float("inf"))
    args = parser.parse_args()

    from anchordot_jax import (
        CouplingConfig,
        coordinate_maps,
        coordinates,
        fit_basis,
        solve_coupling,
    )

    with np.load(args.inputs) as arrays:
        inputs = {name: arrays[name] for name in arrays}
    config = CouplingConfig(
        cost_memory=args.cost_memory,
        tolerance=args.tolerance,
        max_iterations=args.max_iterations,
    )

    def sides() -> tuple:
        bases = fit_basis(inputs["anchors_x"]), fit_basis(inputs["anchors_y"])
        maps = coordinate_maps(*bases, args.gamma)
        z_x, z_y = coordinates(inputs["pool_x"], inputs["pool_y"], maps)
        return z_x, z_y.block_until_ready()

    def solve() -> Solved:
        clock = time.perf_counter()
        z_x, z_y = sides()
        profiles = time.perf_counter() - clock
        solved = solve_coupling(z_x, z_y, args.epsilon, config=config)
        f, g = np.asarray(solved.f), np.asarray(solved.g)
        # A plain iteration comes before the counted ones.
        parts = {
            "profile": profiles,
            "solve": time.perf_counter() - clock - profiles,
        }
        return Solved(f, g, int(solved.n_iterations) + 1, parts)

    def error(solved: Solved) -> float:
        z_x, z_y = (np.asarray(side) for side in sides())
        return column_error(z_x, z_y, solved.f, solved.g, args.epsilon)

    report(solve, error, limit=args.limit, began=began)


if __name__ == "__main__":
    main()
