"""Figure 2: recall@10 against the number of anchors N and against the pool's size.

    python experiments/figure2_anchors_and_pool.py --data flickr8k \
        --data-folder ../shared/data

(a) the full range of N at a small pool, (b) the low range, (c) the size of the pool at
N = 500; test items are the same within a panel, and so are the pools in (a) and (b).
The paper (Flickr30k, pools of 14.5 thousand): in (a) AnchorDOT and contrastive training
come together from N = 8,000 on, at about 90 %; in (c) AnchorDOT rises from about 63 %
with 100 unpaired items to 80 % with 30,000. Expected here: the same two trends, at
other values. (b) has all six methods of Table 1 with `--methods`.

Default: pools of 1,000, 3 seeds, the short schedule (students of 256 dimensions), about
30 minutes on 2 CPU cores. `--full` has the paper's range as far as the data reach, all
pool rows and the full schedule. With --out shared, figures 3, 5 and 7 find fits here.
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

from anchordot_jax import load_dataset
from anchordot_jax.comparison.named import TEST

NAME = "figure2_anchors_and_pool"
VALUE = "mean/recall@10"
METHODS = ("contrastive", "ridge-cca", "anchordot", "anchordot-refined")
SMALL = {"low": (100, 200, 500), "high": (500, 1000, 2000, 4000)}
FULL = {
    "low": (50, 100, 200, 300, 400, 500),
    "high": (500, 1000, 2000, 4000, 8000, 16000),
}
POOLS: tuple[int, ...] = (100, 300, 1000, 2000)
LEFT = TEST + 200
"""Pairs that the largest N leaves: the test pairs, and 100 rows of each pool."""
FULL_POOLS = (100, 300, 1000, 3000, 10000)


@dataclasses.dataclass(frozen=True)
class Args(fits.FitOptions):
    """What to run."""

    data: str = "flickr8k"
    methods: tuple[str, ...] = METHODS
    low: tuple[int, ...] = ()
    """N of panel (b); none: the small grid's, or with --full the paper's range."""
    high: tuple[int, ...] = ()
    """N of panel (a)."""
    pool: tuple[int, ...] = ()
    """Pool sizes of panel (c), the largest that the data have besides with --full."""
    fixed: int = 1000
    """Pool size of panels (a) and (b) without --full."""


def main(args: Args) -> None:
    """Run what is missing, then write the table and the figure."""
    sizes = FULL if args.full else SMALL
    low = args.low or sizes["low"]
    with one_sentence():
        pairs = len(load_dataset(args.data, args.data_folder).pairs)
    high = args.high or tuple(n for n in sizes["high"] if n <= pairs - LEFT)
    pools: tuple[int | None, ...] = args.pool or (
        (*FULL_POOLS, None) if args.full else POOLS
    )
    fixed = None if args.full else args.fixed
    panel = functools.partial(
        fits.fit_grid, args, data=[args.data], methods=args.methods
    )
    with one_sentence():
        cells = [
            *panel(anchors=low, pool=[fixed]),
            *panel(anchors=[max(low)], pool=pools),
            *panel(anchors=high, pool=[fixed]),
        ]
    grid = list({str(cell): cell for cell in cells}.values())
    run = functools.partial(fits.run, folder=args.data_folder, out=args.out)
    records = run_grid(grid, run, args, grouping=fits_together.grouping(run, args))
    write_results(NAME, records, args.docs)
    draw(records, args.docs)


def panels_of(records: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the cells of each panel: (a) high N, (b) low N, (c) pool sizes.

    (a) sets most anchors aside. Of the others (b) has the pool of the smallest N, and
    (c) the largest N.
    """
    done = [record for record in records if record["status"] == "done"]
    most = max(record["settings"]["reserved"] for record in done)
    a = [record for record in done if record["settings"]["reserved"] == most]
    low = [r for r in done if r["settings"]["reserved"] < most] or done
    smallest = min(low, key=lambda record: record["settings"]["anchors"])
    pool = smallest["settings"]["pool"]
    largest = max(record["settings"]["anchors"] for record in low)
    return {
        "a": a,
        "b": [record for record in low if record["settings"]["pool"] == pool],
        "c": [record for record in low if record["settings"]["anchors"] == largest],
    }


def draw(records: list[dict[str, Any]], docs: Path) -> None:
    """Draw the three panels, and print what is in them."""
    found = panels_of(records)
    (data,) = distinct(records, "data")
    schedule = distinct(records, "schedule")[0]
    figure, axes = new_figure(3)
    for own, (name, cells) in zip(axes, found.items(), strict=True):
        along = "rows" if name == "c" else "anchors"
        # Where all rows are taken the setting is empty: the rows are counted.
        placed = [
            r | {"settings": r["settings"] | {"rows": r["result"]["pool_x"]}}
            for r in cells
        ]
        curves(own, placed, along, VALUE)
        own.set_xscale("log")
        own.minorticks_off()
        ticks = distinct(placed, along)
        own.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=7)
        rows = distinct(placed, "rows")
        fixed = (
            f"N = {distinct(cells, 'anchors')[0]}"
            if name == "c"
            else f"pools of {', '.join(f'{size:,}' for size in rows)}"
        )
        own.set_title(f"({name}) {data}, {fixed}", fontsize=8)
        own.set_xlabel("rows of each pool" if name == "c" else "N", fontsize=8)
        for (method, place), (mean, deviation) in sorted(
            mean_and_deviation(placed, ("method", along), VALUE).items()
        ):
            print(
                f"({name}) {data}, {schedule} schedule, {along} {place}: {method} "
                f"R@10 {100 * mean:.1f} ({100 * deviation:.1f}) %"
            )
    axes[0].set_ylabel("recall@10, mean of both ways, %", fontsize=8)
    axes[0].legend(fontsize=7)
    save_figure(figure, NAME, docs)


if __name__ == "__main__":
    main(tyro.cli(Args))
