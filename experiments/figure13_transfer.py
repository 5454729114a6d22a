"""Figure 13: a model fitted on one data set, evaluated on another.

    python experiments/figure13_transfer.py --data flickr8k openclipart \
        --data-folder ../shared/data

Each method is fitted on N = 500 anchors and the pools of one set, and its recall@10
measured on 400 test pairs of the same set and of each other one, without any change.
The paper (MS-COCO to Flickr30k, recall@10): AnchorDOT 59.7 %, SOTAlign 56.7 %, SUE
24.3 %, three quarters of what they have within Flickr30k, in the same order. For it:
`--data mscoco flickr30k --full --seeds 5`. The sets need the same encoders; flickr8k
has photographs and openclipart drawings, which is a larger step than the paper's.

Default: pools of 1,000 (openclipart: 943), 3 seeds, the short schedule; about 8 minutes
on 2 CPU cores after figures 2 and 3, whose fits it shares, else 15.
"""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fits
import fits_together
import tyro
from results import (
    COLOURS,
    distinct,
    mean_and_deviation,
    new_figure,
    one_sentence,
    run_grid,
    save_figure,
    write_results,
)

from anchordot_jax import InputError
from anchordot_jax.baselines.registry import METHODS
from anchordot_jax.comparison.cell import score
from anchordot_jax.comparison.named import TEST
from anchordot_jax.evaluation import chance_recall
from anchordot_jax.runs import cells

NAME = "figure13_transfer"
VALUE = "mean/recall@10"
COMPARED = ("sue", "sotalign", "ridge-cca", "anchordot", "anchordot-refined")


@dataclasses.dataclass(frozen=True)
class Args(fits.PooledOptions):
    """What to run."""

    data: tuple[str, ...] = ("flickr8k", "openclipart")
    """Each is fitted on, and each is evaluated on."""
    methods: tuple[str, ...] = COMPARED
    anchors: int = 500


def run(settings: Mapping[str, Any], *, folder: Path, out: Path) -> dict[str, float]:
    """Return the recalls on the target's test items of a fit on the cell's data.

    Raises:
        InputError: the target's embeddings have other dimensions.
    """
    problem = fits.problem_of(settings, folder)
    target = fits.problem_of({**settings, "data": settings["target"]}, folder)
    own, other = (
        (part.test_x.shape[1], part.test_y.shape[1]) for part in (problem, target)
    )
    if own != other:
        raise InputError(
            f"{settings['data']} has {own[0]} and {own[1]} columns, and "
            f"{settings['target']} {other[0]} and {other[1]}: a model goes over to a "
            f"set of the same encoders only; choose another --data."
        )
    return fits.recalls(score(fits.scorer_of(settings, problem, out), target))


def main(args: Args) -> None:
    """Run what is missing, then write the table and the figure."""
    with one_sentence():
        fitted = fits.fit_grid(
            args,
            data=args.data,
            methods=args.methods,
            anchors=[args.anchors],
            pool=args.pools,
        )
    grid = [
        cells.Cell(NAME, cell.settings | {"target": target})
        for cell in fitted
        for target in args.data
    ]
    call = functools.partial(run, folder=args.data_folder, out=args.out)
    records = run_grid(grid, call, args, grouping=fits_together.grouping(call, args))
    write_results(NAME, records, args.docs)
    draw(records, args.docs)


def draw(records: list[dict[str, Any]], docs: Path) -> None:
    """Draw a panel a target: bars of each method by what it was fitted on; print."""
    targets, methods = distinct(records, "target"), distinct(records, "method")
    found = mean_and_deviation(records, ("data", "target", "method"), VALUE)
    figure, panels = new_figure(len(targets), height=3.6)
    for axes, target in zip(panels, targets, strict=True):
        for number, data in enumerate(distinct(records, "data")):
            # What was refused or has failed leaves its place empty.
            known = [own for own in methods if (data, target, own) in found]
            values = [found[data, target, method] for method in known]
            axes.bar(
                [methods.index(method) + 0.4 * number for method in known],
                [100 * mean for mean, _ in values],
                0.4,
                yerr=[100 * deviation for _, deviation in values],
                color=COLOURS[number],
                label=f"fitted on {data}",
                error_kw={"linewidth": 0.8},
            )
            for method, (mean, deviation) in zip(known, values, strict=True):
                own, _ = found.get((target, target, method), (0.0, 0.0))
                kept = f", {mean / own:.2f} of its own there" if own else ""
                print(
                    f"{data} to {target}: {method} R@10 {100 * mean:.1f} "
                    f"({100 * deviation:.1f}) %{kept}"
                )
        axes.set_xticks(
            [place + 0.2 for place in range(len(methods))],
            [METHODS[method].title for method in methods],
            rotation=25,
            ha="right",
            fontsize=7,
        )
        axes.axhline(
            100 * chance_recall(TEST, 1, 10),
            color="black",
            linewidth=0.8,
            linestyle="--",
            label="chance",
        )
        axes.set_title(f"evaluated on {target}", fontsize=8)
        axes.legend(fontsize=7)
    panels[0].set_ylabel("recall@10, mean of both ways, %", fontsize=8)
    save_figure(figure, NAME, docs)


if __name__ == "__main__":
    main(tyro.cli(Args))
