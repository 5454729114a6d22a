"""The grid of the coupling benchmark: which cells there are, and how one is run."""

import dataclasses
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from problem import Size, Stored, parse_size, store
from processes import FailedError, measure

from anchordot_jax import InputError
from anchordot_jax.data.datasets import DATASETS
from anchordot_jax.runs import cells
from anchordot_jax.runs.cells import Cell, Result, Settings

OURS = {"ours-streamed": False, "ours-cached": True}
"""Whether the cost is stored."""
RIVALS = (
    *("ott-online", "ott-dense", "ott-dense-momentum", "pot-torch", "pot-log"),
    *("geomloss-keops", "geomloss-dense"),
)
# Variants that one problem shows: the second size of the first data set.
AT_ONE_SIZE = ("ott-dense-momentum", "pot-log")
# GeomLoss on a stored cost stops by no tolerance either, see rival_cell.geomloss.
USUAL_RIVALS = RIVALS[:-1]
PEER_ENVIRONMENT = (
    "python3.11 -m venv peers && peers/bin/pip install 'jax==0.8.*' 'ott-jax==0.6.*' "
    "pot torch==2.13.0 geomloss pykeops"
)
EXPERIMENT = "coupling"


@dataclasses.dataclass(frozen=True)
class Grid:
    """What to run and where."""

    data_folder: Path
    out: Path
    peer_python: Path | None
    limit: float
    threads: int


def choose_rivals(names: Sequence[str], peer_python: Path | None) -> list[str]:
    """Return the rivals asked for; "none" stands for none of them.

    Raises:
        InputError: an unknown rival, or no interpreter to run them with.
    """
    if list(names) == ["none"]:
        return []
    for name in names:
        if name not in RIVALS:
            raise InputError(
                f"There is no rival {name!r}; known are {', '.join(RIVALS)}, or none."
            )
    if peer_python is None:
        raise InputError(
            "Rivals run in an environment of their own: make one with "
            f"`{PEER_ENVIRONMENT}` and give --peer-python peers/bin/python, or leave "
            "them out with --rivals none."
        )
    if shutil.which(peer_python) is None:
        raise InputError(
            f"--peer-python {peer_python} is no program; make the environment with "
            f"`{PEER_ENVIRONMENT}`."
        )
    return list(names)


def points(
    data: Sequence[str], sizes: Sequence[str], anchors: Sequence[int], *, full: bool
) -> list[tuple[str, Size, int]]:
    """Return the problems: data set, sizes and number of anchors.

    Unless all combinations are asked for: of the first data set every size at the
    middle number of anchors, and every number of anchors at the first size; of the
    others the second size alone, at the middle number.
    """
    parsed = [parse_size(size) for size in sizes]
    for name in data:
        if name not in DATASETS:
            raise InputError(
                f"There is no data set {name!r}; known are {', '.join(DATASETS)}."
            )
    if full:
        return [(d, s, n) for d in data for s in parsed for n in anchors]
    middle = sorted(anchors)[(len(anchors) - 1) // 2]
    first, *others = data
    chosen = [(first, parsed[0], n) for n in anchors if n != middle]
    chosen += [(first, size, middle) for size in parsed]
    chosen += [(name, parsed[min(1, len(parsed) - 1)], middle) for name in others]
    # Small before large: what passes the limit is not tried on more.
    return sorted(chosen, key=lambda point: (point[1].n * point[1].m, point[2]))


def grid(
    chosen: Sequence[tuple[str, Size, int]],
    implementations: Sequence[str],
    *,
    limit: float,
    threads: int,
) -> list[Cell]:
    """Return a cell for every problem and implementation.

    The variants of AT_ONE_SIZE are run on the second size alone (on the only one where
    there is no second), with the data and anchors of its first problem.
    """
    sizes = sorted({size for _, size, _ in chosen}, key=lambda size: size.n * size.m)
    second = sizes[min(1, len(sizes) - 1)]
    once = next(point for point in chosen if point[1] == second)
    return [
        Cell(
            EXPERIMENT,
            {
                "data": data,
                "n": size.n,
                "m": size.m,
                "anchors": n,
                "implementation": implementation,
                "limit": limit,
                "threads": threads,
            },
        )
        for data, size, n in chosen
        for implementation in implementations
        if implementation not in AT_ONE_SIZE or (data, size, n) == once
    ]


def check_same_machine(stored: dict[str, Any], now: dict[str, Any], out: Path) -> None:
    """Raise InputError unless stored cells are of this machine, threads and peers.

    Peers count only where both runs have some.
    """
    differing = [
        f"{name} {old!r} against {new!r}"
        for name, old, new in (
            *((k, stored["machine"].get(k), v) for k, v in now["machine"].items()),
            *((k, stored["peers"].get(k), v) for k, v in now["peers"].items()),
        )
        if old != new and not (name in now["peers"] and not stored["peers"])
    ]
    if differing:
        raise InputError(
            f"{out} holds cells that were measured otherwise ({'; '.join(differing)}); "
            "give another --out, or remove it."
        )


def run(settings: Settings, options: Grid) -> Result:
    """Return what one cell took; `over_limit` where it was stopped at the limit."""
    record: dict[str, Any] = dict(settings)
    smaller = _passed_limit(record, options.out)
    if smaller is not None:
        return {"over_limit": options.limit, "seen_at": smaller}
    size = Size(record["n"], record["m"])
    place = options.out / "inputs"
    inputs = store(
        record["data"], options.data_folder, size, record["anchors"], out=place
    )
    words, python = _words(record, inputs, options)
    return {"epsilon": inputs.epsilon, "r": inputs.r} | measure(
        words, python=python, threads=options.threads, limit=options.limit
    )


def peer_versions(peer_python: Path) -> dict[str, Any]:
    """Return the versions of the libraries in the rivals' environment."""
    try:
        return measure(["rival_cell.py", "versions"], python=peer_python, threads=1)
    except FailedError as error:
        raise InputError(
            f"--peer-python {peer_python} cannot run the rivals ({error}); make the "
            f"environment with `{PEER_ENVIRONMENT}`."
        ) from None


def _words(
    record: dict[str, Any], inputs: Stored, options: Grid
) -> tuple[list[str | Path], str | Path]:
    """Return a cell's program with its arguments, and the interpreter it takes."""
    shared = ["--epsilon", repr(inputs.epsilon), "--limit", repr(options.limit)]
    name = record["implementation"]
    if name not in OURS:
        words: list[str | Path] = ["rival_cell.py", name, inputs.rivals, *shared]
        return words, options.peer_python or ""
    memory = 4 * record["n"] * record["m"] if OURS[name] else 0
    own = ["--gamma", repr(inputs.gamma), "--cost-memory", str(memory)]
    return ["ours_cell.py", inputs.ours, *shared, *own], sys.executable


def _passed_limit(record: dict[str, Any], out: Path) -> str | None:
    """Return a problem no larger in any size that passed the limit, where one did."""
    for other in cells.stored_records(out):
        theirs, result = other["settings"], other.get("result", {})
        names = ("implementation", "limit", "threads")
        same = all(theirs.get(name) == record[name] for name in names)
        if not same or "over_limit" not in result or "seen_at" in result:
            continue
        work = theirs["n"] * theirs["m"] <= record["n"] * record["m"]
        if work and theirs["anchors"] <= record["anchors"]:
            return f"{theirs['data']} {Size(theirs['n'], theirs['m'])}"
    return None
