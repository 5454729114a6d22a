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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import paper_findings
import tyro
from collected_tables import tables_page
from results import one_sentence, read_results

from anchordot_jax import InputError, files
from anchordot_jax.runs import cells


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
        _write(args.docs / "tables.md", tables_page(tables, methods_rows(args.methods)))
        _write(
            args.docs / "findings.md",
            paper_findings.markdown(paper_findings.judge_all(args.docs)),
        )
        for name, records in tables.items():
            draw = getattr(importlib.import_module(name), "draw", None)
            if draw is None:
                continue
            with contextlib.redirect_stdout(io.StringIO()):
                draw(records, args.docs)
            print(f"{args.docs / name}.png and .svg drawn from {name}.csv")


def table_names(docs: Path) -> list[str]:
    """Return the scripts beside this one whose tables are there."""
    scripts = sorted(Path(__file__).parent.glob("*.py"))
    return [s.stem for s in scripts if (docs / f"{s.stem}.csv").is_file()]


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
    for row in methods_rows(args.methods):
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


def methods_rows(path: Path) -> list[dict[str, Any]]:
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


def _write(path: Path, text: str) -> None:
    with files.replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"{path} written")


if __name__ == "__main__":
    main(tyro.cli(Args))
