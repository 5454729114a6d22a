"""The report's drawings, each a small SVG of one axes that a phone can show."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

# Okabe and Ito's colours, which the colour-blind can tell apart.
BLUE, ORANGE, GREEN, PURPLE, RED, GREY = COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#D55E00",
    "#777777",
)
MARKERS = "osD^vP"
WIDTH, HEIGHT = 4.2, 3.0
# The same ids in every run, so that the same report is the same bytes.
SALT = "anchordot"


def draw(paint: Callable[[Any], None], *, height: float = HEIGHT) -> str:
    """Return the SVG of one axes, painted by a function."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": SALT, "svg.fonttype": "path"}):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.tick_params(labelsize=8.5)
        axes.grid(linewidth=0.3)
        axes.set_axisbelow(True)
        paint(axes)
        out = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(out, format="svg", metadata=nothing, transparent=True)
    text = out.getvalue()
    return re.sub(r"\s*\n\s*", "\n", text[text.index("<svg") :]).strip()


def curves(
    lines: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    x_label: str,
    y_label: str,
    log_y: bool = False,
    log_x: bool = False,
    errors: Mapping[str, np.ndarray] | None = None,
    markers: bool = False,
    rules: Mapping[str, float] | None = None,
) -> str:
    """Return lines by name; `rules` are level lines, `errors` bars of a line."""

    def paint(axes: Any) -> None:
        for number, (name, (x, y)) in enumerate(lines.items()):
            axes.errorbar(
                x,
                y,
                yerr=None if errors is None else errors[name],
                color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)] if markers else None,
                markersize=4,
                linewidth=1.3,
                elinewidth=0.7,
                capsize=2,
                label=name,
            )
        for name, level in (rules or {}).items():
            axes.axhline(level, color="black", linestyle=":", linewidth=1, label=name)
        if log_y:
            axes.set_yscale("log")
        if log_x:
            axes.set_xscale("log")
        _label(axes, x_label, y_label, legend=len(lines) + len(rules or {}) > 1)

    return draw(paint)


def intervals(
    rows: Mapping[str, tuple[float, float, float]], *, x_label: str, rule: float
) -> str:
    """Return a dot with its interval a row, and a line for chance."""

    def paint(axes: Any) -> None:
        for height, (mean, low, high) in enumerate(rows.values()):
            axes.plot([low, high], [height, height], color=BLUE, linewidth=2)
            axes.plot(mean, height, "o", color=BLUE, markersize=6)
        axes.axvline(rule, color="black", linestyle=":", linewidth=1)
        axes.annotate(" chance", (rule, -0.75), fontsize=8.5, va="center")
        axes.set_yticks(range(len(rows)), list(rows), fontsize=8.5)
        axes.set_ylim(len(rows) - 0.4, -1.1)
        axes.set_xlim(left=0)
        _label(axes, x_label, "", legend=False)

    return draw(paint, height=1.1 + 0.36 * len(rows))


def histograms(counts: Mapping[str, np.ndarray], *, x_label: str, y_label: str) -> str:
    """Return step histograms of whole numbers, one a name."""
    top = max(int(values.max()) for values in counts.values())
    # A long tail is cut into at most 40 bins of equal whole width.
    width = max(1, -(-(top + 1) // 40))
    edges = np.arange(0, top + 1 + width, width) - 0.5

    def paint(axes: Any) -> None:
        for number, (name, values) in enumerate(counts.items()):
            axes.hist(
                values,
                bins=edges,
                histtype="step",
                color=COLOURS[number],
                linewidth=1.4,
                label=name,
            )
        axes.set_yscale("log")
        _label(axes, x_label, y_label, legend=True)

    return draw(paint)


def cloud(
    x: np.ndarray, y: np.ndarray, pairs: Sequence[tuple[int, int]], *, label: str
) -> str:
    """Return the points of both sides in a plane, some pairs joined by lines."""

    def paint(axes: Any) -> None:
        for row, column in pairs:
            axes.plot(*zip(x[row], y[column], strict=True), color=GREY, linewidth=0.5)
        axes.scatter(*x.T, s=9, color=BLUE, marker="o", label="x", linewidths=0)
        axes.scatter(*y.T, s=12, color=ORANGE, marker="^", label="y", linewidths=0)
        axes.set_xticks([])
        axes.set_yticks([])
        _label(axes, label, "", legend=True)

    return draw(paint, height=3.4)


def _label(axes: Any, x_label: str, y_label: str, *, legend: bool) -> None:
    axes.set_xlabel(x_label, fontsize=9)
    axes.set_ylabel(y_label, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.legend(fontsize=8, frameon=False)
