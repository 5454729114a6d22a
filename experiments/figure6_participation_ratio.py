"""Figure 6: participation ratio of the profiles as gamma goes from 0 to 2, by N.

    python experiments/figure6_participation_ratio.py --data flickr8k \
        --data-folder ../shared/data

The paper (Flickr30k, N = 500, 2000, 4000): it rises with gamma where anchors are many;
at N = 500, about the dimension, it peaks near gamma = 1.5 and drops, because the
smallest eigenvalues are badly estimated. Expected here: the same drop at N = 500 on the
384-dimensional side. A second of processor time a cell.
"""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import tyro
from results import (
    COLOURS,
    MARKERS,
    Options,
    distinct,
    mean_and_deviation,
    new_figure,
    run_grid,
    save_figure,
    write_results,
)

from anchordot_jax import fit_basis, profile
from anchordot_jax.comparison.named import named_problem
from anchordot_jax.evaluation import participation_ratio
from anchordot_jax.runs import cells

NAME = "figure6_participation_ratio"
GAMMAS = tuple(k / 4 for k in range(9))


@dataclasses.dataclass(frozen=True)
class Args(Options):
    """What to run."""

    data: str = "flickr8k"
    anchors: tuple[int, ...] = (500, 2000, 4000)
    seeds: int = 3


def run(settings: Mapping[str, Any], *, folder: Path) -> dict[str, float]:
    """Return both sides' participation ratio over the pools and their dimensions."""
    problem = named_problem(
        settings["data"], folder, anchors=settings["anchors"], seed=settings["seed"]
    )
    ratios = {}
    for side, anchors, pool in zip("xy", problem.anchors, problem.pools, strict=True):
        found = profile(jnp.asarray(pool), fit_basis(anchors), settings["gamma"])
        ratios[f"participation_{side}"] = participation_ratio(found)
        ratios[f"dimension_{side}"] = pool.shape[1]
    return ratios


def main(args: Args) -> None:
    """Run what is missing, then write the table and the figure."""
    grid = cells.grid(
        NAME,
        data=[args.data],
        anchors=args.anchors,
        gamma=GAMMAS,
        seed=range(args.seeds),
    )
    records = run_grid(grid, functools.partial(run, folder=args.data_folder), args)
    write_results(NAME, records, args.docs)
    draw(records, args.docs)


def draw(records: list[dict[str, Any]], docs: Path) -> None:
    """Draw and print a panel an N: the ratio over gamma, a line a side."""
    (data,) = distinct(records, "data")
    sizes = distinct(records, "anchors")
    figure, panels = new_figure(len(sizes))
    for axes, n in zip(panels, sizes, strict=True):
        for number, side in enumerate("xy"):
            found = mean_and_deviation(
                records, ("anchors", "gamma"), f"participation_{side}"
            )
            values = [found[n, gamma][0] for gamma in GAMMAS]
            axes.plot(
                GAMMAS,
                values,
                color=COLOURS[number],
                marker=MARKERS[number],
                label=side,
            )
            highest = GAMMAS[values.index(max(values))]
            print(
                f"{data}, N = {n}, {side}: "
                + " ".join(f"{v:.0f}" for v in values)
                + f"; highest at gamma = {highest:g}"
            )
        axes.set_title(f"{data}, N = {n}", fontsize=8)
        axes.set_xlabel("gamma", fontsize=8)
    panels[0].set_ylabel("participation ratio", fontsize=8)
    panels[0].legend(fontsize=8)
    save_figure(figure, NAME, docs)


if __name__ == "__main__":
    main(tyro.cli(Args))
