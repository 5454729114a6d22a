"""Every target of speed and memory as a ratio with what was measured: met or missed.

    python benchmarks/targets.py

Reads what coupling.py, floors.py, memory.py, fit_times.py and accuracy.py wrote to
--docs, times `anchordot --help`, prints every line, losing ones too, and writes
targets.md. What was not measured yet is said to be so.
"""

import csv
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import growth
import machine
import tyro
from coupling_targets import Cells, anchor_targets, coupling_targets
from output import DOCS, one_sentence, table, write_markdown
from processes import REPOSITORY, available_cores
from verdicts import Target, at_least, at_most, faster_by, with_floor

from anchordot_jax import InputError, files

WHOLE_FIT = {"schedule": "full", "m": 2000, "n": 500, "dim_x": 384, "dim_y": 384}
"""Settings of the fit that the paper's Table 7 times."""
HELP_RUNS = 5
NOTES = (
    "The machine above timed `anchordot --help`; every other line is of its own "
    "table's machine. A ratio of two libraries is of their second calls where both "
    "made one, else of their first calls, without imports. Of a rival that was stopped "
    "at the limit, which holds for its whole process, the limit is compared with our "
    "whole process up to the end of the first call: a least ratio."
)


@dataclasses.dataclass(frozen=True)
class Args:
    """Where the results are."""

    docs: Path = DOCS
    """Folder of the other commands' results, and of targets.md."""


def main(args: Args) -> None:
    """Print every target and write targets.md."""
    with one_sentence():
        if not args.docs.is_dir():
            raise InputError(
                f"{args.docs} is no folder; run coupling.py, floors.py, memory.py, "
                "fit_times.py and accuracy.py with --docs first."
            )
        found = all_targets(args.docs, help_seconds=help_seconds())
        for target in found:
            print(" | ".join((target.verdict, *target[:4])).replace("**", ""))
        heads = ("what", "against", "at least", "measured", "")
        rows = [(*target[:4], target.verdict) for target in found]
        counts = [sum(t.met is value for t in found) for value in (True, False, None)]
        summary = "{} met, {} missed, {} not measured or decided.".format(*counts)
        print(summary)
        about = machine.describe(len(available_cores()))
        parts = [machine.sentence(about), table(heads, rows), summary, NOTES]
        write_markdown("targets", parts, args.docs)


def help_seconds() -> float:
    """Return the least seconds of some runs of `anchordot --help`."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    words = [sys.executable, "-m", "anchordot_jax", "--help"]
    seconds = []
    for _ in range(HELP_RUNS):
        clock = time.perf_counter()
        subprocess.run(words, check=True, capture_output=True, env=environment)
        seconds.append(time.perf_counter() - clock)
    return min(seconds)


def all_targets(docs: Path, *, help_seconds: float) -> list[Target]:
    """Return every target with what the files of a folder say of it."""
    cells = _cells(docs / "coupling.csv")
    return [
        *coupling_targets(cells),
        *floor_targets(_read(docs / "floors.json")),
        *anchor_targets(cells),
        *memory_targets(_read(docs / "memory.json"), cells),
        fit_target(_read(docs / "fit_times.json")),
        *accuracy_targets(_read(docs / "accuracy.json")),
        at_most("`anchordot --help`", "", 0.5, help_seconds, " s"),
    ]


def floor_targets(floors: Mapping[str, Any]) -> Iterator[Target]:
    """Yield what floors.py measured."""
    size = f", {floors['settings']['size']} rows" if floors else ""
    for name, against in (
        ("streamed", "4 n m r flop at the measured matmul rate"),
        ("cached", "reading the cost twice"),
    ):
        own = floors.get(name)
        ratio = own and own["seconds"] / own["floor"]
        what = f"{name} coupling, an iteration{size}"
        yield with_floor(at_most(what, against, 1.3, ratio, "x"), ratio)
    epoch = floors.get("epoch")
    share = epoch and 100 * epoch["rate"] / epoch["matmul_rate"]
    step = at_least(f"distillation step{size}", "the matmul rate", 60, share, " %")
    yield with_floor(step, share and 100 / share)
    own = floors.get("selection")
    ratio = own and own["seconds"] / own["distillation_seconds"]
    what = f"selection on the 5 x 5 grid{size}"
    whole = "one distillation"
    if own:
        whole += f" of {floors['settings']['epochs']} epochs"
    yield at_most(what, whole, 1.0, ratio, "x")
    for name in ("streamed", "cached"):
        grown = floors.get("growth", {}).get(name)
        ratio = grown and grown[1]["seconds"] / grown[0]["seconds"]
        what, counts = f"{name} solve on ready coordinates{size}", "500 to 5000"
        if grown:
            counts = " to ".join(map(str, floors["settings"]["anchors"]))
        yield at_most(what, f"itself, N = {counts}", 1.2, ratio, "x")


def memory_targets(memory: Mapping[str, Any], cells: Cells) -> Iterator[Target]:
    """Yield the streamed coupling's growth in time and memory."""
    done = [c for c in memory.get("cells", ()) if "over_limit" not in c]
    large = [c for c in done if c["n"] >= 100_000 and c["m"] >= 100_000]
    peak = large[-1]["peak_gigabytes"] if large else None
    what, size = "streamed coupling, 100k x 100k", "its peak memory"
    if "settings" in memory:
        own = memory["settings"]
        size += f", {own['dim']} columns, {own['anchors']} anchors"
    yield at_most(what, size, 4.0, peak, " GB")
    power = growth.exponent(
        (_root(c), c["peak_gigabytes"] - c["start_gigabytes"]) for c in done
    )
    what = "streamed coupling as n grows"
    yield at_most(what, "memory ~ (n + m)^p", 1.1, power, "", wanted="p <= 1.1")
    streamed = [
        c
        for c in cells
        if (c["implementation"], c["anchors"], c["data"])
        == ("ours-streamed", "500", "flickr8k")
        and c["warm_seconds"]
    ]
    power = growth.exponent(
        (
            float(c["n"]) * float(c["m"]),
            (float(c["warm_seconds"]) - float(c["profile_seconds"] or 0))
            / float(c["iterations"]),
        )
        for c in streamed
    )
    against = "seconds an iteration ~ (n m)^p"
    yield at_most(what, against, 1.1, power, "", wanted="p <= 1.1")


def fit_target(times: Mapping[str, Any]) -> Target:
    """Return the whole fit against SOTAlign's."""
    methods = times.get("methods", {})
    ours, theirs = methods.get("anchordot", {}), methods.get("sotalign", {})
    what, against = "whole fit, M = 2000, N = 500", "our SOTAlign"
    settings = times.get("settings", {})
    other = [name for name, value in WHOLE_FIT.items() if settings.get(name) != value]
    if times and other:
        measured = f"fit_times.py with another {', '.join(other)}"
        return Target(what, against, "15x faster", measured, None)
    if "seconds" not in ours or not {"seconds", "over_limit"} & set(theirs):
        return Target(what, against, "15x faster", "fit_times.py", None)
    least = "seconds" not in theirs
    # The limit holds for the whole process, with imports.
    theirs_name, name = (
        ("over_limit", "process_seconds") if least else ("seconds", "seconds")
    )
    ratio = theirs[theirs_name] / ours[name]
    return faster_by(what, against, 15.0, ratio, least=least)


def accuracy_targets(accuracy: Mapping[str, Any]) -> Iterator[Target]:
    """Yield the potentials' and the recalls' differences."""
    what = "potentials"
    if not accuracy:
        against = "float64 reference"
        yield Target(what, against, "<= 0.001 epsilon", "accuracy.py", None)
    for data, own in accuracy.get("potentials", {}).items():
        for form in ("streamed", "cached"):
            for name, tolerance in (("default", "1e-4"), ("tight", "1e-6")):
                against = f"float64 reference, {data}, {accuracy['rows']} rows, {form}"
                against += f", tolerance {tolerance}"
                value = own[f"{form}_{name}"]
                yield at_most(what, against, 1e-3, value, " epsilon")
    if not accuracy:
        against = "plain settings"
        yield Target("recall", against, "<= 0.3 points", "accuracy.py", None)
    for data, own in accuracy.get("recall", {}).items():
        against = (
            f"plain settings, {data}, {accuracy['seeds']} seeds, "
            f"{accuracy['epochs']} epochs"
        )
        yield at_most("recall", against, 0.3, abs(own["difference"]), " points")


def _root(cell: Mapping[str, Any]) -> float:
    return float(cell["n"] * cell["m"]) ** 0.5


def _cells(path: Path) -> Cells:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        # Cells of an older table have no whole-process seconds.
        return [{"process_seconds": "", **row} for row in csv.DictReader(file)]


def _read(path: Path) -> dict[str, Any]:
    return files.read_json(path, "The benchmark") if path.is_file() else {}


if __name__ == "__main__":
    main(tyro.cli(Args))
