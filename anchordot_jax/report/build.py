"""The report of a run, and its files: report.html, report.md and plots/."""

from collections.abc import Iterator
from pathlib import Path

from anchordot_jax import files
from anchordot_jax.config import CHOSEN
from anchordot_jax.report import html, markdown
from anchordot_jax.report.blocks import Figure, Report
from anchordot_jax.report.context import Context
from anchordot_jax.report.data_sections import (
    data_section,
    map_section,
    spectrum_section,
)
from anchordot_jax.report.fit_sections import (
    selection_section,
    settings_section,
    training_section,
    transport_section,
)
from anchordot_jax.report.match_section import match_section
from anchordot_jax.report.retrieval_sections import (
    examples_section,
    hubness_section,
    recall_section,
)

PLOTS = "plots"


def build_report(context: Context) -> Report:
    """Return the report of a finished run."""
    info = context.model.info
    chosen = ", ".join(f"{name} {info[name]:g}" for name in CHOSEN if name in info)
    lead = (
        f"{info['n_anchors']} known pairs and pools of {info['n_pool_x']} (x) and "
        f"{info['n_pool_y']} (y) unpaired items; recipe {context.config.recipe}, "
        f"{chosen.replace('_', ' ')}, seed {context.config.seed}."
    )
    makers = (
        data_section,
        recall_section,
        examples_section,
        match_section,
        selection_section,
        transport_section,
        training_section,
        hubness_section,
        spectrum_section,
        map_section,
        settings_section,
    )
    name = context.run.path.resolve().name
    return Report(f"Alignment report: {name}", lead, [make(context) for make in makers])


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write report.html, report.md and the figures of the latter; return the paths."""
    written = []
    for figure in _figures(report):
        path = folder / PLOTS / f"{figure.name}.svg"
        _write(path, figure.svg + "\n")
    for name, text in (
        ("report.html", html.page(report)),
        ("report.md", markdown.document(report, PLOTS)),
    ):
        _write(folder / name, text)
        written.append(folder / name)
    return written


def _figures(report: Report) -> Iterator[Figure]:
    for section in report.sections:
        yield from (block for block in section.blocks if isinstance(block, Figure))


def _write(path: Path, text: str) -> None:
    with files.replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
