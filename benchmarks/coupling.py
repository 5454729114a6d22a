"""The coupling against other libraries: one command, a table, a CSV and a plot.

    python benchmarks/coupling.py --data-folder ../shared/data --out runs/benchmark \
        --peer-python peers/bin/python

Each cell (problem and implementation) runs in a process of its own, with the same
inputs from the disk, the same epsilon, threads and stopping rule: an L1 error of the
column marginal of at most 1e-4, or 1000 iterations. Ours begins with anchors and pools;
the rivals get the profiles, which they would need to have computed. Finished cells are
kept in --out and not run again. A cell that would pass --cell-limit seconds is stopped
and said so, and larger problems are not tried with that implementation.

The table and the CSV are written after every cell, so that a stop loses no more than
the cell in progress; the plot follows at the end. The default grid takes about ten
minutes on two CPU cores with --data flickr8k. An --out of another machine, of other
threads or other versions is refused. The rivals' environment:

    python3.11 -m venv peers
    peers/bin/pip install 'jax==0.8.*' 'ott-jax==0.6.*' pot torch==2.13.0 geomloss \
        pykeops
"""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro
from coupling_cells import (
    EXPERIMENT,
    OURS,
    USUAL_RIVALS,
    Grid,
    check_same_machine,
    choose_rivals,
    grid,
    peer_versions,
    points,
    run,
)
from coupling_table import Row, plot, rows_of, write
from machine import describe
from output import DOCS, one_sentence, tell
from problem import check
from processes import check_threads

from anchordot_jax import InputError, files
from anchordot_jax.runs import cells
from anchordot_jax.runs.cells import Progress


@dataclasses.dataclass(frozen=True)
class Args:
    """What to run."""

    data_folder: Path
    """Where the data sets' files lie."""
    out: Path
    """Folder of the inputs and the finished cells."""
    data: tuple[str, ...] = ("flickr8k", "chebi20")
    """The first one takes every size, each further one the second size."""
    sizes: tuple[str, ...] = ("2000", "3600", "8000")
    """Rows of both pools, or of the x and the y pool."""
    anchors: tuple[int, ...] = (100, 500, 5000)
    """Every size takes the middle one, the first size all of them."""
    full: bool = False
    """All sizes with all numbers of anchors, on all data."""
    rivals: tuple[str, ...] = USUAL_RIVALS
    """Other implementations; none: ours alone."""
    peer_python: Path | None = None
    """Interpreter of the rivals' environment."""
    cell_limit: float = 60.0
    """Seconds that a cell's process may take."""
    threads: int = 0
    """Cores and threads of every implementation; 0: all cores."""
    docs: Path = DOCS
    """Folder of the table and the plot."""


def main(args: Args) -> None:
    """Run what is missing, then write the table, the CSV and the plot."""
    with one_sentence():
        if not args.cell_limit > 0:
            raise InputError(
                f"--cell-limit must be above 0 seconds, got {args.cell_limit:g}."
            )
        rivals = choose_rivals(args.rivals, args.peer_python)
        threads = check_threads(args.threads)
        chosen = points(args.data, args.sizes, args.anchors, full=args.full)
        for data, _, anchors in chosen:
            check(data, args.data_folder, anchors)
        options = Grid(
            args.data_folder, args.out, args.peer_python, args.cell_limit, threads
        )
        peers = peer_versions(args.peer_python) if rivals and args.peer_python else {}
        names = [*OURS, *rivals]
        wanted = grid(chosen, names, limit=args.cell_limit, threads=threads)
        about = machine_of(args.out, threads, peers)

        def report(progress: Progress) -> None:
            tell(progress)
            found = stored(wanted, args.out)
            write(found, about, args.docs, limit=args.cell_limit)

        cells.run_cells(
            wanted, functools.partial(run, options=options), args.out, report=report
        )
        plot(stored(wanted, args.out), args.docs)


def machine_of(out: Path, threads: int, peers: dict[str, Any]) -> dict[str, Any]:
    """Return the machine and peers of the folder's cells: those of now.

    Raises:
        InputError: the cells there were measured otherwise.
    """
    told, now = out / "coupling.json", {"machine": describe(threads), "peers": peers}
    if told.is_file():
        before = files.read_json(told, "The benchmark")
        check_same_machine(before, now, out)
        now["peers"] = peers or before["peers"]
    else:
        files.check_writable(out)
    files.write_json(told, now)
    return now


def stored(wanted: Sequence[cells.Cell], out: Path) -> list[Row]:
    """Return the rows of the wanted cells that there are, in the grid's order."""
    found = {
        tuple(sorted(record["settings"].items())): record
        for record in cells.stored_records(out)
        if record["experiment"] == EXPERIMENT
    }
    keys = (tuple(sorted(cell.settings.items())) for cell in wanted)
    return rows_of(found[key] for key in keys if key in found)


if __name__ == "__main__":
    main(tyro.cli(Args))
