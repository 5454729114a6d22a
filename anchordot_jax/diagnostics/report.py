"""What a diagnosis leaves in its folder: JSON, table, worst pairs, plots."""

import csv
from pathlib import Path
from typing import Any

import numpy as np

from anchordot_jax import files
from anchordot_jax.diagnostics import plots
from anchordot_jax.diagnostics.diagnosis import Diagnosis, summary

Ids = np.ndarray | None

LISTED = 10
"""Pairs listed in the table; the CSV file has all of them."""


def write_report(
    out: Path,
    found: Diagnosis,
    *,
    what: dict[str, Any],
    ids_x: Ids = None,
    ids_y: Ids = None,
) -> list[str]:
    """Write diagnosis.json, table.md, the plots and pairs.csv; return their names.

    Args:
        out: folder to write.
        found: the diagnosis.
        what: JSON values that say what was compared.
        ids_x: ids of the x file's rows, where it has some.
        ids_y: the same for y.
    """
    written = ["diagnosis.json", "table.md"]
    files.write_json(out / "diagnosis.json", {"compared": what, **summary(found)})
    worst = worst_pairs(found, ids_x, ids_y)
    with files.replacing(out / "table.md") as temporary:
        temporary.write_text(markdown(found, worst), encoding="utf-8")
    for suffix in ("svg", "png"):
        plots.plot_terms(out / f"terms.{suffix}", found)
        plots.plot_plan_rows(out / f"plan_rows.{suffix}", found)
        written += [f"terms.{suffix}", f"plan_rows.{suffix}"]
        if found.pairs is not None:
            plots.plot_residuals(out / f"residuals.{suffix}", found)
            written.append(f"residuals.{suffix}")
    if found.pairs is not None:
        with (
            files.replacing(out / "pairs.csv") as temporary,
            temporary.open("w", encoding="utf-8", newline="") as stream,
        ):
            writer = csv.DictWriter(stream, list(worst[0]))
            writer.writeheader()
            writer.writerows(worst)
        written.append("pairs.csv")
    return written


def rows_of_table(found: Diagnosis) -> list[tuple[str, str, str]]:
    """Return (name, figure, what it is) of every line of the table."""
    terms = found.terms
    lines = [
        ("transport", terms.transport, "cost of the soft matching"),
        ("coupling complexity", terms.complexity, "eps KL(plan | independent)"),
        ("variation of x", terms.variation_x, "rho KL(row sums | uniform)"),
        ("variation of y", terms.variation_y, "rho KL(column sums | uniform)"),
        ("total", terms.total, "the objective at its optimum"),
        ("mass", terms.mass, "share of the mass that is matched"),
        ("transport / mass", terms.unit_transport, "cost a unit of matched mass"),
        ("mean gap", found.mean_gap, "distance of the centroids"),
        ("bound of the mean gap", found.mean_gap_bound, "by the plan scaled to 1"),
        ("plan entropy", found.plan_entropy, "nats a row"),
        ("logit entropy", found.logit_entropy, "nats a row, logits 100 cosine"),
    ]
    if found.modality_auc is not None:
        said = "linear probe of the side: 0.5 mixed, 1 separable"
        lines.append(("modality AUC", found.modality_auc, said))
    if found.pairs is not None:
        known = found.pairs
        lines += [
            ("pair cost", known.pair_cost, "mean 1 - cosine of the pairs"),
            ("pair residual", known.pair_residual, "pair cost less transport / mass"),
            ("strain", known.strain, "complexity + variations + pair residual"),
            *((name, value, "retrieval") for name, value in known.recalls.items()),
        ]
    return [(name, f"{value:.4f}", said) for name, value, said in lines]


def markdown(found: Diagnosis, worst: list[dict[str, Any]]) -> str:
    """Return the table, how the solve ended, and the worst pairs."""
    lines = ["| what | value | meaning |", "| --- | --- | --- |"]
    lines += [f"| {' | '.join(row)} |" for row in rows_of_table(found)]
    lines += ["", how_it_ended(found)]
    if worst:
        heads = list(worst[0])
        lines += ["", f"The {min(LISTED, len(worst))} worst pairs by residual:", ""]
        lines += ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
        lines += [
            "| " + " | ".join(str(row[head]) for head in heads) + " |"
            for row in worst[:LISTED]
        ]
    return "\n".join(lines) + "\n"


def how_it_ended(found: Diagnosis) -> str:
    """Return a sentence on the solve, a warning where it did not converge."""
    solved, config = found.solved, found.config
    count, error = int(solved.n_iterations), float(solved.error)
    if bool(solved.converged):
        return f"Converged in {count} iterations (error {error:.1e})."
    return (
        f"Warning: not converged. After {count} iterations the potentials still moved "
        f"by {error:.1e} an iteration, and the threshold is {config.threshold:.1e}; "
        f"raise --max-iterations or --epsilon before you trust the terms."
    )


def worst_pairs(found: Diagnosis, ids_x: Ids, ids_y: Ids) -> list[dict[str, Any]]:
    """Return every pair, the largest residual first; empty without pairs."""
    if found.pairs is None:
        return []
    known = found.pairs
    order = np.argsort(-known.residuals, kind="stable")
    return [
        {
            "x": _name(ids_x, known.rows[k, 0]),
            "y": _name(ids_y, known.rows[k, 1]),
            "cost": f"{known.costs[k]:.4f}",
            "residual": f"{known.residuals[k]:.4f}",
        }
        for k in order
    ]


def _name(ids: Ids, row: int) -> str:
    return str(row if ids is None else ids[row])
