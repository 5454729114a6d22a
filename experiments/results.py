"""What the scripts of the figures share: options, running a grid, writing what came.

A script's results are `NAME.csv` (one tidy row a cell, with what the paper prints in
columns of its own where it prints figures), `NAME.png` and `NAME.svg` in --docs, and
`NAME.json` with versions and seconds.
"""

import contextlib
import csv
import dataclasses
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from anchordot_jax import InputError, files
from anchordot_jax.baselines.registry import METHODS
from anchordot_jax.runs import cells
from anchordot_jax.runs.cells import Cell, Grouping, Progress, Run

# Okabe and Ito's colours, which the colour-blind can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
mpl.rcParams["svg.hashsalt"] = "anchordot-jax"


@dataclasses.dataclass(frozen=True)
class Options:
    """What every figure is told."""

    data_folder: Path = Path("../shared/data")
    """Where the data sets' files lie."""
    out: Path = Path("runs/figures")
    """Folder of the cells; what is in it is not run again."""
    docs: Path = Path("docs/results")
    """Folder of the table and the figure."""
    seeds: int = 5
    """Seeds 0, 1, ..."""
    processes: int = 1
    """Processes of this machine to run cells in."""


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    """End the script with one sentence and exit code 2 on bad input."""
    try:
        yield
    except InputError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


def run_grid(
    grid: Sequence[Cell],
    run: Run,
    options: Options,
    *,
    grouping: Grouping | None = None,
) -> list[dict[str, Any]]:
    """Return the records of a grid; what is missing is run, and progress printed.

    Bad input ends the script with one sentence and exit code 2.
    """
    with one_sentence():
        if options.seeds < 1 or options.processes < 1:
            raise InputError("--seeds and --processes must be at least 1.")
        if options.processes == 1:
            records = cells.run_cells(
                grid, run, options.out, grouping=grouping, report=_tell
            )
        else:
            with cells.local_workers(options.processes) as workers:
                records = cells.run_cells(
                    grid,
                    run,
                    options.out,
                    grouping=grouping,
                    workers=workers,
                    report=_tell,
                )
        refused = [r for r in records if r["status"] != "done"]
        if refused and all(r["status"] == "refused" for r in records):
            raise InputError(refused[0]["reason"])
    for record in refused:
        print(f"{record['settings']} {record['status']}: {record['reason']}")
    return records


def finished_cells(
    out: Path,
    datasets: Sequence[str],
    seeds: Sequence[int],
    run: Callable[[str, int], Mapping[str, Any]],
) -> dict[tuple[str, int], dict[str, Any]]:
    """Return every cell's values by data set and seed; missing ones are run and stored.

    Bad input ends the script with one sentence and exit code 2.
    """
    paths = {
        (dataset, seed): out / f"{dataset}-{seed}.json"
        for dataset, seed in itertools.product(datasets, seeds)
    }
    with one_sentence():
        for key, path in paths.items():
            if not path.exists():
                files.write_json(path, run(*key), indent=1)
                print(f"{path} written", flush=True)
        return {
            key: files.read_json(path, f"The cell {path}")
            for key, path in paths.items()
        }


def _tell(progress: Progress) -> None:
    print(progress.line, flush=True)


def write_results(name: str, records: Sequence[Mapping[str, Any]], docs: Path) -> None:
    """Write NAME.csv, one tidy row a cell, and NAME.json, versions and seconds."""
    rows = cells.tidy_rows(records)
    if not rows:
        raise SystemExit(f"{name}: no cell is finished; nothing is written.")
    names = list(dict.fromkeys(key for row in rows for key in row))
    with (
        files.replacing(docs / f"{name}.csv") as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    done = [record for record in records if record["status"] == "done"]
    told = {
        "cells": len(done),
        "seconds": round(sum(record["seconds"] for record in done), 1),
        "cpu_seconds": round(sum(record["cpu_seconds"] for record in done), 1),
        "python": done[0]["environment"]["python"],
        "versions": done[0]["environment"]["versions"],
        "backend": done[0]["environment"]["backend"],
    }
    files.write_json(docs / f"{name}.json", told)
    print(f"{docs / name}.csv written, {len(rows)} rows")


def read_results(name: str, docs: Path) -> list[dict[str, Any]]:
    """Return records as a figure draws them, from NAME.csv alone.

    Every column is a setting and a result too, since a table does not tell them apart.

    Raises:
        InputError: there is no such table.
    """
    path = docs / f"{name}.csv"
    if not path.is_file():
        raise InputError(f"{path} is missing; run experiments/{name}.py first.")
    with path.open(encoding="utf-8", newline="") as file:
        rows = [{k: _value(v) for k, v in row.items()} for row in csv.DictReader(file)]
    return [
        {"experiment": row.get("experiment", name), "status": "done"}
        | {"settings": row, "result": row}
        for row in rows
    ]


def _value(text: str) -> str | int | float | None:
    """Return a CSV field as a number where it is one, None where it is empty."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text or None


def distinct(records: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    """Return the values of a setting among the finished cells.

    Sorted, methods as they are registered, None last: what is drawn of the cells and
    of their table is the same.
    """
    done = (record for record in records if record["status"] == "done")
    values = {record["settings"][name] for record in done}
    order = {method: place for place, method in enumerate(METHODS)}
    return sorted(
        values,
        key=lambda own: (own is None, order.get(own, -1), 0 if own is None else own),
    )


def mean_and_deviation(
    records: Sequence[Mapping[str, Any]], by: Sequence[str], value: str
) -> dict[tuple[Any, ...], tuple[float, float]]:
    """Return the mean and sample deviation over the seeds of a result, by settings."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for record in records:
        if record["status"] == "done" and record["result"].get(value) is not None:
            key = tuple(record["settings"][name] for name in by)
            groups.setdefault(key, []).append(record["result"][value])
    return {
        key: (float(np.mean(own)), float(np.std(own, ddof=1)) if len(own) > 1 else 0.0)
        for key, own in groups.items()
    }


def new_figure(panels: int, *, height: float = 3.0) -> tuple[Figure, list[Any]]:
    """Return a figure with some panels side by side."""
    figure = Figure(figsize=(3.4 * panels, height), layout="constrained")
    FigureCanvasAgg(figure)
    row = figure.subplots(1, panels, squeeze=False)[0]
    for axes in row:
        axes.grid(linewidth=0.3)
        axes.tick_params(labelsize=8)
    return figure, list(row)


def curves(
    axes: Any, records: Sequence[Mapping[str, Any]], along: str, value: str
) -> None:
    """Draw a line a method over a setting, in %, with deviations over the seeds."""
    found = mean_and_deviation(records, ("method", along), value)
    for number, method in enumerate(distinct(records, "method")):
        points = sorted(
            (place, own)
            for (own_method, place), own in found.items()
            if own_method == method
        )
        axes.errorbar(
            [place for place, _ in points],
            [100 * mean for _, (mean, _) in points],
            yerr=[100 * deviation for _, (_, deviation) in points],
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4,
            linewidth=1.2,
            capsize=2,
            label=METHODS[method].title,
        )
    axes.set_xlabel(along, fontsize=8)


def save_figure(figure: Figure, name: str, docs: Path) -> None:
    """Write NAME.png and NAME.svg, the same bytes for the same figure."""
    for suffix, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        with files.replacing(docs / f"{name}.{suffix}") as temporary:
            figure.savefig(temporary, dpi=150, format=suffix, metadata=metadata)
