"""The coupling benchmark's cells as a Markdown table, a CSV, exponents and a plot."""

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import growth
import machine
from output import NOTHING, number, table, write_markdown

from anchordot_jax import files
from anchordot_jax.report.figures import COLOURS, MARKERS, SALT

TITLES = {
    "ours-streamed": "ours, streamed",
    "ours-cached": "ours, cached",
    "ott-online": "OTT-JAX, online",
    "ott-dense": "OTT-JAX, dense",
    "ott-dense-momentum": "OTT-JAX, dense, momentum 1.5",
    "pot-torch": "POT, sinkhorn_log, torch",
    "pot-log": "POT, sinkhorn_log, NumPy",
    "geomloss-keops": "GeomLoss, KeOps",
    "geomloss-dense": "GeomLoss, dense",
}
HEADS = (
    *("data", "pools", "N", "implementation", "iterations", "L1 error"),
    *("first call, s", "with start and imports, s", "second call, s"),
    *("of it profiles, s", "peak GB", "above start"),
)
GROWTH_HEADS = (
    *("implementation", "seconds, n", "s an iteration, n", "memory, n"),
    *("seconds, N", "without profiles, N"),
)
TOLERANCE = 1e-4


class Row(NamedTuple):
    """One implementation on one problem; None is not known."""

    data: str
    n: int
    m: int
    anchors: int
    r: int | None
    implementation: str
    iterations: int | None
    column_error: float | None
    cold_seconds: float | None
    warm_seconds: float | None
    process_seconds: float | None
    """Seconds from the process's start to the end of the first call."""
    profile_seconds: float | None
    peak_gigabytes: float | None
    start_gigabytes: float | None
    over_limit: float | None
    """Seconds after which it was stopped."""
    seen_at: str | None
    """The smaller problem that passed the limit, where this one was not tried."""
    not_run: str | None
    """Why there is no result."""

    @property
    def seconds(self) -> float | None:
        """Seconds of the second call, or of the first where no second was made."""
        if self.warm_seconds is not None:
            return self.warm_seconds
        return self.cold_seconds

    @property
    def above_start(self) -> float | None:
        """Gigabytes beyond the libraries and inputs."""
        if self.peak_gigabytes is None or self.start_gigabytes is None:
            return None
        return self.peak_gigabytes - self.start_gigabytes

    @property
    def rows(self) -> float:
        """Rows of a square problem of as many entries."""
        return math.sqrt(self.n * self.m)


def rows_of(records: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return a row a record of the grid."""
    return [_row(record) for record in records]


def write(
    rows: Sequence[Row], about: Mapping[str, Any], docs: Path, *, limit: float
) -> None:
    """Write coupling.md and .csv."""
    _write_csv(rows, docs / "coupling.csv")
    parts = [
        machine.sentence(about["machine"], about["peers"]),
        table(HEADS, [_cells(row) for row in rows]),
        _notes(limit),
        "Growth exponents, p of cost ~ size^p by least squares of the logarithms "
        "(number of problems in brackets), of second calls; n is the root of n m:",
        table(
            GROWTH_HEADS,
            [_growth(rows, name) for name in _implementations(rows)],
        ),
    ]
    write_markdown("coupling", parts, docs)


def plot(rows: Sequence[Row], docs: Path) -> None:
    """Write the picture: seconds and memory against the size, at one N and data set."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = main_line(rows)
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for number_, name in enumerate(_implementations(shown)):
        own = sorted((row for row in shown if row.implementation == name), key=_size)
        style = {
            "color": COLOURS[number_ % len(COLOURS)],
            "marker": MARKERS[number_ % len(MARKERS)],
            "markersize": 5,
            "linewidth": 1.3,
        }
        for axes, value in ((left, _any_seconds), (right, _memory)):
            known = [(row.rows, y) for row in own if (y := value(row)) is not None]
            axes.plot(*zip(*known, strict=True), **style) if known else None
            axes.plot([], [], label=TITLES[name], **style)
        stopped = [
            (row.rows, row.over_limit)
            for row in own
            if row.over_limit and not row.seen_at
        ]
        if stopped:
            left.plot(
                *zip(*stopped, strict=True),
                **{**style, "linestyle": "none", "markerfacecolor": "none"},
            )
    for axes, label in (
        (left, "seconds (first call where no second; hollow: stopped)"),
        (right, "peak memory above the start, GB"),
    ):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("root of n m")
        axes.set_ylabel(label)
        axes.grid(which="both", linewidth=0.3)
    left.legend(fontsize=8)
    for suffix, nothing in (("png", {"Software": None}), ("svg", {"Date": None})):
        path = docs / f"coupling.{suffix}"
        with (
            files.replacing(path) as temporary,
            mpl.rc_context({"svg.hashsalt": SALT}),
        ):
            figure.savefig(temporary, dpi=150, format=suffix, metadata=nothing)


def main_line(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the data set and number of anchors with the most sizes."""
    sizes: dict[tuple[str, int], set[tuple[int, int]]] = {}
    for row in rows:
        sizes.setdefault((row.data, row.anchors), set()).add((row.n, row.m))
    if not sizes:
        return []
    best = max(sizes, key=lambda key: len(sizes[key]))
    return [row for row in rows if (row.data, row.anchors) == best]


def _row(record: Mapping[str, Any]) -> Row:
    settings = record["settings"]
    result = record.get("result", {})
    known = {name: result.get(name) for name in Row._fields}
    known |= {name: settings[name] for name in ("data", "n", "m", "anchors")}
    known["implementation"] = settings["implementation"]
    if known["profile_seconds"] is None:
        known["profile_seconds"] = result.get("cold_profile_seconds")
    reason = record.get("reason")
    known["not_run"] = reason and reason.removeprefix("FailedError: ")
    return Row(**known)


def _cells(row: Row) -> list[str]:
    head = [
        row.data,
        f"{row.n} x {row.m}",
        str(row.anchors),
        TITLES[row.implementation],
    ]
    if row.not_run:
        return [*head, f"not run: {row.not_run}", *[NOTHING] * 7]
    iterations, error = number(row.iterations), number(row.column_error, 2)
    if row.column_error is not None and row.column_error > TOLERANCE:
        error += " (not reached)"
    first = number(row.cold_seconds)
    if row.over_limit is not None:
        first = f"stopped at {row.over_limit:g} of the process"
        if row.seen_at:
            first = f"not run: passed {row.over_limit:g} at {row.seen_at}"
    peak = number(row.peak_gigabytes)
    if row.over_limit is not None and row.peak_gigabytes is not None:
        peak = f"at least {peak}"
    calls = number(row.process_seconds), number(row.warm_seconds)
    times = [first, *calls, number(row.profile_seconds)]
    return [*head, iterations, error, *times, peak, number(row.above_start)]


def _notes(limit: float) -> str:
    return (
        "The first call compiles, the second does not; a second is not made where both "
        f"would pass the limit of {limit:g} s, which holds for the whole process, "
        "start and imports included. An implementation that passed the limit is not "
        "tried on a problem that is at least as large in n m and in N. Ours begins "
        "with anchors and pools, so its seconds hold the profiles' (two singular value "
        "decompositions in float64 and the pools' coordinates); the rivals are given "
        "the profiles. Ours over-relaxes "
        "(omega 1.5), which is its default; OTT-JAX and POT run their defaults, plain "
        "Sinkhorn. OTT-JAX with momentum 1.5 has the same over-relaxation. The "
        "exponentials of POT's NumPy backend run on one thread, those of its torch "
        "backend on all. These two variants, where asked for, are run on one problem. "
        "The error is that "
        "of the column marginal, by the same NumPy code for all. POT's threshold is on "
        "an L2 error, so its first call looks at the L1 error every ten iterations and "
        "the second runs as many in one go. GeomLoss anneals epsilon over a given "
        "number of iterations and knows no tolerance: that number is doubled until the "
        "error is small enough, in the first call, and the second runs it once. Above "
        "start: beyond what the process held with libraries loaded and inputs read."
    )


def _growth(rows: Sequence[Row], name: str) -> list[str]:
    by_size = [row for row in main_line(rows) if row.implementation == name]
    one = _several_anchors(rows, name)

    def fitted(
        own: Iterable[Row],
        size: Callable[[Row], float],
        value: Callable[[Row], float | None],
    ) -> str:
        known = [(size(row), y) for row in own if (y := value(row)) is not None]
        power = growth.exponent(known)
        return NOTHING if power is None else f"{power:.2f} ({len(known)})"

    return [
        TITLES[name],
        fitted(by_size, _size, _seconds),
        fitted(by_size, _size, _seconds_an_iteration),
        fitted(by_size, _size, _memory),
        fitted(one, _anchors, _seconds),
        fitted(one, _anchors, _solve_seconds),
    ]


def _several_anchors(rows: Sequence[Row], name: str) -> list[Row]:
    """Return an implementation's rows at the first size of the first data set."""
    own = [row for row in rows if row.implementation == name]
    if not own:
        return []
    first = min(own, key=_size)
    return [row for row in own if (row.n, row.m) == (first.n, first.m)]


def _implementations(rows: Iterable[Row]) -> list[str]:
    present = {row.implementation for row in rows}
    return [name for name in TITLES if name in present]


def _size(row: Row) -> float:
    return row.rows


def _anchors(row: Row) -> float:
    return row.anchors


def _seconds(row: Row) -> float | None:
    """Return the second call's seconds: a first one's would add the compilation."""
    return row.warm_seconds


def _any_seconds(row: Row) -> float | None:
    return None if row.over_limit is not None else row.seconds


def _seconds_an_iteration(row: Row) -> float | None:
    seconds = _solve_seconds(row)
    return None if seconds is None or not row.iterations else seconds / row.iterations


def _solve_seconds(row: Row) -> float | None:
    seconds = _seconds(row)
    return None if seconds is None else seconds - (row.profile_seconds or 0)


def _memory(row: Row) -> float | None:
    return None if row.over_limit is not None else row.above_start


def _write_csv(rows: Sequence[Row], path: Path) -> None:
    with (
        files.replacing(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(rows)
    print(f"{path} written")
