"""Iterations and seconds of one coupling under each way to start and to accelerate.

Command:

    python benchmarks/coupling_settings.py --data-folder ../shared/data

Pools of a split of the real data, 500 anchors. Every row solves the same problem to the
same tolerance. The settings take turns, after a first solve that compiles; of the
repeats the smallest CPU time is printed. The start is part of the time. `off` is how
far the potentials are from those of the first row, at most, as a share of epsilon.
"""

import dataclasses
import time
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import tyro

from anchordot_jax import (
    CouplingConfig,
    coordinate_maps,
    coordinates,
    fit_basis,
    load_dataset,
    protocol_split,
    solve_coupling,
)
from anchordot_jax.coupling import Coupling
from anchordot_jax.geometry import sampled_median_cost

PLAIN = {"overrelaxation": 1.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "omega 1.5": {},
    "omega 1": PLAIN,
    "anderson 3": {**PLAIN, "anderson": 3},
    "anderson 5": {**PLAIN, "anderson": 5},
    "anderson 8": {**PLAIN, "anderson": 8},
    "from epsilon": {"warm_start": "epsilon"},
    "from subsample": {"warm_start": "subsample"},
}


@dataclasses.dataclass(frozen=True)
class Args:
    """What to solve."""

    data_folder: Path
    dataset: Literal["flickr8k", "chebi20"] = "flickr8k"
    gamma: float = 0.75
    etas: tuple[float, ...] = (0.02, 0.005)
    stored: tuple[float, ...] = (1.0, 0.5, 0.0)
    """Shares of the cost that are stored."""
    settings: tuple[str, ...] = tuple(SETTINGS)
    """Rows of the table."""
    repeats: int = 3
    anchors: int = 500


def problem(args: Args) -> tuple[jax.Array, jax.Array]:
    """Return the coordinates of both pools."""
    x, y = load_dataset(args.dataset, args.data_folder).read()
    split = protocol_split(len(x), seed=0, anchors=args.anchors, test=400)
    x, y = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (x, y))
    bases = [
        fit_basis(side[split.anchors[:, k]].astype(np.float32))
        for k, side in enumerate((x, y))
    ]
    pools = [
        side[rows].astype(np.float32)
        for side, rows in ((x, split.pool_x), (y, split.pool_y))
    ]
    return coordinates(*pools, coordinate_maps(*bases, args.gamma))


def cases(args: Args, entries: int) -> dict[str, CouplingConfig]:
    """Return the configs by the name of their row."""
    return {
        f"{100 * share:.0f} % stored | {name}": CouplingConfig(
            cost_memory=int(4 * share * entries), **SETTINGS[name]
        )
        for share in args.stored
        for name in args.settings
    }


def off(solved: Coupling, expected: Coupling) -> float:
    """Return the largest difference of the potentials, up to their free constant."""
    f, g = (
        np.asarray(getattr(solved, side), np.float64)
        - np.asarray(getattr(expected, side), np.float64)
        for side in ("f", "g")
    )
    shift = f.mean()
    most = max(np.abs(f - shift).max(), np.abs(g + shift).max())
    return float(most / float(solved.epsilon))


def main(args: Args) -> None:
    """Solve each case in turn, and print a table for every eta."""
    x, y = problem(args)
    configs = cases(args, len(x) * len(y))
    print(f"{args.dataset}: pools {len(x)} x {len(y)}, r = {x.shape[1]}")
    for eta in args.etas:
        epsilon = eta * sampled_median_cost(x, y, key=jax.random.key(1))
        best: dict[str, float] = dict.fromkeys(configs, np.inf)
        solved: dict[str, Coupling] = {}
        for repeat in range(args.repeats + 1):
            for name, config in configs.items():
                start = time.process_time()
                result = solve_coupling(x, y, epsilon, config=config)
                result.f.block_until_ready()
                if repeat:
                    best[name] = min(best[name], time.process_time() - start)
                solved[name] = result
        first = next(iter(solved.values()))
        print(f"\neta {eta}\n\n| cost | setting | iterations | error | CPU s | off |")
        print("| --- | --- | ---: | ---: | ---: | ---: |")
        for name, result in solved.items():
            mark = "" if bool(result.converged) else " (not converged)"
            print(
                f"| {name} | {int(result.n_iterations)}{mark} | "
                f"{float(result.marginal_error):.1e} | {best[name]:.2f} | "
                f"{off(result, first):.1e} |",
                flush=True,
            )


if __name__ == "__main__":
    main(tyro.cli(Args))
