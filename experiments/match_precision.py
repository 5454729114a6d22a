"""Is the expected precision of `anchordot match` what the matches turn out to be?

Command (about a minute a cell on 2 CPU cores; finished cells are kept in --out):

    python experiments/match_precision.py --data-folder ../shared/data \
        --out runs/matches

500 anchors; the pools are all other rows of both sides but 400, so that every item's
partner is in the other pool, and nobody is told which it is. gamma is 1 on chebi20 and
0.75 on flickr8k, eta 0.02. The expected precision comes from held-out anchors alone.
"""

import dataclasses
import functools
from pathlib import Path

import numpy as np
import tyro
from results import finished_cells

from anchordot_jax import Config, load_dataset
from anchordot_jax.fit_inputs import FitData
from anchordot_jax.fitted.pool_matches import find_matches
from anchordot_jax.selection import Selection

GAMMAS = {"chebi20": 1.0, "flickr8k": 0.75}
ETA = 0.02
ANCHORS, LEFT_OUT = 500, 400
TOPS = (50, 100, 200, 500)


@dataclasses.dataclass(frozen=True)
class Args:
    """What to run."""

    data_folder: Path
    """Folder of chebi20.h5 and flickr8k.h5."""
    out: Path = Path("runs/matches")
    """Folder of the finished cells, one JSON file each."""
    datasets: tuple[str, ...] = ("chebi20", "flickr8k")
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)


def run_cell(data_folder: Path, dataset: str, seed: int) -> dict[str, list[float]]:
    """Return expected and true precision of the first matches, by their number."""
    gamma = GAMMAS[dataset]
    x, y = load_dataset(dataset, data_folder).read()
    order = np.random.default_rng(seed).permutation(len(x))
    anchors, pool = order[:ANCHORS], np.sort(order[ANCHORS + LEFT_OUT :])
    found = find_matches(
        FitData(x[anchors], y[anchors], x[pool], y[pool]),
        Config(recipe="paper", seed=seed, gamma=gamma, eta=ETA),
        Selection(gamma, ETA, (), 0, "given"),
    )
    matches, precision = found.matches, found.precision
    mutual = matches.mutual
    right = (matches.x == matches.y)[mutual]
    expected = np.asarray(precision)[mutual]
    results = {
        str(top): [float(expected[:top].mean()), float(right[:top].mean())]
        for top in TOPS
    }
    results["all"] = [float(expected.mean()), float(right.mean())]
    results["counts"] = [int(mutual.sum()), len(pool)]
    return results


def print_table(dataset: str, cells: list[dict[str, list[float]]]) -> None:
    """Print one data set's table, the mean over the seeds."""
    mutual, pool = np.mean([cell["counts"] for cell in cells], axis=0)
    print(f"\n{dataset}, {len(cells)} seeds: {mutual:.0f} mutual of {pool:.0f}\n")
    print("| first matches | expected, % | right, % |")
    print("| --- | --- | --- |")
    for top in (*map(str, TOPS), "all"):
        shown = 100 * np.array([cell[top] for cell in cells])
        deviation = shown.std(axis=0, ddof=1) if len(cells) > 1 else 0 * shown[0]
        figures = [
            f"{mean:.1f} ({std:.1f})"
            for mean, std in zip(shown.mean(axis=0), deviation, strict=True)
        ]
        print(f"| {top} | {' | '.join(figures)} |")


def main(args: Args) -> None:
    """Run what is missing, then print the tables."""
    run = functools.partial(run_cell, args.data_folder)
    cells = finished_cells(args.out, args.datasets, args.seeds, run)
    for dataset in args.datasets:
        print_table(dataset, [cells[dataset, seed] for seed in args.seeds])


if __name__ == "__main__":
    main(tyro.cli(Args))
