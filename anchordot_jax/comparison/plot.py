"""The table as a figure: each method's mean recall, seed by seed."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from anchordot_jax import files
from anchordot_jax.baselines.protocol import Method
from anchordot_jax.comparison.summary import MEAN, Row

# Okabe and Ito's colours, which the colour-blind can tell apart.
BLUE, ORANGE, GREY = "#0072B2", "#E69F00", "#999999"


def plot_recalls(
    path: Path,
    rows: Sequence[Row],
    methods: Mapping[str, Method],
    *,
    reference: str,
    chance: float,
) -> None:
    """Write a picture (by its suffix: .png, .svg or .pdf) of the mean recalls.

    Args:
        path: where to.
        rows: one a method.
        methods: their titles.
        reference: the method that is drawn in a colour of its own.
        chance: mean recall of a random order, in %.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ordered = sorted(rows, key=lambda row: row.means[MEAN])
    figure = Figure(figsize=(7, 1 + 0.26 * len(ordered)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for height, row in enumerate(ordered):
        colour = ORANGE if row.method == reference else BLUE
        colour = GREY if methods[row.method].needs.transductive else colour
        deviation = row.deviations[MEAN]
        axes.errorbar(
            row.means[MEAN],
            height,
            xerr=deviation if deviation == deviation else None,
            fmt="o",
            color=colour,
            capsize=3,
        )
    axes.axvline(chance, color="black", linestyle=":", linewidth=1)
    axes.annotate("chance", (chance, len(ordered) - 0.5), fontsize=8)
    titles = [methods[row.method].title for row in ordered]
    axes.set_yticks(range(len(ordered)), titles, fontsize=8)
    axes.set_xlabel("mean of the six recalls, % (bars: standard deviation)", fontsize=8)
    axes.set_title("grey: sees all test items at once", fontsize=8, loc="right")
    axes.set_ylim(-0.6, len(ordered) - 0.1)
    axes.grid(axis="x", linewidth=0.3)
    with files.replacing(path) as temporary:
        figure.savefig(temporary, dpi=150, format=path.suffix[1:])
