"""How the fit went: choice by held-out anchors, Sinkhorn, training, settings."""

import contextlib
import json
from typing import Any

import numpy as np

from anchordot_jax import dotted, files
from anchordot_jax.errors import InputError
from anchordot_jax.recipes.soft_selection import SoftSelection
from anchordot_jax.report import figures
from anchordot_jax.report.blocks import (
    Block,
    Caution,
    Code,
    Figure,
    Section,
    Table,
    Text,
)
from anchordot_jax.report.context import Context
from anchordot_jax.runs.card import CITATION
from anchordot_jax.selection import Selection

METRICS = ("epoch", "pool_loss", "anchor_loss", "chance_loss", "logit_scale")
"""What a line of metrics.jsonl must have to be drawn."""

LARGEST = 1e30
"""Beyond it a number is damage, and no figure could show it."""

BIBTEX = """\
@article{kordes2026anchordot,
  title   = {Representation Alignment from a Few Paired Data via Distilled
             Optimal Transport},
  author  = {Kordes, Julien and Dorent, Reuben},
  journal = {arXiv preprint arXiv:2610.12781},
  year    = {2026}
}"""


def selection_section(context: Context) -> Section:
    """Return the curve of candidates and what was chosen."""
    chosen = context.chosen
    blocks: list[Block] = [Text(chosen.reason)]
    if not chosen.curve:
        blocks.append(Text("No curve: nothing was tried on held-out anchors."))
    elif isinstance(chosen, Selection):
        blocks += _paper_curve(chosen)
    else:
        blocks += _refined_curve(chosen)
    return Section("selection", "Choice of settings", blocks)


def _paper_curve(chosen: Selection) -> list[Block]:
    soft = [point for point in chosen.curve if point.rho is not None]
    # A fixed rho is on every point; one that was chosen is on those of one gamma, eta.
    points = chosen.curve
    if len(soft) < len(points):
        points = tuple(point for point in points if point.rho is None)
    lines, errors = {}, {}
    for gamma in sorted({point.gamma for point in points}):
        own = [point for point in points if point.gamma == gamma]
        own.sort(key=lambda point: point.eta)
        name = f"gamma {gamma:g}"
        lines[name] = _columns([(p.eta, p.log_rank) for p in own])
        errors[name] = np.array([p.standard_error for p in own])
    svg = figures.curves(
        lines,
        x_label="eta",
        y_label="mean log rank, held out",
        log_x=True,
        errors=errors,
        markers=True,
    )
    best = min(points, key=lambda point: point.log_rank)
    blocks: list[Block] = [
        Figure(
            "selection",
            svg,
            "Mean natural logarithm of the held-out anchors' ranks in the plan; 0 is "
            "perfect. Bars: standard error of the distance to the best candidate.",
            f"{len(lines)} curves of the mean log rank over eta, one a gamma. Lowest "
            f"at gamma {best.gamma:g}, eta {best.eta:g}: {best.log_rank:.2f}.",
        ),
        Text(
            f"Chosen: gamma {chosen.gamma:g}, eta {chosen.eta:g}. The usual gamma 0.75 "
            f"and eta 0.02 are only left for a candidate that is better by more than a "
            f"standard error."
        ),
    ]
    if soft and len(soft) < len(chosen.curve):
        blocks.append(_rho_table(chosen))
    return blocks


def _rho_table(chosen: Selection) -> Table:
    """Return the candidates for rho, at the gamma and eta chosen without it."""
    gamma, eta = next((p.gamma, p.eta) for p in chosen.curve if p.rho is not None)
    rows = [
        [
            "none" if point.rho is None else f"{point.rho:g}",
            f"{point.log_rank:.3f}",
            f"{point.standard_error:.3f}",
        ]
        for point in chosen.curve
        if (point.gamma, point.eta) == (gamma, eta)
    ]
    taken = "none" if chosen.rho is None else f"{chosen.rho:g}"
    caption = f"Candidates for rho at gamma {gamma:g}, eta {eta:g}; chosen: {taken}"
    return Table(caption, ["rho", "mean log rank", "standard error"], rows)


def _refined_curve(chosen: SoftSelection) -> list[Block]:
    blocks: list[Block] = []
    for name in dict.fromkeys(point.setting for point in chosen.curve):
        own = [point for point in chosen.curve if point.setting == name]
        label = name.replace("_", " ")
        svg = figures.curves(
            {label: _columns([(point.value, point.log_rank) for point in own])},
            x_label=label,
            y_label="mean log rank, held out",
            log_x=True,
            errors={label: np.array([point.standard_error for point in own])},
            markers=True,
        )
        taken = getattr(chosen, name)
        said = f"Held-out log rank over the {label}; chosen {taken:g}."
        blocks.append(Figure(f"selection-{name}", svg, said, said))
    return blocks


def transport_section(context: Context) -> Section:
    """Return Sinkhorn's marginal error, check by check."""
    solved = context.run.load_coupling()
    title = "Convergence of the transport"
    if solved is None:
        return Section("transport", title, [Text("Left out: no coupling is stored.")])
    errors = np.asarray(solved.errors)
    errors = errors[np.isfinite(errors)]
    count, error = int(solved.n_iterations), float(solved.marginal_error)
    settings = context.config.coupling
    every = min(settings.check_every, settings.max_iterations)
    # The iterations of a warm start come before the first check.
    first = count - every * (len(errors) - 1)
    tolerance = settings.tolerance
    if isinstance(context.chosen, SoftSelection):
        tolerance = context.config.soft_cca.tolerance
    svg = figures.curves(
        {"marginal error": (first + every * np.arange(len(errors)), errors)},
        x_label="Sinkhorn iteration",
        y_label="L1 error of the marginal"
        if solved.rho is None
        else "L1 change of the sums",
        log_y=True,
        markers=True,
        rules={"tolerance": tolerance},
    )
    ended = "Converged" if bool(solved.converged) else "Stopped"
    said = f"{ended} after {count} iterations with a marginal error of {error:.2g}"
    blocks: list[Block] = [
        Figure("transport", svg, f"{said}; tolerance {tolerance:.2g}.", said + "."),
        Text(f"Epsilon {float(solved.epsilon):.4g}, in units of 1 - cosine."),
    ]
    if not bool(solved.converged):
        blocks.insert(
            0,
            Caution(
                f"The transport did not converge: marginal error {error:.2g} after "
                f"{count} iterations."
            ),
        )
    return Section("transport", title, blocks)


def training_section(context: Context) -> Section:
    """Return the losses and the logit scale, epoch by epoch."""
    records = _records(context)
    if not records:
        said = "Left out: the run has no metrics.jsonl."
        return Section("training", "Training", [Text(said)])
    epochs = np.array([record["epoch"] for record in records])
    series = {
        name: np.array([record[key] for record in records])
        for name, key in (("pools", "pool_loss"), ("anchors", "anchor_loss"))
    }
    chance = records[-1]["chance_loss"]
    losses = figures.curves(
        {name: (epochs, values) for name, values in series.items()},
        x_label="epoch",
        y_label="loss, nats",
        rules={"chance, pools": chance},
    )
    scale = np.array([record["logit_scale"] for record in records])
    scales = figures.curves(
        {"logit scale": (epochs, scale)}, x_label="epoch", y_label="learned logit scale"
    )
    ends = ", ".join(f"{name} {values[-1]:.2f}" for name, values in series.items())
    said = (
        f"Loss after {len(epochs)} epochs: {ends}; chance for the pools {chance:.2f}."
    )
    return Section(
        "training",
        "Training",
        [
            Figure("losses", losses, said, said),
            Figure(
                "scale",
                scales,
                f"Factor of the cosines, {scale[0]:.1f} to {scale[-1]:.1f}.",
                f"The learned logit scale from {scale[0]:.1f} to {scale[-1]:.1f}.",
            ),
        ],
    )


def settings_section(context: Context) -> Section:
    """Return every setting, versions and devices, seconds, and the citation."""
    flat = dotted.flatten(context.config.to_dict())
    settings = [(name, _shown(value)) for name, value in flat.items()]
    blocks: list[Block] = [Table("Settings of the fit", ["setting", "value"], settings)]
    rows = _environment(context)
    if rows:
        blocks.append(Table("Versions and machine of the fit", ["what", "value"], rows))
    else:
        blocks.append(Text("Versions left out: env.json is missing or damaged."))
    seconds = _seconds(context)
    if seconds:
        rows = [(stage, f"{value:.1f}") for stage, value in seconds.items()]
        blocks.append(Table("Seconds of the fit", ["stage", "seconds"], rows))
    cited = " ".join(CITATION.split())
    blocks += [Text(f"The method: {cited}"), Code("As BibTeX:", BIBTEX)]
    return Section("settings", "Settings, versions, citation", blocks)


def _environment(context: Context) -> list[tuple[str, str]]:
    """Return versions and machine; nothing where env.json is missing or damaged."""
    try:
        found = files.read_json(context.run.path / "env.json", "The run")
    except InputError:
        return []
    versions, keys = found.get("versions"), ("python", "platform", "backend")
    if not isinstance(versions, dict) or not found.keys() >= set(keys):
        return []
    rows = [(name, str(value)) for name, value in versions.items()]
    return rows + [(name, str(found[name])) for name in keys]


def _seconds(context: Context) -> dict[str, float]:
    """Return the seconds of each stage; none where they are not stored."""
    stored = context.run.load_result("seconds")
    seconds = {} if stored is None else stored.get("seconds")
    if not isinstance(seconds, dict) or not all(map(_is_number, seconds.values())):
        raise InputError(
            f"{context.run.path / 'results/seconds.json'} does not hold the seconds of "
            f"a fit's stages; delete it for a report without them."
        )
    return seconds


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) <= LARGEST


def _records(context: Context) -> list[dict[str, Any]]:
    path = context.run.path / "metrics.jsonl"
    if not path.is_file():
        return []
    records = []
    for line in path.read_text("utf-8", errors="replace").splitlines():
        # The last line of a killed fit may be cut.
        with contextlib.suppress(ValueError, RecursionError):
            records.append(json.loads(line))
    return [
        record
        for record in records
        if isinstance(record, dict)
        and record.get("stage") == "distillation"
        and all(_is_number(record.get(name)) for name in METRICS)
    ]


def _columns(points: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.array(sorted(points)).T
    return x, y


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
