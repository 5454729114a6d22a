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
from typing import Any, NamedTuple

import growth
import machine
import tyro
from output import DOCS, number, one_sentence, table, write_markdown
from processes import REPOSITORY, available_cores

from anchordot_jax import InputError, files

WHOLE_FIT = {"schedule": "full", "m": 2000, "n": 500, "dim_x": 384, "dim_y": 384}
"""Settings of the fit that the paper's Table 7 times."""
NO_FLOOR = 0.95
"""Below this ratio with its floor a time shows that the measured rate is none."""
LARGE = 3593
"""Rows from which on the coupling is compared with others."""
HELP_RUNS = 5
NOTES = (
    "The machine above timed `anchordot --help`; every other line is of its own "
    "table's machine. A ratio of two libraries is of their second calls where both "
    "made one, else of their first calls, without imports. Of a rival that was stopped "
    "at the limit, which holds for its whole process, the limit is compared with our "
    "whole process up to the end of the first call: a least ratio."
)
Cells = list[dict[str, str]]


class Target(NamedTuple):
    """One promise and what was measured for it."""

    what: str
    against: str
    wanted: str
    measured: str
    met: bool | None
    """None: not known."""
    unknown: str = "not measured"
    """Why it is not known."""

    @property
    def verdict(self) -> str:
        """Return met, missed, or why neither is known."""
        if self.met is None:
            return self.unknown
        return "met" if self.met else "**missed**"


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
        _at_most("`anchordot --help`", "", 0.5, help_seconds, " s"),
    ]


def coupling_targets(cells: Cells) -> Iterator[Target]:
    """Yield the coupling against other libraries, on every large problem."""
    pairs = (
        ("streamed", "ours-streamed", "ott-online", "OTT-JAX online", 5.0),
        ("cached", "ours-cached", "ott-dense", "OTT-JAX dense", 4.0),
        (
            *("cached", "ours-cached", "ott-dense-momentum"),
            *("OTT-JAX dense with momentum 1.5", 4.0),
        ),
        ("cached", "ours-cached", "pot-torch", "POT sinkhorn_log, torch", 20.0),
        ("cached", "ours-cached", "pot-log", "POT sinkhorn_log, NumPy", 20.0),
    )
    for form, own, other, title, factor in pairs:
        both = list(_both(cells, own, other))
        what = f"coupling, {form}"
        if not both:
            yield Target(what, title, f"{factor:g}x faster", "coupling.py", None)
        for ours, theirs in both:
            place = f"{title}, {_place(ours)}"
            yield _faster(what, place, factor, ours, theirs)
            if other == "ott-online":
                yield _no_more_memory(what, place, ours, theirs)


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
        yield _with_floor(_at_most(what, against, 1.3, ratio, "x"), ratio)
    epoch = floors.get("epoch")
    share = epoch and 100 * epoch["rate"] / epoch["matmul_rate"]
    step = _at_least(f"distillation step{size}", "the matmul rate", 60, share, " %")
    yield _with_floor(step, share and 100 / share)
    own = floors.get("selection")
    ratio = own and own["seconds"] / own["distillation_seconds"]
    what = f"selection on the 5 x 5 grid{size}"
    whole = "one distillation"
    if own:
        whole += f" of {floors['settings']['epochs']} epochs"
    yield _at_most(what, whole, 1.0, ratio, "x")
    for name in ("streamed", "cached"):
        grown = floors.get("growth", {}).get(name)
        ratio = grown and grown[1]["seconds"] / grown[0]["seconds"]
        what, counts = f"{name} solve on ready coordinates{size}", "500 to 5000"
        if grown:
            counts = " to ".join(map(str, floors["settings"]["anchors"]))
        yield _at_most(what, f"itself, N = {counts}", 1.2, ratio, "x")


def anchor_targets(cells: Cells) -> Iterator[Target]:
    """Yield whole calls, profiles included, at two numbers of anchors."""
    few, many = 500, 5000
    for form in ("streamed", "cached"):
        what, against = f"{form} coupling with profiles", f"itself, N = {few} to {many}"
        own = [cell for cell in cells if cell["implementation"] == f"ours-{form}"]
        pairs = [
            (a, b)
            for a in own
            for b in own
            if (a["anchors"], b["anchors"]) == (str(few), str(many))
            and _place(a) == _place(b)
        ]
        if not pairs:
            yield Target(what, against, "<= 1.2x", "coupling.py", None)
        for small, large in pairs:
            place = f"{against}, {_place(small)}"
            call, seconds = _same_call(small, large)
            if seconds is None:
                yield Target(what, place, "<= 1.2x", "no call of both", None)
            else:
                ratio = seconds[1] / seconds[0]
                yield _at_most(what, place, 1.2, ratio, f"x ({call})", wanted="<= 1.2x")


def memory_targets(memory: Mapping[str, Any], cells: Cells) -> Iterator[Target]:
    """Yield the streamed coupling's growth in time and memory."""
    done = [c for c in memory.get("cells", ()) if "over_limit" not in c]
    large = [c for c in done if c["n"] >= 100_000 and c["m"] >= 100_000]
    peak = large[-1]["peak_gigabytes"] if large else None
    what, size = "streamed coupling, 100k x 100k", "its peak memory"
    if "settings" in memory:
        own = memory["settings"]
        size += f", {own['dim']} columns, {own['anchors']} anchors"
    yield _at_most(what, size, 4.0, peak, " GB")
    power = growth.exponent(
        (_root(c), c["peak_gigabytes"] - c["start_gigabytes"]) for c in done
    )
    what = "streamed coupling as n grows"
    yield _at_most(what, "memory ~ (n + m)^p", 1.1, power, "", wanted="p <= 1.1")
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
    yield _at_most(what, against, 1.1, power, "", wanted="p <= 1.1")


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
    return _ratio(what, against, 15.0, ratio, least=least)


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
                yield _at_most(what, against, 1e-3, value, " epsilon")
    if not accuracy:
        against = "plain settings"
        yield Target("recall", against, "<= 0.3 points", "accuracy.py", None)
    for data, own in accuracy.get("recall", {}).items():
        against = (
            f"plain settings, {data}, {accuracy['seeds']} seeds, "
            f"{accuracy['epochs']} epochs"
        )
        yield _at_most("recall", against, 0.3, abs(own["difference"]), " points")


def _faster(
    what: str, place: str, factor: float, ours: dict[str, str], theirs: dict[str, str]
) -> Target:
    wanted = f"{factor:g}x faster"
    for cell in (theirs, ours):
        if cell["seen_at"] or cell["not_run"]:
            return Target(what, place, wanted, _reason(cell), None)
    if ours["over_limit"]:
        # Stopped where the other's first call was through: slower, not unknown.
        met = None if theirs["over_limit"] else False
        return Target(what, place, wanted, _reason(ours), met, "not decided")
    if theirs["over_limit"]:
        whole = _number(ours["process_seconds"])
        if whole is None:
            return Target(what, place, wanted, _reason(theirs), None, "not decided")
        ratio = float(theirs["over_limit"]) / whole
        note = " (whole process, first call)"
        return _ratio(what, place, factor, ratio, least=True, note=note)
    call, seconds = _same_call(ours, theirs)
    if seconds is None:
        return Target(what, place, wanted, "no call of both", None)
    ratio = seconds[1] / seconds[0]
    return _ratio(what, place, factor, ratio, least=False, note=f" ({call})")


def _same_call(
    one: Mapping[str, str], other: Mapping[str, str]
) -> tuple[str, tuple[float, float] | None]:
    """Return both cells' seconds of the second calls, else of the first, and which."""
    for call, name in (
        ("second calls", "warm_seconds"),
        ("first calls", "cold_seconds"),
    ):
        if one[name] and other[name]:
            return call, (float(one[name]), float(other[name]))
    return "", None


def _with_floor(target: Target, ratio: float | None) -> Target:
    """Return the target undecided where the time is below what should be its floor."""
    if ratio is None or ratio >= NO_FLOOR:
        return target
    return target._replace(
        met=None, unknown="not decided: the measured rate is no floor"
    )


def _ratio(
    what: str,
    against: str,
    factor: float,
    ratio: float,
    *,
    least: bool,
    note: str = "",
) -> Target:
    """Return the target of a speed-up; of one whose least value is known only."""
    met: bool | None = ratio >= factor
    # A rival that was stopped may be slower still.
    if least and not met:
        met = None
    measured = f"{'at least ' if least else ''}{number(ratio)}x{note}"
    return Target(what, against, f"{factor:g}x faster", measured, met, "not decided")


def _no_more_memory(
    what: str, place: str, ours: dict[str, str], theirs: dict[str, str]
) -> Target:
    mine, other = _number(ours["peak_gigabytes"]), _number(theirs["peak_gigabytes"])
    if mine is None or other is None:
        return Target(what, place, "peak no higher", "no peak known", None)
    # A stopped program's peak is a least value.
    least = "at least " if theirs["over_limit"] else ""
    measured = f"{number(mine)} against {least}{number(other)} GB"
    met = mine <= other or (None if least else False)
    if ours["over_limit"]:
        met = None
    return Target(what, place, "peak no higher", measured, met, "not decided")


def _at_most(
    what: str,
    against: str,
    most: float,
    value: float | None,
    unit: str,
    *,
    wanted: str | None = None,
) -> Target:
    met = None if value is None else bool(value <= most)
    return _bounded(what, against, wanted or f"<= {most:g}{unit}", value, unit, met)


def _at_least(
    what: str, against: str, least: float, value: float | None, unit: str
) -> Target:
    met = None if value is None else bool(value >= least)
    return _bounded(what, against, f">= {least:g}{unit}", value, unit, met)


def _bounded(
    what: str,
    against: str,
    wanted: str,
    value: float | None,
    unit: str,
    met: bool | None,
) -> Target:
    measured = "-" if value is None else f"{number(value)}{unit}"
    return Target(what, against, wanted, measured, met)


def _both(
    cells: Cells, own: str, other: str
) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Yield the large problems that both implementations were given."""
    key = ("data", "n", "m", "anchors")
    theirs = {
        tuple(cell[name] for name in key): cell
        for cell in cells
        if cell["implementation"] == other
    }
    for cell in cells:
        place = tuple(cell[name] for name in key)
        large = min(int(cell["n"]), int(cell["m"])) >= LARGE
        if cell["implementation"] == own and large and place in theirs:
            yield cell, theirs[place]


def _place(cell: Mapping[str, str]) -> str:
    return f"{cell['data']} {cell['n']} x {cell['m']}"


def _reason(cell: Mapping[str, str]) -> str:
    if cell["seen_at"]:
        return f"not run, passed {float(cell['over_limit']):g} s at a smaller size"
    if cell["over_limit"]:
        return f"stopped at {float(cell['over_limit']):g} s, whole process"
    return f"not run: {cell['not_run']}"


def _number(text: str) -> float | None:
    return float(text) if text else None


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
