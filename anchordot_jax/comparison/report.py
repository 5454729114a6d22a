"""What a comparison leaves in its folder beside the cells: table, CSV, plot."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anchordot_jax import files
from anchordot_jax.baselines.protocol import Method
from anchordot_jax.comparison import plot, summary, tables
from anchordot_jax.evaluation import chance_recall


def write_report(
    out: Path,
    results: Sequence[Mapping[str, Any]],
    *,
    methods: Mapping[str, Method],
    reference: str,
    one_split: bool,
    short: bool,
) -> list[summary.Row]:
    """Return the table's rows, written as table.md, results.csv, recall.svg and .png.

    Args:
        out: the comparison's folder.
        results: all cells.
        methods: the methods by name.
        reference: the method that the differences are taken from.
        one_split: whether all seeds share one split.
        short: whether the shorter schedules were taken.
    """
    rows = summary.summarize(results, reference=reference, one_split=one_split)
    text = tables.markdown(rows, methods, results, reference=reference, short=short)
    with files.replacing(out / "table.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    tables.write_csv(out / "results.csv", results)
    if rows:
        chance = _chance(results)
        for name in ("recall.svg", "recall.png"):
            plot.plot_recalls(
                out / name, rows, methods, reference=reference, chance=chance
            )
    return rows


def _chance(results: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean of the six recalls of a random order, in %."""
    ranks = next(result["ranks"] for result in results if result["status"] == "done")
    galleries = [len(ranks[way]) for way in ("y2x", "x2y")]
    return float(
        np.mean([100 * chance_recall(m, 1, k) for m in galleries for k in (1, 5, 10)])
    )
