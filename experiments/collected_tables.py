"""The paper's tables in Markdown: what was measured beside what is printed."""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from paper_tables import PAPER, printed_rows
from results import mean_and_deviation

from anchordot_jax.baselines.registry import METHODS
from anchordot_jax.comparison.summary import RECALLS

Records = Sequence[Mapping[str, Any]]
STAND_INS = {"flickr30k": "flickr8k", "mscoco": "flickr8k", "chebi20-full": "chebi20"}
"""What is measured on where the paper's set is not: of the same kind of pairs."""
TABLES = (("1", "image-text retrieval"), ("2", "molecule-text retrieval"))
N = 500
FIGURES = ("figure 2", "figure 4", "figure 13")
"""Figures in which, or beside which, the paper prints numbers."""


def tables_page(
    tables: Mapping[str, Records], measured: Sequence[Mapping[str, Any]]
) -> str:
    """Return the paper's tables in Markdown, ours beside the printed figures.

    Args:
        tables: records of the scripts' tables, by name of the script.
        measured: rows of the retrieval cells.
    """
    lines = ["# The paper's tables, measured and printed", ""]
    lines += ["Made from the tables beside this page by `experiments/collect.py`."]
    for number, title in TABLES:
        lines += ["", f"## Table {number}: {title}, N = {N}, recall in %"]
        lines += retrieval_lines(number, measured)
    for name, records in tables.items():
        script = importlib.import_module(name)
        of_table = getattr(script, "table_lines", None)
        if of_table is not None:
            head = (script.__doc__ or name).splitlines()[0]
            lines += ["", f"## {head}", "", *of_table(records)]
    if "figure17_selection" in tables:
        lines += ["", "## Table 9: gamma and eta chosen (seed 0)", ""]
        lines += choice_lines(tables["figure17_selection"])
    lines += ["", "## What the paper's figures print", ""]
    lines += figure_lines(tables)
    return "\n".join(lines) + "\n"


def retrieval_lines(number: str, measured: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return one table a data set of the paper: each recall here and as printed."""
    printed: dict[str, dict[tuple[str, str], str]] = {}
    for row in printed_rows(number):
        text = row["mean"] + (f" ({row['std']})" if row["std"] else "")
        own = printed.setdefault(row["dataset"], {})
        own[row["method"], row["metric"]] = text
    rows = [row for row in measured if row["n"] == N]
    there = {row["dataset"] for row in rows}
    lines = []
    for dataset, texts in printed.items():
        stand_in = dataset if dataset in there else STAND_INS[dataset]
        heads = [
            f"{name.replace('recall', 'R')} {place}"
            for name in RECALLS
            for place in ("here", "printed")
        ]
        lines += ["", f"Here: {stand_in}. Printed: {dataset}."]
        if stand_in != dataset:
            lines[-1] += " Other data and encoders: compare the order, not the figures."
        lines += ["", "| method | seeds | " + " | ".join(heads) + " |"]
        lines += ["| --- " * (len(heads) + 2) + "|"]
        for method in PAPER:
            own = [
                row
                for row in rows
                if row["dataset"] == stand_in and row["method"] == method
            ]
            values = [
                text
                for name in RECALLS
                for text in (
                    _spread([100 * row[name] for row in own]),
                    texts[method, name],
                )
            ]
            short = (
                " (s)" if any(str(row.get("short")) == "True" for row in own) else ""
            )
            title = METHODS[method].title + short
            lines.append(f"| {title} | {len(own)} | " + " | ".join(values) + " |")
    return [*lines, "", "(s): a shorter schedule here."]


def choice_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return Table 9: what was chosen here and what the paper printed."""
    printed: dict[str, dict[str, str]] = {}
    for row in printed_rows("9"):
        printed.setdefault(row["dataset"], {})[row["metric"]] = row["mean"]
    lines = ["| here | gamma | eta | printed | gamma | eta |", "| --- " * 6 + "|"]
    own = {
        r["settings"]["data"]: r["result"]
        for r in records
        if r["settings"]["seed"] == 0
    }
    for dataset, values in printed.items():
        here = dataset if dataset in own else STAND_INS[dataset]
        found = own.get(here)
        ours = f"{found['gamma']:g} | {found['eta']:g}" if found else "- | -"
        lines.append(
            f"| {here} | {ours} | {dataset} | {values['gamma']} | {values['eta']} |"
        )
    return [*lines, "", "Other data and encoders than the paper's."]


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    deviation = f" ({np.std(values, ddof=1):.2f})" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{deviation}"


def figure_lines(tables: Mapping[str, Records]) -> list[str]:
    """Return what the paper prints of its figures, with ours of the same settings."""
    lines = ["| figure | method | what | printed | on | here | on |"]
    lines += ["| --- " * 7 + "|"]
    for figure in FIGURES:
        for row in printed_rows(figure):
            ours, where = _measured(figure, row, tables)
            method = METHODS[row["method"]].title
            lines.append(
                f"| {figure} | {method} | {row['metric']} | {row['mean']} "
                f"| {row['dataset']} | {ours} | {where} |"
            )
    lines += [
        "",
        "Recall in %. Other data and encoders than the paper's; pools and students may",
    ]
    return [*lines, "be smaller than its too: the tables say which."]


def _measured(
    figure: str, row: Mapping[str, str], tables: Mapping[str, Records]
) -> tuple[str, str]:
    """Return our mean for a printed figure and its data; dashes where there is none."""
    metric, *sizes = row["metric"].split()
    if figure == "figure 4":
        name, by = "figure4_hubness", ("data", "rule")
        data = STAND_INS[row["dataset"]]
        key: tuple[Any, ...] = (data, row["method"].removeprefix("profile-"))
    elif figure == "figure 13":
        name, by = "figure13_transfer", ("data", "target", "method")
        source, target = row["dataset"].split(" to ")
        own = STAND_INS[source]
        # The set of the same encoders that is not of the same kind stands in.
        key = (own, own if source == target else "openclipart", row["method"])
        data = f"{key[0]} to {key[1]}"
    else:
        name, by = "figure2_anchors_and_pool", ("data", "pool", "anchors", "method")
        data = STAND_INS[row["dataset"]]
        given = {k: int(v) for k, v in (size.split("=") for size in sizes)}
        key = (data, given.get("pool"), given["N"], row["method"])
    found = mean_and_deviation(tables.get(name, ()), by, metric).get(key)
    if found is None:
        return "-", "-"
    scale = 100 if "recall" in metric else 1
    return f"{scale * found[0]:.2f}", data
