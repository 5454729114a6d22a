"""Every method on every data set at hand, N = 500 (300) and 100 anchors, 5 seeds.

Command (a folder of chebi20.h5, flickr8k.h5 and openclipart.h5; finished cells are kept
in --out and skipped the next time, so it can be stopped and resumed):

    python experiments/all_methods.py --data-folder ../shared/data --out runs/methods

Protocol: N anchors, 400 test pairs, the other rows halved into an x pool and a y pool
that share no item. Slow methods take their shorter schedule, which the table states.
Writes one folder a data set and N with its cells, and `--tables`, one Markdown file of
all tables.
"""

import dataclasses
import itertools
import time
from pathlib import Path

import tyro

from anchordot_jax import open_embeddings, protocol_split
from anchordot_jax.baselines.registry import METHODS, find_methods
from anchordot_jax.comparison import grid, report, tables
from anchordot_jax.comparison.problem import Problem, make_problem, shuffle_anchors

DATASETS = {
    "flickr8k": ("flickr8k.h5::image", "flickr8k.h5::text", (500, 100)),
    "chebi20": ("chebi20.h5::molecule", "chebi20.h5::text", (500, 100)),
    "chebi20-fp": ("chebi20.h5::molecule_fp", "chebi20.h5::text", (500, 100)),
    "openclipart": ("openclipart.h5::image", "openclipart.h5::text", (300, 100)),
}
TEST = 400
REFERENCE = "anchordot"


@dataclasses.dataclass(frozen=True)
class Args:
    """What to run."""

    data_folder: Path
    """Folder of the embedding files."""
    out: Path = Path("runs/methods")
    """Folder of the cells, one folder a data set and N."""
    tables: Path | None = None
    """Markdown file to write the tables to; by default OUT/all_methods.md."""
    datasets: tuple[str, ...] = tuple(DATASETS)
    methods: tuple[str, ...] = ("all",)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    few: bool = True
    """Whether to run N = 100 too."""
    schedule: str = "short"
    """short: shorter schedules for the slowest methods, as the table states; full."""
    shuffle_anchors: bool = False
    """Control: destroy the pairing; every method must be at chance."""
    only_tables: bool = False
    """Run nothing; make the tables of what is there."""


def load_problem(args: Args, dataset: str, n: int, seed: int) -> Problem:
    """Return the anchors, pools and test items of one seed."""
    file_x, file_y, _ = DATASETS[dataset]
    x = open_embeddings(f"{args.data_folder / file_x}").read()
    y = open_embeddings(f"{args.data_folder / file_y}").read()
    made = make_problem(x, y, protocol_split(len(x), seed=seed, anchors=n, test=TEST))
    return shuffle_anchors(made, seed=seed) if args.shuffle_anchors else made


def say(result: dict, known: bool) -> None:
    """Print a cell's line."""
    if known:
        return
    if result["status"] != "done":
        print(f"    {result['method']} {result['status']}: {result['reason']}")
        return
    ten = [100 * result["metrics"][f"{way}/recall@10"] for way in ("x2y", "y2x")]
    seconds = result["seconds"]["tuning"] + result["seconds"]["fit"]
    print(
        f"    {result['method']:28} R@10 {ten[0]:.1f} {ten[1]:.1f}, {seconds:.1f} s",
        flush=True,
    )


def main(args: Args) -> None:
    """Run what is missing, seed by seed, then write the tables."""
    methods = find_methods(args.methods)
    cases = [
        (dataset, n)
        for dataset in args.datasets
        for n in DATASETS[dataset][2][: 2 if args.few else 1]
    ]
    short = args.schedule == "short"
    if not args.only_tables:
        for seed, (dataset, n) in itertools.product(args.seeds, cases):
            print(
                f"{time.strftime('%H:%M')} seed {seed}, {dataset}, N = {n}", flush=True
            )
            grid.run_grid(
                methods,
                lambda seed, d=dataset, n=n: load_problem(args, d, n, seed),
                args.out / f"{dataset}-{n}",
                seeds=[seed],
                short=short,
                report=say,
            )
    write_tables(args, cases, short=short)


def write_tables(args: Args, cases: list[tuple[str, int]], *, short: bool) -> None:
    """Write each case's report, and one Markdown file of all."""
    parts = ["# All methods on all data sets", "", f"```\n{command(args)}\n```"]
    legend: list[str] = []
    for dataset, n in cases:
        out = args.out / f"{dataset}-{n}"
        order = list(METHODS)
        results = [r for r in grid.stored_results(out) if r["method"] in METHODS]
        results.sort(key=lambda r: (order.index(r["method"]), r["seed"]))
        if not results:
            continue
        rows = report.write_report(
            out,
            results,
            methods=METHODS,
            reference=REFERENCE,
            one_split=False,
            short=short,
        )
        heads = tables.head_lines(REFERENCE)
        lines = tables.row_lines(rows, METHODS, short=short)
        parts += ["", f"## {dataset}, N = {n}", "", *heads, *lines]
        parts += tables.missing_lines(results)
        legend = tables.legend_lines(rows, METHODS, short=short)
    path = args.tables or args.out / "all_methods.md"
    path.write_text("\n".join([*parts, "", "## Notes", "", *legend, ""]))
    print(f"{path} written")


def command(args: Args) -> str:
    """Return the command that makes the tables."""
    return (
        f"python experiments/all_methods.py --data-folder {args.data_folder} "
        f"--out {args.out} --schedule {args.schedule}"
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
