"""All results in one place: one tidy table, the paper's tables and findings, figures.

    python experiments/collect.py

Reads the tables of the scripts in --docs, the retrieval cells in --methods and the
finished cells in --out, and runs no cell. Writes into --docs `all.csv` (one row a cell,
and `all.parquet` where pyarrow is there), `tables.md` (the paper's tables, measured and
printed figures in columns of their own), `findings.md` (what the paper states:
confirmed, contradicted, not decided or not run yet), and every figure anew from its
table. Seconds.
"""

import contextlib
import csv
import dataclasses
import importlib
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import paper_findings
import tyro
from paper_tables import PAPER, PRINTED
from results import one_sentence, read_results

from anchordot_jax import InputError, files
from anchordot_jax.baselines.registry import METHODS
from anchordot_jax.comparison.summary import RECALLS
from anchordot_jax.runs import cells

STAND_INS = {"flickr30k": "flickr8k", "mscoco": "flickr8k", "chebi20-full": "chebi20"}
"""What is measured on where the paper's set is not: of the same kind of pairs."""
TABLES = (("1", "image-text retrieval"), ("2", "molecule-text retrieval"))
N = 500


@dataclasses.dataclass(frozen=True)
class Args:
    """What to collect."""

    docs: Path = Path("docs/results")
    """Folder of the scripts' tables, and of what is written."""
    methods: Path = Path("docs/all_methods.csv")
    """Table of the retrieval cells, by `experiments/all_methods.py`."""
    out: Path = Path("runs/figures")
    """Folder of the cells; what is in no table yet is added to all.csv."""


def main(args: Args) -> None:
    """Write everything, and print what was written."""
    with one_sentence():
        names = table_names(args.docs)
        if not names:
            raise InputError(
                f"{args.docs} holds no table of a script; run one of them first, or "
                f"give another --docs."
            )
        tables = {name: read_results(name, args.docs) for name in names}
        rows = all_rows(tables, args)
        write_rows(rows, args.docs)
        _write(args.docs / "tables.md", tables_page(tables, args))
        _write(
            args.docs / "findings.md",
            paper_findings.markdown(paper_findings.judge_all(args.docs)),
        )
        for name, records in tables.items():
            draw = getattr(_script(name), "draw", None)
            if draw is None:
                continue
            with contextlib.redirect_stdout(io.StringIO()):
                draw(records, args.docs)
            print(f"{args.docs / name}.png and .svg drawn from {name}.csv")


def table_names(docs: Path) -> list[str]:
    """Return the scripts beside this one whose tables are there."""
    scripts = sorted(Path(__file__).parent.glob("*.py"))
    return [s.stem for s in scripts if (docs / f"{s.stem}.csv").is_file()]


def _script(name: str) -> ModuleType:
    return importlib.import_module(name)


def all_rows(
    tables: Mapping[str, Sequence[Mapping[str, Any]]], args: Args
) -> list[dict[str, Any]]:
    """Return one row a cell of every source, none twice.

    Raises:
        InputError: a table or cell that cannot be read.
    """
    found = [
        {"source": name, **record["result"]}
        for name, records in tables.items()
        for record in records
    ]
    for row in _methods_rows(args.methods):
        found.append({"source": "all_methods", **row})
    if args.out.is_dir():
        for row in cells.tidy_rows(cells.stored_records(args.out)):
            found.append({"source": "cells", **row})
    # A script that shares another's cells has their rows too; both keep them.
    known: dict[str, dict[str, Any]] = {}
    written = set()
    for row in found:
        digest = _digest(row)
        if row["source"] == "cells" and digest in written:
            continue
        written.add(digest)
        known.setdefault(f"{row['source']} {digest}", row)
    return list(known.values())


def _digest(row: Mapping[str, Any]) -> str:
    values = sorted((k, str(v)) for k, v in row.items() if v is not None)
    return str([pair for pair in values if pair[0] != "source"])


def _methods_rows(path: Path) -> list[dict[str, Any]]:
    """Return the finished cells of the retrieval table; none where it is missing."""
    if not path.is_file():
        return []
    rows = (record["result"] for record in read_results(path.stem, path.parent))
    return [row for row in rows if row["status"] == "done"]


def write_rows(rows: Sequence[Mapping[str, Any]], docs: Path) -> None:
    """Write all.csv, and all.parquet where pyarrow is there."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with (
        files.replacing(docs / "all.csv") as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{docs / 'all.csv'} written, {len(rows)} rows")
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        print("pyarrow is not there: all.parquet is not written")
        return
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    with files.replacing(docs / "all.parquet") as temporary:
        pq.write_table(pa.table(columns), temporary)
    print(f"{docs / 'all.parquet'} written")


def _column(values: list[Any]) -> list[Any]:
    """Return values of one type: numbers where all are, else text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int}:
        return values
    if kinds <= {int, float}:
        return (
            [None if v is None else float(v) for v in values]
            if float in kinds
            else values
        )
    return [None if value is None else str(value) for value in values]


def tables_page(tables: Mapping[str, Sequence[Mapping[str, Any]]], args: Args) -> str:
    """Return the paper's tables in Markdown, ours beside the printed figures."""
    lines = ["# The paper's tables, measured and printed", ""]
    lines += ["Made from the tables beside this page by `experiments/collect.py`."]
    measured = _methods_rows(args.methods)
    for number, title in TABLES:
        lines += ["", f"## Table {number}: {title}, N = {N}, recall in %"]
        lines += retrieval_lines(number, measured)
    for name, records in tables.items():
        of_table = getattr(_script(name), "table_lines", None)
        if of_table is not None:
            head = (_script(name).__doc__ or name).splitlines()[0]
            lines += ["", f"## {head}", "", *of_table(records)]
    if "figure17_selection" in tables:
        lines += ["", "## Table 9: gamma and eta chosen (seed 0)", ""]
        lines += choice_lines(tables["figure17_selection"])
    return "\n".join(lines) + "\n"


def retrieval_lines(number: str, measured: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return one table a data set of the paper: each recall here and as printed."""
    printed: dict[str, dict[tuple[str, str], str]] = {}
    with PRINTED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["table"] == number:
                text = row["mean"] + (f" ({row['std']})" if row["std"] else "")
                own = printed.setdefault(row["dataset"], {})
                own[row["method"], row["metric"]] = text
    rows = [row for row in measured if row["n"] == N]
    there = {row["dataset"] for row in rows}
    lines = []
    for dataset, texts in printed.items():
        stand_in = dataset if dataset in there else STAND_INS[dataset]
        heads = [
            f"{name.replace('recall', 'R')} {place}"
            for name in RECALLS
            for place in ("here", "printed")
        ]
        lines += ["", f"Here: {stand_in}. Printed: {dataset}."]
        if stand_in != dataset:
            lines[-1] += " Other data and encoders: compare the order, not the figures."
        lines += ["", "| method | seeds | " + " | ".join(heads) + " |"]
        lines += ["| --- " * (len(heads) + 2) + "|"]
        for method in PAPER:
            own = [
                row
                for row in rows
                if row["dataset"] == stand_in and row["method"] == method
            ]
            values = [
                text
                for name in RECALLS
                for text in (
                    _spread([100 * row[name] for row in own]),
                    texts[method, name],
                )
            ]
            short = (
                " (s)" if any(str(row.get("short")) == "True" for row in own) else ""
            )
            title = METHODS[method].title + short
            lines.append(f"| {title} | {len(own)} | " + " | ".join(values) + " |")
    return [*lines, "", "(s): a shorter schedule here."]


def choice_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return Table 9: what was chosen here and what the paper printed."""
    printed: dict[str, dict[str, str]] = {}
    with PRINTED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["table"] == "9":
                printed.setdefault(row["dataset"], {})[row["metric"]] = row["mean"]
    lines = ["| here | gamma | eta | printed | gamma | eta |", "| --- " * 6 + "|"]
    own = {
        r["settings"]["data"]: r["result"]
        for r in records
        if r["settings"]["seed"] == 0
    }
    for dataset, values in printed.items():
        here = dataset if dataset in own else STAND_INS[dataset]
        found = own.get(here)
        ours = f"{found['gamma']:g} | {found['eta']:g}" if found else "- | -"
        lines.append(
            f"| {here} | {ours} | {dataset} | {values['gamma']} | {values['eta']} |"
        )
    return [*lines, "", "Other data and encoders than the paper's."]


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    deviation = f" ({np.std(values, ddof=1):.2f})" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{deviation}"


def _write(path: Path, text: str) -> None:
    with files.replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"{path} written")


if __name__ == "__main__":
    main(tyro.cli(Args))
