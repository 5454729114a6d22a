"""Figure 3: recall@10 against the overlap of the two pools.

    python experiments/figure3_overlap.py --data flickr8k --data-folder ../shared/data

The overlap o is the share of the x pool whose partner is in the y pool, unknown to the
methods; N = 500, the pools' sizes, the x pool and the test items stay the same. The
paper (Flickr30k): essentially unchanged from o = 0 to o = 1 for SUE, SOTAlign and
AnchorDOT. Expected here: the same.

Default: o = 0, 0.5, 1, pools of 1,000, 5 seeds, the short schedule, about 20 minutes
on 2 CPU cores. `--full`: six overlaps, all pool rows, the full schedule.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import fits
import fits_together
import tyro
from results import (
    curves,
    distinct,
    mean_and_deviation,
    new_figure,
    one_sentence,
    run_grid,
    save_figure,
    write_results,
)

NAME = "figure3_overlap"
VALUE = "mean/recall@10"
SMALL, FULL = (0.0, 0.5, 1.0), (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclasses.dataclass(frozen=True)
class Args(fits.PooledOptions):
    """What to run."""

    data: str = "flickr8k"
    methods: tuple[str, ...] = ("sue", "sotalign", "anchordot")
    seeds: int = 5
    """Seeds 0, 1, ...; three do not tell two points of recall apart."""
    anchors: int = 500
    overlap: tuple[float, ...] = ()
    """Values of o; none: three, or with --full six."""


def main(args: Args) -> None:
    """Run what is missing, then write the table and the figure."""
    with one_sentence():
        grid = fits.fit_grid(
            args,
            data=[args.data],
            methods=args.methods,
            anchors=[args.anchors],
            pool=args.pools,
            overlap=args.overlap or (FULL if args.full else SMALL),
        )
    run = functools.partial(fits.run, folder=args.data_folder, out=args.out)
    records = run_grid(grid, run, args, grouping=fits_together.grouping(run, args))
    write_results(NAME, records, args.docs)
    draw(records, args.docs)


def draw(records: list[dict[str, Any]], docs: Path) -> None:
    """Draw a line a method over the overlap, and print it."""
    (data,), (n,) = distinct(records, "data"), distinct(records, "anchors")
    done = [record for record in records if record["status"] == "done"]
    rows = sorted({record["result"]["pool_x"] for record in done})
    figure, (axes,) = new_figure(1)
    curves(axes, records, "overlap", VALUE)
    axes.set_ylim(bottom=0)
    axes.set_title(f"{data}, N = {n}, pools of {rows[-1]:,}", fontsize=8)
    axes.set_xlabel("overlap o of the pools", fontsize=8)
    axes.set_ylabel("recall@10, mean of both ways, %", fontsize=8)
    axes.legend(fontsize=7)
    save_figure(figure, NAME, docs)
    for (method, overlap), (mean, deviation) in sorted(
        mean_and_deviation(records, ("method", "overlap"), VALUE).items()
    ):
        print(
            f"{data}, overlap {overlap:g}: {method} R@10 {100 * mean:.1f} "
            f"({100 * deviation:.1f}) %"
        )


if __name__ == "__main__":
    main(tyro.cli(Args))
