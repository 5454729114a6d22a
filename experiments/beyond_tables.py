"""The tables of `beyond_the_paper.py`: every cell as CSV, and Markdown made of them."""

import csv
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from anchordot_jax import files
from anchordot_jax.comparison import summary

LABELS = {
    "contrastive-tuned": "contrastive on the anchors, steps chosen",
    "ridge-cca": "ridge CCA",
    "soft-cca": "soft-matched CCA, closed form",
    "anchordot": "AnchorDOT, the paper's recipe",
    "anchordot-refined": "AnchorDOT, refined recipe",
}
REFERENCE = "anchordot"
COLUMNS = (*summary.RECALLS, *summary.SKEWNESS)


class Case(NamedTuple):
    """One method, on one data set, with some anchors and a seed."""

    dataset: str
    n: int
    method: str
    seed: int


def results(cells: Sequence[dict[str, Any]], *, bank: bool) -> Iterator[dict[str, Any]]:
    """Yield the cells as `comparison.summary` takes them, scored in one way."""
    for cell in cells:
        prefix = "bank/" if bank else ""
        metrics = {name: cell["metrics"][prefix + name] for name in COLUMNS}
        yield {**cell, "metrics": metrics, "status": "done"}


def read_cells(path: Path) -> list[dict[str, Any]]:
    """Return the cells of a table, each of which has a row a way of scoring."""
    if not path.exists():
        return []
    cells: dict[tuple[str, ...], dict[str, Any]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = tuple(row[name] for name in Case._fields)
            case = Case(key[0], int(key[1]), key[2], int(key[3]))
            seconds = {part: float(row[f"{part}_s"]) for part in ("tuning", "fit")}
            cell = cells.setdefault(
                key,
                {
                    **case._asdict(),
                    "seconds": seconds,
                    "peak_memory": int(row["peak_memory"]),
                    "metrics": {},
                },
            )
            prefix = "bank/" if row["bank"] == "True" else ""
            cell["metrics"] |= {prefix + name: float(row[name]) for name in COLUMNS}
    return list(cells.values())


def write_cells(path: Path, cells: Sequence[dict[str, Any]]) -> None:
    """Write a row a cell and way of scoring."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        files.replacing(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        seconds = ("tuning_s", "fit_s", "peak_memory")
        writer.writerow([*Case._fields, "bank", *seconds, *COLUMNS])
        for bank in (False, True):
            for cell in results(cells, bank=bank):
                case = [cell[name] for name in Case._fields]
                cost = [f"{cell['seconds'][part]:.2f}" for part in ("tuning", "fit")]
                cost.append(str(cell["peak_memory"]))
                values = [f"{cell['metrics'][name]:.5f}" for name in COLUMNS]
                writer.writerow([*case, bank, *cost, *values])


def page(cells: Sequence[dict[str, Any]], command: str) -> str:
    """Return a table for each data set and N as Markdown.

    Args:
        cells: in the order of the tables.
        command: that made them.
    """
    said = (
        "Recall in %, mean (standard deviation) over the seeds; mean: of the six "
        "recalls; seconds: median, of one core, compilation included in a run's first "
        "cell; some cells ran beside other work. Choices by 5-fold cross-validation "
        "over the anchors, frozen before any test item was read. Made by"
    )
    lines = ["# Beyond the paper", "", said, "", f"    {command}"]
    for (dataset, n), group in itertools.groupby(
        cells, key=lambda c: (c["dataset"], c["n"])
    ):
        lines += ["", f"## {dataset}, N = {n}", "", *table(list(group))]
    lines += more_molecules(cells)
    return "\n".join(lines) + "\n"


def table(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Return one data set's table: each method by the cosine and with its bank."""
    heads = ["method", *(name.replace("recall", "R") for name in summary.RECALLS)]
    heads += ["mean", f"less {REFERENCE} (95 %)", "skewness x2y", "y2x"]
    heads += ["choice + fit, s", "seeds"]
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for bank in (False, True):
        rows = summary.summarize(
            results(cells, bank=bank), reference=REFERENCE, one_split=False
        )
        for row in rows:
            figures = [_figure(row, name, 1) for name in summary.RECALLS]
            figures += [_figure(row, summary.MEAN, 1), _interval(row.difference)]
            figures += [_figure(row, name, 2) for name in summary.SKEWNESS]
            label = LABELS[row.method] + (", with bank" if bank else "")
            parts = [label, *figures, f"{row.seconds:.1f}", str(len(row.seeds))]
            lines.append("| " + " | ".join(parts) + " |")
    return lines


def more_molecules(cells: Sequence[dict[str, Any]]) -> list[str]:
    """Return what the further molecules change, paired over seeds."""
    lines = []
    groups: dict[tuple[str, int, str, bool], dict[str, list[dict]]] = {}
    for bank in (False, True):
        for cell in results(cells, bank=bank):
            own = cell["dataset"].removesuffix("-more")
            key = own, cell["n"], cell["method"], bank
            side = "more" if cell["dataset"].endswith("-more") else "as they are"
            groups.setdefault(key, {}).setdefault(side, []).append(
                {**cell, "method": side}
            )
    for (dataset, n, method, bank), sides in groups.items():
        if len(sides) == 2:
            both = [*sides["as they are"], *sides["more"]]
            rows = summary.summarize(both, reference="as they are", one_split=False)
            label = LABELS[method] + (", with bank" if bank else "")
            difference = _interval(rows[1].difference)
            lines.append(f"| {dataset} | {n} | {label} | {difference} |")
    if not lines:
        return []
    heads = ["", "## More unpaired molecules: points gained, paired over seeds", ""]
    return [*heads, "| data | N | method | mean (95 %) |", "| --- " * 4 + "|", *lines]


def _figure(row: summary.Row, name: str, digits: int) -> str:
    return f"{row.means[name]:.{digits}f} ({row.deviations[name]:.{digits}f})"


def _interval(found: summary.Interval | None) -> str:
    if found is None:
        return "-"
    return f"{found.mean:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"
