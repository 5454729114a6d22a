"""Figure 10: fused Gromov-Wasserstein, recall as the weight of the structures falls.

    python experiments/figure10_fused_gw.py --data flickr8k chebi20 \
        --data-folder ../shared/data

alpha weighs the cost between anchor profiles, 1 - alpha the term that keeps each
side's own distances; alpha = 1 is AnchorDOT's coupling, alpha = 0 uses no pair in the
plan, while the students learn the anchors too at any alpha. The paper (Flickr30k, no
figures printed): recall rises with alpha, and no structure term ever improves it. The
start, the product of the marginals, and the costs' scales, their means, are not in the
paper; the problem is not convex.

With the default sizes about 10 minutes on 2 CPU cores; `--full` takes 2,000 rows of
each pool, the paper's schedule and 5 seeds, hours on a CPU.
"""

import functools

import couplings
import tyro
from couplings import LEVELS, Couplings, print_means
from findings import difference, judge, write_findings
from results import (
    COLOURS,
    MARKERS,
    mean_and_deviation,
    new_figure,
    run_grid,
    save_figure,
    write_results,
)

from anchordot_jax.comparison.named import TEST
from anchordot_jax.evaluation import chance_recall

NAME = "figure10_fused_gw"
ALPHAS = (0.0, 0.25, 0.5, 0.75, 0.9)
"""Beside 1, AnchorDOT's own coupling, whose cells Figures 8 and 9 share."""
CLAIM = "A term that keeps each side's own distances never improves recall."


def main(args: Couplings) -> None:
    """Run what is missing, then write table, figure and finding."""
    args = args.sized(full_pool=2000)
    grid = couplings.grid(args, "fused", alphas=ALPHAS)
    grid += couplings.grid(args, "profile")
    run = functools.partial(couplings.run, folder=args.data_folder)
    records = run_grid(grid, run, args)
    write_results(NAME, records, args.docs)
    figure, panels = new_figure(len(LEVELS) * len(args.data))
    places = [(data, level) for data in args.data for level in LEVELS]
    for axes, (data, level) in zip(panels, places, strict=True):
        for number, k in enumerate((1, 5, 10)):
            found = mean_and_deviation(
                records, ("data", "alpha"), f"{level}/recall@{k}"
            )
            # The profile's cells have no alpha: theirs is 1.
            points = sorted(
                (1.0 if key[1] is None else key[1], *value)
                for key, value in found.items()
                if key[0] == data
            )
            axes.errorbar(
                [alpha for alpha, _, _ in points],
                [100 * mean for _, mean, _ in points],
                [100 * deviation for _, _, deviation in points],
                color=COLOURS[number],
                marker=MARKERS[number],
                label=f"R@{k}",
                linewidth=1,
            )
        axes.axhline(
            100 * chance_recall(TEST, 1, 10),
            color="black",
            linewidth=0.8,
            linestyle=":",
            label="R@10 of chance",
        )
        axes.set_xlabel("alpha, weight of the profile cost", fontsize=8)
        axes.set_title(f"{data}: {level}, recall in %", fontsize=8)
    panels[0].legend(fontsize=8, loc="lower right")
    save_figure(figure, NAME, args.docs)
    print_means(records, ("data", "coupling", "alpha"))
    differences = [
        difference(
            records,
            {"data": data, "coupling": "fused", "alpha": alpha},
            {"data": data, "coupling": "profile"},
            f"{level}/recall@10",
            what=f"{data}, {level}: alpha {alpha:g} less alpha 1",
            scale=100,
        )
        for data in args.data
        for level in LEVELS
        for alpha in ALPHAS
    ]
    unit = "recall@10, points"
    write_findings(
        NAME, [judge(CLAIM, differences, stated="not higher", unit=unit)], args.docs
    )


if __name__ == "__main__":
    main(tyro.cli(Couplings))
