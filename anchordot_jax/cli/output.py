"""What commands print: one JSON object for machines, or tables for people."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

RECALLS = tuple(f"{way}/recall@{k}" for way in ("x2y", "y2x") for k in (1, 5, 10))


def print_json(values: Mapping[str, Any]) -> None:
    """Print one JSON object on one line."""
    json.dump(values, sys.stdout, allow_nan=False)
    print()


def print_table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Print a table on stdout, the first column to the left."""
    table = Table(title=title, title_justify="left")
    for i, head in enumerate(heads):
        table.add_column(head, justify="left" if i == 0 else "right", no_wrap=i > 0)
    for row in rows:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        # A pipe has no width; nothing is to be cut there.
        console = Console(width=160)
    console.print(table)


def settings_line(chosen: Mapping[str, float]) -> str:
    """Return some settings in words: "ridge ratio 0.12, power 1"."""
    return ", ".join(f"{k.replace('_', ' ')} {v:g}" for k, v in chosen.items())


def print_recalls(title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
    """Print the recalls of some methods, in percent."""
    heads = ["recall, %", *(name.replace("recall", "R") for name in RECALLS)]
    table = [
        [method, *(f"{100 * metrics[name]:.1f}" for name in RECALLS)]
        for method, metrics in rows.items()
    ]
    print_table(title, heads, table)


def print_metrics(title: str, metrics: Mapping[str, float]) -> None:
    """Print every metric of both directions; recalls in percent, ranks from 1.

    Those with hubs corrected, whose keys begin with `bank/`, stand beside the cosine's.
    """
    names = [name.split("/", 1)[1] for name in metrics if name.startswith("x2y/")]
    heads, columns = ["metric", "x -> y", "y -> x"], ["x2y", "y2x"]
    for way, head in (("x2y", "x -> y"), ("y2x", "y -> x")):
        if any(name.startswith(f"bank/{way}/") for name in metrics):
            heads.append(f"{head}, hubs corrected")
            columns.append(f"bank/{way}")
    rows = []
    for name in names:
        scale, unit = (100, " %") if name.startswith("recall") else (1, "")
        values = [f"{scale * metrics[f'{way}/{name}']:.2f}{unit}" for way in columns]
        rows.append([name, *values])
    print_table(title, heads, rows)
