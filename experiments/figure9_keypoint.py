"""Figure 9: the keypoint-guided relation cost against anchor profiles.

    python experiments/figure9_keypoint.py --data flickr8k chebi20 \
        --data-folder ../shared/data

An item's relation is a softmax of its distances to the anchors with temperature tau,
and the cost is the Jensen-Shannon divergence of relations (Gu et al., 2022), without
their mask. tau is chosen by the ranks of held-out anchors in the plan; the plan's
recall over tau is shown beside it. The paper (Flickr30k and MS-COCO, no figures
printed): similar skewness, and a slightly lower recall@10 than the profiles'.

With the default sizes about 3 minutes on 2 CPU cores, less after Figure 8, whose cells
it shares; `--full` takes hours on a CPU.
"""

import functools

import couplings
import tyro
from couplings import LEVELS, Couplings, draw_bars, draw_sweep, print_means
from findings import difference, judge, write_findings
from results import new_figure, run_grid, save_figure, write_results

from anchordot_jax.baselines.plans.couplings import TAUS

NAME = "figure9_keypoint"
CLAIM = "The relation cost does no better than the anchor profiles."


def main(args: Couplings) -> None:
    """Run what is missing, then write table, figure and finding."""
    args = args.sized()
    profile = couplings.grid(args, "profile")
    keypoint = couplings.grid(args, "keypoint", taus=("auto",))
    sweep = couplings.grid(args, "keypoint", taus=sorted(TAUS), students=False)
    run = functools.partial(couplings.run, folder=args.data_folder)
    records = run_grid([*profile, *keypoint, *sweep], run, args)
    write_results(NAME, records, args.docs)
    fitted, swept = records[: -len(sweep)], records[-len(sweep) :]
    figure, panels = new_figure(3 * len(args.data))
    for place, data in enumerate(args.data):
        recall, hubs, taus = panels[3 * place : 3 * place + 3]
        draw_bars(recall, fitted, data, "recall@10")
        draw_bars(hubs, fitted, data, "hubness_skewness@10")
        draw_sweep(taus, swept, data, "tau", label="keypoint", number=1)
    panels[0].legend(fontsize=8)
    save_figure(figure, NAME, args.docs)
    print_means(fitted, ("data", "coupling"))
    for record in fitted:
        if record["status"] == "done" and record["result"]["tau_used"] is not None:
            settings = record["settings"]
            tau = record["result"]["tau_used"]
            print(f"{settings['data']}, seed {settings['seed']}: tau {tau:g} chosen")
    differences = [
        difference(
            fitted,
            {"data": data, "coupling": "keypoint"},
            {"data": data, "coupling": "profile"},
            f"{level}/recall@10",
            what=f"{data}, {level}: keypoint less profile",
            scale=100,
        )
        for data in args.data
        for level in LEVELS
    ]
    unit = "recall@10, points"
    write_findings(
        NAME, [judge(CLAIM, differences, stated="not higher", unit=unit)], args.docs
    )


if __name__ == "__main__":
    main(tyro.cli(Couplings))
