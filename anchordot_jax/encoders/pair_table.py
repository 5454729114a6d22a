"""The pairs that a source defines, and the items that were left out."""

import csv
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from anchordot_jax import files
from anchordot_jax.encoders.journal import Refusal, Row


class Pair(NamedTuple):
    """Ids of an x row and a y row of one record."""

    x: str
    y: str
    split: str


def pairs_of(rows_x: Sequence[Row], rows_y: Sequence[Row]) -> list[Pair]:
    """Return every x row with every y row of the same record, in the order of x."""
    by_record: dict[str, list[Row]] = {}
    for row in rows_y:
        by_record.setdefault(row.record, []).append(row)
    return [
        Pair(row.id, partner.id, row.split)
        for row in rows_x
        for partner in by_record.get(row.record, ())
    ]


def write_pairs(folder: Path, pairs: Sequence[Pair]) -> dict[str, int]:
    """Write `pairs.csv`, and `pairs-SPLIT.csv` for each split; return their sizes."""
    splits = {pair.split for pair in pairs} - {""}
    tables = {"pairs.csv": list(pairs)}
    for split in sorted(splits):
        name = f"pairs-{split.replace('/', '-')}.csv"
        tables[name] = [pair for pair in pairs if pair.split == split]
    for name, chosen in tables.items():
        heads = ("x", "y", "split") if splits else ("x", "y")
        _write_csv(folder / name, heads, (pair[: len(heads)] for pair in chosen))
    return {name: len(chosen) for name, chosen in tables.items()}


def write_refusals(path: Path, sides: dict[str, Sequence[Refusal]]) -> int:
    """Write the items left out on each side with their reasons; return how many."""
    rows = [
        (side, refusal.id, refusal.reason)
        for side, refusals in sides.items()
        for refusal in refusals
    ]
    _write_csv(path, ("side", "id", "reason"), rows)
    return len(rows)


def read_refusals(path: Path) -> dict[str, list[Refusal]]:
    """Return the items left out on each side, as written."""
    found: dict[str, list[Refusal]] = {}
    if path.is_file():
        with path.open(encoding="utf-8", newline="") as stream:
            for row in itertools.islice(csv.reader(stream), 1, None):
                found.setdefault(row[0], []).append(Refusal(row[1], row[1], row[2]))
    return found


def _write_csv(
    path: Path, heads: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    with (
        files.replacing(path) as temporary,
        temporary.open(
            "w", encoding="utf-8", newline="", errors="backslashreplace"
        ) as stream,
    ):
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(heads)
        writer.writerows(rows)
