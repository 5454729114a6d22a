"""Figure 8: the bridge cost against anchor profiles, recall@10 and hubness.

    python experiments/figure8_bridge.py --data flickr8k chebi20 \
        --data-folder ../shared/data

The bridge cost is the shortest way from an item to an item through one anchor; all
else is AnchorDOT's own. The paper (Flickr30k and MS-COCO, no figures printed): similar
skewness, and a recall@10 that is considerably lower. Shown beside it: the plan's
recall over eta, as eta is in units of another cost's median.

With the default sizes about 4 minutes on 2 CPU cores; `--full` takes hours on a CPU.
"""

import functools

import couplings
import tyro
from couplings import ETA, LEVELS, Couplings, draw_bars, draw_sweep, print_means
from findings import difference, judge, write_findings
from results import new_figure, run_grid, save_figure, write_results

NAME = "figure8_bridge"
ETAS = (0.005, 0.01, 0.02, 0.05)
COSTS = ("profile", "bridge")
CLAIM = "The bridge cost has a lower recall@10 than the anchor profiles."


def main(args: Couplings) -> None:
    """Run what is missing, then write table, figure and finding."""
    args = args.sized()
    grid = [cell for name in COSTS for cell in couplings.grid(args, name)]
    sweep = [
        cell
        for name in COSTS
        for cell in couplings.grid(args, name, etas=ETAS, students=False)
    ]
    run = functools.partial(couplings.run, folder=args.data_folder)
    records = run_grid([*grid, *sweep], run, args)
    write_results(NAME, records, args.docs)
    fitted, swept = records[: len(grid)], records[len(grid) :]
    figure, panels = new_figure(3 * len(args.data))
    for place, data in enumerate(args.data):
        recall, hubs, etas = panels[3 * place : 3 * place + 3]
        draw_bars(recall, fitted, data, "recall@10")
        draw_bars(hubs, fitted, data, "hubness_skewness@10")
        for number, name in enumerate(COSTS):
            own = [r for r in swept if r["settings"]["coupling"] == name]
            draw_sweep(etas, own, data, "eta", label=name, number=number)
    panels[0].legend(fontsize=8)
    save_figure(figure, NAME, args.docs)
    print_means(fitted, ("data", "coupling"))
    differences = [
        difference(
            fitted,
            {"data": data, "coupling": "bridge", "eta": ETA},
            {"data": data, "coupling": "profile", "eta": ETA},
            f"{level}/recall@10",
            what=f"{data}, {level}: bridge less profile",
            scale=100,
        )
        for data in args.data
        for level in LEVELS
    ]
    unit = "recall@10, points"
    write_findings(
        NAME, [judge(CLAIM, differences, stated="lower", unit=unit)], args.docs
    )


if __name__ == "__main__":
    main(tyro.cli(Couplings))
