"""The times and their floors as the parts of floors.md."""

from collections.abc import Iterator
from typing import Any

import machine
from output import number, table


def page(results: dict[str, Any]) -> list[str]:
    """Return the parts of floors.md; of what was measured so far."""
    own = results["settings"]
    count = own["anchors"][0]
    rows = [*_forms(results), *_growth(results), *_students(results)]
    notes = (
        "An iteration is a whole solve of a given number of iterations, divided by "
        "it: computing the cost where it is stored, the exponentials and the looks at "
        "the error are in it. Each time and the rate of its floor were measured in "
        "turn, and the fastest of several counts for both; a ratio below 1 says that "
        "the measured rate is no floor. As N grows, the solve on ready coordinates is "
        "timed, without the profiles."
    )
    if "epoch" in results:
        notes += (
            " The distillation's operations are those of the matrix products that an "
            "epoch needs by the shorter contraction of `affinity.py` "
            "(benchmarks/flops.py), softmaxes and Adam uncounted. It has "
            f"{results['epoch']['steps']} steps an epoch and {own['dim']} shared "
            "dimensions; a whole one is reckoned as its first epoch, with compilation, "
            "and the others at the seconds of the fastest timed one. The selection's "
            "seconds hold its compilation."
        )
    return [
        machine.sentence(results["machine"]),
        f"{own['data']}, pools of {own['size']}, N = {count} where no other is said, "
        f"r = {own['r']}:",
        table(("what", "measured", "against", "ratio"), rows),
        notes,
    ]


def _forms(results: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    floors = {
        "streamed": f"4 n m r flop at {results['tile_rate'] / 1e9:.1f} GFLOP/s, the "
        "tile's product",
        "cached": f"the cost read twice at {results['read_rate'] / 1e9:.1f} GB/s",
    }
    for name, floor in floors.items():
        took = results[name]
        yield _against(
            f"{name} coupling, an iteration",
            f"{took['seconds']:.4f} s",
            f"{floor}: {took['floor']:.4f} s",
            took["seconds"] / took["floor"],
        )


def _growth(results: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    counts = results["settings"]["anchors"]
    for name, (few, many) in results.get("growth", {}).items():
        yield _against(
            f"{name} coupling, solve on ready coordinates, N = {counts[1]}",
            f"{many['seconds']:.3f} s, {many['iterations']} iterations",
            f"N = {counts[0]}: {few['seconds']:.3f} s, {few['iterations']} iterations",
            many["seconds"] / few["seconds"],
        )


def _students(results: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    if "epoch" in results:
        epoch = results["epoch"]
        yield _against(
            "distillation, an epoch",
            f"{epoch['rate'] / 1e9:.1f} GFLOP/s",
            f"{epoch['matmul_rate'] / 1e9:.1f} GFLOP/s, a product of shape "
            f"{' x '.join(map(str, epoch['matmul_shape']))}",
            epoch["rate"] / epoch["matmul_rate"],
        )
    if "selection" in results:
        chosen = results["selection"]
        yield _against(
            f"selection, {chosen['candidates']} candidates",
            f"{chosen['seconds']:.1f} s",
            f"one distillation of {results['settings']['epochs']} epochs: "
            f"{chosen['distillation_seconds']:.1f} s",
            chosen["seconds"] / chosen["distillation_seconds"],
        )


def _against(what: str, measured: str, floor: str, ratio: float) -> tuple[str, ...]:
    return what, measured, floor, number(ratio)
