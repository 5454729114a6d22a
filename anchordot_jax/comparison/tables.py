"""The table as Markdown and CSV."""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from anchordot_jax import files
from anchordot_jax.baselines.protocol import Method
from anchordot_jax.comparison.summary import MEAN, RECALLS, SKEWNESS, Interval, Row
from anchordot_jax.errors import InputError

HEADS = (
    "method",
    *(name.replace("recall", "R") for name in RECALLS),
    "mean",
    "less {reference} (95 %)",
    "skewness x2y",
    "y2x",
    "seconds",
    "CPU",
    "GB",
    "seeds",
    "tuned",
)


def markdown(
    rows: Sequence[Row],
    methods: Mapping[str, Method],
    results: Iterable[Mapping[str, Any]],
    *,
    reference: str,
    short: bool,
) -> str:
    """Return the table, what its marks mean, and why a method is missing."""
    lines = [*head_lines(reference), *row_lines(rows, methods, short=short), ""]
    shown = [methods[row.method] for row in rows]
    lines += [*legend_lines(shown, short=short), *missing_lines(results)]
    return "\n".join(lines) + "\n"


def head_lines(reference: str) -> list[str]:
    """Return the table's head."""
    heads = [head.format(reference=reference) for head in HEADS]
    return ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]


def row_lines(
    rows: Sequence[Row], methods: Mapping[str, Method], *, short: bool
) -> list[str]:
    """Return one line a method."""
    return [
        "| " + " | ".join(_line(row, methods[row.method], short=short)) + " |"
        for row in rows
    ]


def _line(row: Row, method: Method, *, short: bool) -> list[str]:
    return [
        method.title + _marks(method, short=short),
        *(_figure(row, name, digits=1) for name in (*RECALLS, MEAN)),
        _interval(row.difference),
        *(_figure(row, name, digits=2) for name in SKEWNESS),
        f"{row.seconds:.1f}",
        "-" if math.isnan(row.cpu_seconds) else f"{row.cpu_seconds:.1f}",
        f"{row.peak_memory / 1e9:.1f}",
        str(len(row.seeds)),
        ", ".join((*method.grid, *method.tuned)) or "-",
    ]


def _marks(method: Method, *, short: bool) -> str:
    marks = "" if method.needs.pairs else " (0)"
    marks += " (t)" if method.needs.transductive else ""
    marks += " (s)" if short and method.short else ""
    return marks + (" (?)" if method.trust in ("readme", "memory") else "")


def legend_lines(methods: Iterable[Method], *, short: bool) -> list[str]:
    """Return what the marks mean, and every method's source and reading."""
    lines = [
        "Recall in %, mean (standard deviation) over the seeds; ties count in "
        "expectation. Mean: of the six recalls. Skewness: of the 10-occurrence. "
        "Seconds: median of choice and fit together, compilation included in the first "
        "seed; CPU: the same in processor time, over all cores. GB: peak memory of the "
        "process. Tuned: chosen by held-out anchors; "
        "everything else is at its authors' value. (0): uses no pairs. (t): sees all "
        "test items at once. (s): shorter schedule than its authors'. (?): written "
        "from a README or from memory of the paper.",
        "",
    ]
    for method in methods:
        changed = ""
        if short and method.short:
            values = ", ".join(f"{k} {v}" for k, v in method.short.items())
            changed = f" Shorter schedule: {values}."
        notes = f" {method.notes}" if method.notes else ""
        lines.append(
            f"- **{method.title}** (`{method.name}`): {method.source}; written from: "
            f"{method.trust}.{notes}{changed}"
        )
    return lines


def missing_lines(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return which methods are not in the table, and why."""
    reasons = {
        (result["method"], result["reason"]): result["status"]
        for result in results
        if result["status"] != "done"
    }
    if not reasons:
        return []
    lines = ["", "Not in the table:", ""]
    lines += [
        f"- `{name}` {status}: {reason}" for (name, reason), status in reasons.items()
    ]
    return lines


def _figure(row: Row, name: str, *, digits: int) -> str:
    text = f"{row.means[name]:.{digits}f}"
    deviation = row.deviations[name]
    return text if math.isnan(deviation) else f"{text} ({deviation:.{digits}f})"


def _interval(difference: Interval | None) -> str:
    if difference is None:
        return "-"
    if math.isnan(difference.low):
        return f"{difference.mean:+.1f}"
    return f"{difference.mean:+.1f} [{difference.low:+.1f}, {difference.high:+.1f}]"


KEYS = ("method", "seed", "status", "problem")


def write_csv(
    path: Path, results: Iterable[Mapping[str, Any]], *, keys: Sequence[str] = KEYS
) -> None:
    """Write one line a cell: every metric, seconds, memory and the chosen settings.

    Args:
        path: where to.
        results: cells.
        keys: entries of a cell that come first, as they are.
    """
    rows = []
    for result in results:
        row = {key: result[key] for key in keys}
        if result["status"] == "done":
            row |= dict(result["metrics"])
            row |= {f"seconds/{k}": v for k, v in result["seconds"].items()}
            row |= {"peak_memory": result["peak_memory"], "short": result["short"]}
            row["chosen"] = _chosen_text(result)
        else:
            row["reason"] = result["reason"]
        rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    with (
        files.replacing(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def _chosen_text(result: Mapping[str, Any]) -> str:
    """Return what was chosen by held-out anchors, "name=value ..."."""
    if isinstance(result["chosen"], str):
        return result["chosen"]
    found = {k: result["chosen"].get(k) for k in result["tuned"]}
    found |= {k: result["facts"][k] for k in result["tuned"] if k in result["facts"]}
    return " ".join(f"{name}={value}" for name, value in found.items())


def read_csv(path: Path) -> list[dict[str, Any]]:
    """Return the cells that `write_csv` wrote, as far as a table needs them.

    Raises:
        InputError: the file cannot be read, or lacks a column.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [_cell_of_row(row) for row in csv.DictReader(file)]
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from error
    except (KeyError, ValueError) as error:
        raise InputError(f"{path} is not a table of results: {error}.") from error


def _cell_of_row(row: Mapping[str, str]) -> dict[str, Any]:
    cell: dict[str, Any] = {k: v for k, v in row.items() if "/" not in k}
    cell["seed"] = int(row["seed"])
    if cell["status"] != "done":
        return cell
    numbers = {k: float(v) for k, v in row.items() if "/" in k and v}
    seconds = {k: v for k, v in numbers.items() if k.startswith("seconds/")}
    return cell | {
        "metrics": {k: v for k, v in numbers.items() if k not in seconds},
        "seconds": {k.removeprefix("seconds/"): v for k, v in seconds.items()},
        "peak_memory": int(row["peak_memory"]),
        "short": row["short"] == "True",
    }
