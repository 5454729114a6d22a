"""Peak memory of the streamed coupling: large pools, a process each, a few iterations.

    python benchmarks/memory.py --sizes 12500 35000 100000

The pools are those of large_coupling.py. The peak of an iteration is that of all of
them, so two are made (one plain, one over-relaxed, and a look at the error), and no
array of n m anywhere: the cost of 100,000 x 100,000 alone would take 40 GB. About four
minutes on two CPU cores, nearly all of them for the largest. The results are written
after each size.
"""

import dataclasses
from pathlib import Path

import growth
import machine
import tyro
from output import DOCS, number, one_sentence, table, write_markdown
from problem import parse_size
from processes import FailedError, check_threads, measure

from anchordot_jax import InputError, files


@dataclasses.dataclass(frozen=True)
class Args:
    """What to measure."""

    sizes: tuple[str, ...] = ("12500", "35000", "100000")
    """Rows of the pools."""
    dim: int = 384
    """Dimension of the embeddings."""
    anchors: int = 32
    """Anchors, and so coordinates: few, since the time depends on them most."""
    limit: float = 600.0
    """Seconds that one size may take."""
    threads: int = 0
    """Cores and threads; 0: all cores."""
    docs: Path = DOCS
    """Folder of the results."""


def main(args: Args) -> None:
    """Measure each size, and write memory.json and memory.md."""
    with one_sentence():
        sizes = [parse_size(size) for size in args.sizes]
        threads = check_threads(args.threads)
        files.check_writable(args.docs)
        about = machine.describe(threads)
        cells = []
        for size in sizes:
            words = [
                *("large_coupling.py", "--n", size.n, "--m", size.m, "--json"),
                *("--dim", args.dim, "--anchors", args.anchors),
                *("--max-iterations", 1, "--check-every", 1),
            ]
            try:
                told = measure(
                    [str(word) for word in words], threads=threads, limit=args.limit
                )
            except FailedError as error:
                raise InputError(f"Pools of {size} failed: {error}.") from None
            cells.append({"n": size.n, "m": size.m, **told})
            print(cells[-1], flush=True)
            results = {
                "machine": about,
                "settings": {"dim": args.dim, "anchors": args.anchors},
                "cells": cells,
            }
            files.write_json(args.docs / "memory.json", results)
            write_markdown("memory", page(results), args.docs)


def page(results: dict) -> list[str]:
    """Return the parts of memory.md."""
    rows, points, seconds = [], [], []
    for cell in results["cells"]:
        peak, start = cell.get("peak_gigabytes"), cell.get("start_gigabytes")
        stopped = cell.get("over_limit")
        told = f"more than {stopped:g}" if stopped else number(cell["seconds"])
        above = None if peak is None or start is None else peak - start
        rows.append(
            (
                f"{cell['n']} x {cell['m']}",
                str(cell.get("r", "-")),
                str(cell.get("iterations", "-")),
                told,
                f"at least {number(peak)}" if stopped else number(peak),
                number(above),
                number(4 * cell["n"] * cell["m"] / 1e9),
            )
        )
        if not stopped:
            size = (cell["n"] * cell["m"]) ** 0.5
            points.append((size, above or 0.0))
            seconds.append((size, cell["seconds"]))
    heads = ("pools", "r", "iterations", "seconds", "peak GB", "above start")
    powers = [growth.exponent(points), growth.exponent(seconds)]
    return [
        machine.sentence(results["machine"]),
        table((*heads, "a stored cost, GB"), rows),
        f"Embeddings of {results['settings']['dim']} dimensions on both sides, "
        f"{results['settings']['anchors']} anchors. Peak: of the process, libraries "
        "included; above start: beyond what it held before the embeddings were drawn. "
        f"Growth with the root of n m: memory above start to the power "
        f"{number(powers[0])}, seconds (with compilation) to the power "
        f"{number(powers[1])}.",
    ]


if __name__ == "__main__":
    main(tyro.cli(Args))
