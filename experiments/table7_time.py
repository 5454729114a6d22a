"""Table 7: seconds of a fit as the anchors N and the pools M grow.

    python experiments/table7_time.py

Each fit is timed by `benchmarks/fit_times.py`, in a process of its own, compilation
included, on planted data of the paper's dimensions (384 and 384) with gamma and eta
given. The paper (GPU, Flickr30k): AnchorDOT 5.0 s and SOTAlign 75.0 s at M = 2,000 and
N = 500 (11.05 and 80.26 in its other rows), 7 to 15 times faster than SOTAlign but for
3.4 times at N = 5,000. Expected here: AnchorDOT's time hardly grows with N up to 2,000,
since its cost is computed in at most 384 coordinates.

Default: N = 100, 500, 1,000 at M = 2,000 and M = 5,000 at N = 500, one repetition,
SOTAlign for 200 steps instead of its 2,000 (the column `schedule`), about 15 minutes on
2 CPU cores. `--full --seeds 3`: all of the paper's sizes and steps; hours on a CPU.
"""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tyro
from paper_tables import printed_rows
from results import (
    Options,
    distinct,
    mean_and_deviation,
    one_sentence,
    run_grid,
    write_results,
)

from anchordot_jax.baselines.registry import METHODS, find_methods
from anchordot_jax.runs import cells

NAME = "table7_time"
BENCHMARK = Path(__file__).resolve().parents[1] / "benchmarks" / "fit_times.py"
N, M = 500, 2000
SMALL = {"anchors": (100, 500, 1000), "pool": (2000, 5000)}
FULL = {"anchors": (100, 500, 1000, 5000), "pool": (2000, 5000, 15000)}


@dataclasses.dataclass(frozen=True)
class Args(Options):
    """What to time; --data-folder is not used, the data are planted."""

    methods: tuple[str, ...] = (
        "anchordot",
        "anchordot-refined",
        "ridge-cca",
        "sotalign",
    )
    anchors: tuple[int, ...] = ()
    """N at M = 2,000; none: three, or with --full the paper's four."""
    pool: tuple[int, ...] = ()
    """M at N = 500; none: two, or with --full the paper's three."""
    seeds: int = 1
    """Repetitions, all of the same data."""
    full: bool = False
    """The paper's sizes and the full schedules."""


def run(settings: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds and peak gigabytes of one fit.

    Raises:
        RuntimeError: the fit's process failed.
    """
    options = {
        "--methods": settings["method"],
        "--schedule": settings["schedule"],
        "--n": settings["anchors"],
        "--m": settings["pool"],
    }
    words = [str(word) for option in options.items() for word in option]
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--alone", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def main(args: Args) -> None:
    """Time what is missing, then write and print the table."""
    sizes = FULL if args.full else SMALL
    with one_sentence():
        methods = find_methods(args.methods)
    points = [(n, M) for n in args.anchors or sizes["anchors"]]
    points += [(N, m) for m in args.pool or sizes["pool"]]
    grid = [
        cells.Cell(
            NAME,
            {
                "data": "planted",
                "method": method.name,
                "anchors": n,
                "pool": m,
                # Most methods have one schedule, which either grid may reuse.
                "schedule": "short" if method.short and not args.full else "full",
                "seed": repetition,
            },
        )
        for n, m in dict.fromkeys(points)
        for method in methods
        for repetition in range(args.seeds)
    ]
    records = run_grid(grid, run, args)
    write_results(NAME, records, args.docs)
    print("\n".join(table_lines(records)))


def table_lines(records: list[dict[str, Any]]) -> list[str]:
    """Return our seconds beside the printed ones, a row a size."""
    printed: dict[tuple[str, int, int], list[str]] = {}
    for row in printed_rows("7"):
        sizes = dict(word.split("=") for word in row["metric"].split()[1:])
        key = row["method"], int(sizes["N"]), int(sizes["M"])
        printed.setdefault(key, []).append(f"{row['mean']} ({row['std']})")
    by = ("anchors", "pool", "method", "schedule")
    found = mean_and_deviation(records, by, "seconds")
    backends = {r["environment"]["backend"] for r in records if "environment" in r}
    lines = ["| N | M | method | schedule | seconds here | seconds printed |"]
    lines += ["| --- " * 6 + "|"]
    methods = distinct(records, "method")
    for (n, m, method, schedule), (mean, deviation) in sorted(
        found.items(), key=lambda item: (*item[0][:2], methods.index(item[0][2]))
    ):
        title = METHODS[method].title
        theirs = " and ".join(printed.get((method, n, m), [])) or "-"
        lines.append(
            f"| {n:,} | {m:,} | {title} | {schedule} | {mean:.1f} ({deviation:.1f}) "
            f"| {theirs} |"
        )
    where = f" on {', '.join(sorted(backends))}" if backends else ""
    lines += ["", f"Measured{where}, planted data; the paper's on a GPU."]
    if "short" in distinct(records, "schedule"):
        lines += ["A short schedule has fewer steps: its seconds are not comparable."]
    return lines


if __name__ == "__main__":
    main(tyro.cli(Args))
