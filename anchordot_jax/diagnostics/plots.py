"""The diagnosis as figures: the terms, rows of the plan, residuals of the pairs."""

from pathlib import Path
from typing import Any

import numpy as np

from anchordot_jax import coupling, files
from anchordot_jax.diagnostics.diagnosis import Diagnosis

# Okabe and Ito's colours, which the colour-blind can tell apart.
BLUE, ORANGE, GREEN, PURPLE, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#999999",
)
SHOWN_ROWS = 9


def plot_terms(path: Path, found: Diagnosis) -> None:
    """Write bars of the objective's terms, and of the pairs' costs where known."""
    terms = found.terms
    bars = {
        "transport": (terms.transport, BLUE),
        "coupling complexity": (terms.complexity, ORANGE),
        "variation of x": (terms.variation_x, GREEN),
        "variation of y": (terms.variation_y, PURPLE),
        "total": (terms.total, GREY),
        "transport / mass": (terms.unit_transport, BLUE),
        "mean gap": (found.mean_gap, GREY),
    }
    if found.pairs is not None:
        bars["mean pair cost"] = (found.pairs.pair_cost, BLUE)
        bars["pair residual"] = (found.pairs.pair_residual, ORANGE)
    figure, axes = _figure(height=0.8 + 0.32 * len(bars))
    for place, (value, colour) in enumerate(bars.values()):
        axes.barh(place, value, color=colour)
        axes.annotate(f" {value:.4f}", (max(value, 0), place), va="center", fontsize=8)
    axes.set_yticks(range(len(bars)), list(bars), fontsize=8)
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.6)
    axes.margins(x=0.15)
    axes.set_xlabel(
        f"units of the cost 1 - cosine; eps {found.config.epsilon:g}, rho "
        f"{found.config.rhos[0]:g} and {found.config.rhos[1]:g}",
        fontsize=8,
    )
    _save(figure, path)


def plot_plan_rows(path: Path, found: Diagnosis) -> None:
    """Write some rows of the plan: the shares of their largest matches, in order.

    The rows stand at even steps of the entropy's order. With pairs, a mark says where
    a row's own partner is among its matches.
    """
    order = np.argsort(found.plan.entropies)
    steps = np.linspace(0, len(order) - 1, min(SHOWN_ROWS, len(order)))
    chosen = order[np.round(steps).astype(int)]
    block = coupling.plan_block(
        found.x[chosen],
        found.y,
        found.solved.f[chosen],
        found.solved.g,
        found.solved.epsilon,
    )
    shares = np.asarray(block)
    shares = shares / shares.sum(axis=1, keepdims=True)
    figure, axes = _figure(height=3.6)
    for number, (row, share) in enumerate(zip(chosen, shares, strict=True)):
        fade = 0.25 + 0.75 * number / max(1, len(chosen) - 1)
        largest = np.sort(share)[::-1]
        places = np.arange(1, len(largest) + 1)
        axes.plot(places, largest, color=BLUE, alpha=fade, linewidth=1)
        if found.pairs is not None:
            own = 1 + int((share > share[row]).sum())
            axes.plot(own, share[row], "o", color=ORANGE, markersize=5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(bottom=max(shares[shares > 0].min(), 1e-8))
    axes.set_xlabel("place among the row's matches", fontsize=8)
    axes.set_ylabel("share of the row's mass", fontsize=8)
    said = "dots: the row's own partner" if found.pairs is not None else ""
    axes.set_title(
        f"{len(chosen)} rows of the plan, from the sharpest (faint) to the most even. "
        f"{said}",
        fontsize=8,
    )
    _save(figure, path)


def plot_residuals(path: Path, found: Diagnosis) -> None:
    """Write a histogram of the pairs' residuals; pairs must be known."""
    if found.pairs is None:
        return
    residuals = found.pairs.residuals
    figure, axes = _figure(height=3.2)
    axes.hist(residuals, bins=min(50, max(5, len(residuals) // 10)), color=BLUE)
    axes.axvline(0, color="black", linewidth=0.6)
    mean = float(residuals.mean())
    axes.axvline(mean, color=ORANGE, label=f"mean {mean:.4f}")
    axes.set_xlabel(
        "pair cost less the row's transport cost (right: worse than the soft match)",
        fontsize=8,
    )
    axes.set_ylabel("pairs", fontsize=8)
    axes.legend(fontsize=8)
    _save(figure, path)


def _figure(*, height: float) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.tick_params(labelsize=8)
    axes.grid(axis="x", linewidth=0.3)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    with files.replacing(path) as temporary:
        figure.savefig(temporary, dpi=150, format=path.suffix[1:])
