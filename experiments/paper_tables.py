"""What the scripts of the paper's retrieval tables share.

`printed.csv` beside this file holds the figures that the papers print, by table, data
set, method and metric; recall in %.
"""

import csv
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from results import one_sentence

from anchordot_jax import InputError
from anchordot_jax.baselines.registry import METHODS, find_methods
from anchordot_jax.comparison import summary, tables
from anchordot_jax.comparison.cell import cell_line
from anchordot_jax.comparison.named import run_named

PRINTED = Path(__file__).parent / "printed.csv"
PAPER = ("contrastive", "asif", "csa", "sue", "sotalign", "anchordot")
"""The methods of the AnchorDOT paper's tables."""
BEYOND = ("ridge-cca", "soft-cca", "anchordot-refined")


@dataclasses.dataclass(frozen=True)
class Table:
    """What every retrieval table is told."""

    data: str
    """The data set, by name."""
    data_folder: Path = Path("../shared/data")
    """Where the data sets' files lie."""
    out: Path = Path("runs/methods")
    """Folder of the cells; scripts that are given one folder share them."""
    seeds: int = 5
    """Seeds 0, 1, ..."""
    anchors: int = 500
    """N."""
    methods: tuple[str, ...] = (*PAPER, *BEYOND)
    """Names of `anchordot compare --methods list`, or all."""
    schedule: Literal["short", "full"] = "short"
    """short: shorter schedules for the slowest methods, as the table states; full."""


def main(args: Table, *, number: int) -> None:
    """Print the table beside the printed one; bad input is one sentence, code 2."""
    with one_sentence():
        print_table(args, number=number)


def print_table(args: Table, *, number: int) -> None:
    """Run the cells that are missing, and print the table beside the printed one."""
    if args.seeds < 1:
        raise InputError(f"--seeds must be at least 1, got {args.seeds}.")
    short = args.schedule == "short"
    cells = run_named(
        find_methods(args.methods),
        args.data,
        args.data_folder,
        args.out,
        anchors=args.anchors,
        seeds=range(args.seeds),
        short=short,
        report=lambda result, known: print(cell_line(result, known=known), flush=True),
    )
    rows = summary.summarize(cells, reference="anchordot", one_split=False)
    print(f"\n{args.data}, N = {args.anchors}, {args.seeds} seeds, measured here:\n")
    print(tables.markdown(rows, METHODS, cells, reference="anchordot", short=short))
    print("\n".join(printed_lines(number, args.data)))


def printed_rows(table: str) -> list[dict[str, str]]:
    """Return what the papers print in a table, or a figure such as `figure 4`."""
    with PRINTED.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["table"] == table]


def printed_lines(number: int, measured_on: str) -> list[str]:
    """Return the paper's own table, and how its data differ from those measured on."""
    figures: dict[tuple[str, str], dict[str, str]] = {}
    for row in printed_rows(str(number)):
        text = row["mean"] + (f" ({row['std']})" if row["std"] else "")
        own = figures.setdefault((row["dataset"], row["method"]), {})
        own[row["metric"]] = text
    lines = [f"Printed in the paper (Table {number}):", ""]
    lines += _markdown_head(["data", "method", *summary.RECALLS])
    for (dataset, method), own in figures.items():
        values = [own[name] for name in summary.RECALLS]
        lines.append(
            "| " + " | ".join([dataset, METHODS[method].title, *values]) + " |"
        )
    if measured_on not in {dataset for dataset, _ in figures}:
        lines += [
            "",
            f"The paper's data and encoders are others than those of {measured_on}: "
            f"the two tables are not comparable figure by figure, only in their order.",
        ]
    return lines


def _markdown_head(heads: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
