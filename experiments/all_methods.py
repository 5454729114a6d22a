"""Every method on every data set at hand, N = 500 (300) and 100 anchors, 5 seeds.

Command (a folder of chebi20.h5, flickr8k.h5 and openclipart.h5):

    python experiments/all_methods.py --data-folder ../shared/data --out runs/methods

Protocol: N anchors, 400 test pairs, the other rows halved into an x pool and a y pool
that share no item. Slow methods take their shorter schedule, which the table states.
Every finished cell is one file in --out; all cells are collected in
docs/all_methods.csv and tabulated in docs/all_methods.md. What is in either place is
not run again, so the command can be stopped at any time and given again.
"""

import dataclasses
import itertools
import time
from pathlib import Path

import tyro

from anchordot_jax.baselines.registry import METHODS, find_methods
from anchordot_jax.comparison import grid, summary, tables
from anchordot_jax.comparison.cell import cell_line
from anchordot_jax.comparison.named import run_named

ANCHORS = {
    "flickr8k": (500, 100),
    "chebi20": (500, 100),
    "chebi20-fp": (500, 100),
    "openclipart": (300, 100),
}
INTRODUCTION = """\
Real embeddings: photographs and captions (flickr8k), molecules and descriptions
(chebi20: MiniMol; chebi20-fp: fingerprints), clip art and titles (openclipart). 400
test pairs; the rows that are neither anchors nor test pairs are halved into two pools
without a common item. All methods of a seed have the same anchors, pools and test
items. Compare processor time (CPU), not seconds. Made by

"""
REFERENCE = "anchordot"


@dataclasses.dataclass(frozen=True)
class Args:
    """What to run."""

    data_folder: Path
    """Folder of the embedding files."""
    out: Path = Path("runs/methods")
    """Folder of the cells, one folder a data set and N."""
    docs: Path = Path("docs")
    """Folder of all_methods.csv and all_methods.md."""
    datasets: tuple[str, ...] = tuple(ANCHORS)
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


def say(result: dict, known: bool) -> None:
    """Print the line of a cell that was run."""
    if not known:
        print(f"    {cell_line(result)}", flush=True)


def main(args: Args) -> None:
    """Run what is missing, seed by seed, then write the tables."""
    methods = find_methods(args.methods)
    cases = [
        (dataset, n)
        for i in range(2 if args.few else 1)
        for dataset in args.datasets
        for n in ANCHORS[dataset][i : i + 1]
    ]
    known = known_cells(args)
    if not args.only_tables:
        for seed, (dataset, n) in itertools.product(args.seeds, cases):
            print(
                f"{time.strftime('%H:%M')} seed {seed}, {dataset}, N = {n}", flush=True
            )
            missing = [m for m in methods if (dataset, n, m.name, seed) not in known]
            run_named(
                missing,
                dataset,
                args.data_folder,
                args.out,
                anchors=n,
                seeds=[seed],
                short=args.schedule == "short",
                shuffled=args.shuffle_anchors,
                report=say,
            )
        known = known_cells(args)
    write_tables(args, list(known.values()))


def known_cells(args: Args) -> dict[tuple[str, int, str, int], dict]:
    """Return the finished cells by data set, N, method and seed."""
    cells = []
    if (args.docs / "all_methods.csv").exists():
        cells += tables.read_csv(args.docs / "all_methods.csv")
    for folder in sorted(args.out.glob("*-*")):
        dataset, n = folder.name.rsplit("-", 1)
        cells += [
            {"dataset": dataset, "n": n, **cell} for cell in grid.stored_results(folder)
        ]
    known = {
        (c["dataset"], int(c["n"]), c["method"], c["seed"]): c
        for c in cells
        if c["status"] != "failed" and c["method"] in METHODS
    }
    problems: dict[tuple[str, int, int], str] = {}
    for (dataset, n, method, seed), cell in known.items():
        digest = problems.setdefault((dataset, n, seed), cell["problem"])
        if cell["problem"] != digest:
            raise SystemExit(f"{method}, {dataset}, N = {n}, seed {seed}: other data")
    return known


def write_tables(args: Args, cells: list[dict]) -> None:
    """Write all cells as one CSV, and a table for each data set and N as Markdown."""
    order, datasets = list(METHODS), list(ANCHORS)
    cells.sort(
        key=lambda c: (
            datasets.index(c["dataset"]),
            -int(c["n"]),
            order.index(c["method"]),
            c["seed"],
        )
    )
    args.docs.mkdir(exist_ok=True)
    keys = ("dataset", "n", *tables.KEYS)
    tables.write_csv(args.docs / "all_methods.csv", cells, keys=keys)
    short = args.schedule == "short"
    parts = ["# All methods on all data sets", "", INTRODUCTION, f"    {command(args)}"]
    for (dataset, n), group in itertools.groupby(
        cells, key=lambda c: (c["dataset"], int(c["n"]))
    ):
        own = list(group)
        rows = summary.summarize(own, reference=REFERENCE, one_split=False)
        parts += ["", f"## {dataset}, N = {n}", "", *tables.head_lines(REFERENCE)]
        parts += tables.row_lines(rows, METHODS, short=short)
        parts += tables.missing_lines(own)
        there = {cell["method"] for cell in own}
        absent = ", ".join(name for name in order if name not in there)
        parts += ["", f"Not run yet: {absent}."] if absent else []
    everyone = [find_methods([name])[0] for name in order]
    parts += ["", "## Notes", "", *tables.legend_lines(everyone, short=short), ""]
    (args.docs / "all_methods.md").write_text("\n".join(parts), encoding="utf-8")
    print(f"{args.docs / 'all_methods.md'} written, {len(cells)} cells")


def command(args: Args) -> str:
    """Return the command that makes the tables."""
    return (
        f"python experiments/all_methods.py --data-folder {args.data_folder} "
        f"--schedule {args.schedule}"
    )


if __name__ == "__main__":
    main(tyro.cli(Args))
