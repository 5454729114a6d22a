"""Figure 7: recall of methods without any pair, beside AnchorDOT's with N = 500.

    python experiments/figure7_zero_pairs.py --data flickr8k \
        --data-folder ../shared/data

Gromov-Wasserstein, Wasserstein Procrustes, iterative closest point and mini-vec2vec see
the two pools alone. The paper (Flickr30k): all three of its methods are near random
(mini-vec2vec is not in it). Expected here: the same; of 400 test pairs random recall@10
is 2.5 %.

Default: pools of 1,000, 3 seeds, the short schedules, about 4 minutes on 2 CPU cores,
AnchorDOT's fits shared with figure 2. `--full`: all pool rows, the full schedules.
"""

import dataclasses
import functools
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

from anchordot_jax.baselines.registry import METHODS
from anchordot_jax.comparison.named import TEST
from anchordot_jax.evaluation import chance_recall

NAME = "figure7_zero_pairs"
WITHOUT = ("gromov-wasserstein", "wasserstein-procrustes", "icp", "mini-vec2vec")
CUTS = (1, 5, 10)


@dataclasses.dataclass(frozen=True)
class Args(fits.PooledOptions):
    """What to run."""

    data: str = "flickr8k"
    methods: tuple[str, ...] = (*WITHOUT, "anchordot")
    anchors: int = 500
    """N of the methods that use pairs."""


def main(args: Args) -> None:
    """Run what is missing, then write the table and the figure."""
    with one_sentence():
        grid = fits.fit_grid(
            args,
            data=[args.data],
            methods=args.methods,
            anchors=[args.anchors],
            pool=args.pools,
        )
    run = functools.partial(fits.run, folder=args.data_folder, out=args.out)
    records = run_grid(grid, run, args, grouping=fits_together.grouping(run, args))
    write_results(NAME, records, args.docs)
    draw(records, args.docs)


def draw(records: list[dict[str, Any]], docs: Path) -> None:
    """Draw the recalls of every method with the line of chance, and print them."""
    (data,) = distinct(records, "data")
    methods = distinct(records, "method")
    figure, panels = new_figure(2, height=3.6)
    for axes, way in zip(panels, ("x2y", "y2x"), strict=True):
        for number, k in enumerate(CUTS):
            found = mean_and_deviation(records, ("method",), f"{way}/recall@{k}")
            axes.bar(
                [place + 0.27 * number for place in range(len(methods))],
                [100 * found[method,][0] for method in methods],
                0.27,
                yerr=[100 * found[method,][1] for method in methods],
                color=COLOURS[number],
                label=f"recall@{k}",
                error_kw={"linewidth": 0.8},
            )
            shown = ", ".join(
                f"{method} {100 * found[method,][0]:.1f}" for method in methods
            )
            print(f"{data}, {way} R@{k} (%): {shown}")
        axes.axhline(
            100 * chance_recall(TEST, 1, CUTS[-1]),
            color="black",
            linewidth=0.8,
            linestyle="--",
            label="recall@10 of chance",
        )
        titles = [METHODS[method].title for method in methods]
        axes.set_xticks(
            [place + 0.27 for place in range(len(methods))],
            titles,
            rotation=25,
            ha="right",
            fontsize=7,
        )
        axes.set_title(f"{data}: {way}", fontsize=8)
    panels[0].set_ylabel("recall, %", fontsize=8)
    panels[0].legend(fontsize=7)
    save_figure(figure, NAME, docs)


if __name__ == "__main__":
    main(tyro.cli(Args))
