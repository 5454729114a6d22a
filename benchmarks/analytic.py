"""Bytes, operations and expected times from formulas, for machines not measured.

    python benchmarks/analytic.py

Writes analytic.md: pools of a million rows on one and on eight GPUs, from the figures
of the GPUs' public data sheets, and, where floors.json and coupling.csv lie beside it,
the same formula's time for this machine against the one measured.
"""

import csv
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import machine
import tyro
from flops import coupling_iteration, distillation_step
from output import DOCS, number, one_sentence, table, write_markdown

from anchordot_jax import files
from anchordot_jax.tiles import tile_shape

FLOAT = 4
HEADS = (
    *("device", "number", "TFLOP an iteration", "TB moved", "GB held"),
    "s an iteration",
)
# What an unfused tile costs: it is written once, and read for its maximum and its sum.
TILE_PASSES = 3


class Device(NamedTuple):
    """Rates of one processor."""

    name: str
    flops: float
    """float32 operations a second, without TF32."""
    bandwidth: float
    """Bytes a second of its memory."""
    memory: float
    """Bytes."""
    link: float
    """Bytes a second from it to its neighbour, one way."""


# NVIDIA's data sheets: A100 80GB SXM (FP32 19.5 TFLOPS, 2,039 GB/s, NVLink 600 GB/s
# both ways) and H100 SXM (FP32 67 TFLOPS, 3.35 TB/s, NVLink 900 GB/s both ways).
DEVICES = (
    Device("A100 80GB SXM", 19.5e12, 2.039e12, 80e9, 300e9),
    Device("H100 SXM", 67e12, 3.35e12, 80e9, 450e9),
)


class Expected(NamedTuple):
    """What an iteration takes, each device alone; seconds are bounds."""

    flops: float
    bytes: float
    """Read from and written to the device's memory."""
    sent: float
    """Bytes sent to the neighbour."""
    resident: float
    """Bytes that the device holds."""
    least: float
    """Seconds where arithmetic, memory and links overlap wholly."""
    most: float
    """Seconds where nothing overlaps."""


def iteration(device: Device, n: int, m: int, r: int, *, devices: int = 1) -> Expected:
    """Return what one streamed Sinkhorn iteration takes.

    Two half-iterations compute the cost once each, 2 n m r operations, tile by tile
    (`tiles.tile_shape`). A tile is written and read twice where nothing is fused, and
    reads the coordinates of its rows and columns anew. Rows are split over the
    devices; each passes the other side's part around the ring, so that a tile is at
    most as wide as a device's part.
    """
    flops = coupling_iteration(n, m, r) / devices
    rows, columns = tile_shape(max(n, m) // devices, backend="gpu")
    tiles = 2 * TILE_PASSES * FLOAT * n * m
    coordinates = FLOAT * r * 2 * n * m * (1 / rows + 1 / columns)
    moved = (tiles + coordinates) / devices
    sent = FLOAT * (r + 1) * (n + m) * (devices - 1) / devices
    own = (n + m) / devices
    resident = FLOAT * (own * (2 * r + 4) + rows * columns)
    parts = flops / device.flops, moved / device.bandwidth, sent / device.link
    return Expected(flops, moved, sent, resident, max(parts), sum(parts))


def solve_seconds(
    n: int, m: int, r: int, iterations: int, *, flops: float, bandwidth: float
) -> float:
    """Return the seconds of a streamed solve on a processor with caches.

    A tile stays in them, so that only the coordinates come from the memory.
    """
    arithmetic = coupling_iteration(n, m, r) / flops
    return iterations * (arithmetic + FLOAT * r * (n + m) / bandwidth)


@dataclasses.dataclass(frozen=True)
class Args:
    """What to expect."""

    rows: int = 1_000_000
    """Rows of both pools."""
    r: int = 384
    """Coordinates: the smaller of the ranks of both sides' anchors."""
    iterations: int = 30
    """Sinkhorn iterations of the last column."""
    epochs: int = 200
    """Epochs of the distillation."""
    dim_x: int = 1280
    dim_y: int = 384
    dim: int = 1024
    """Dimension of the shared space."""
    docs: Path = DOCS
    """Folder of the results."""


def main(args: Args) -> None:
    """Write analytic.md."""
    with one_sentence():
        rows = [_row(args, device, devices) for device in DEVICES for devices in (1, 8)]
        step = distillation_step(
            *(2000, 2000, args.dim_x + 1, args.dim_y + 1, args.dim, args.r)
        )
        epoch = step * (args.rows // 2000)
        parts = [
            f"From data sheets, not measured: pools of {args.rows} rows a side, r = "
            f"{args.r}, tiles as the package cuts them on a GPU:",
            table(
                (*HEADS, f"{args.iterations} iterations, min"),
                rows,
            ),
            "All but the number are each device's own. The seconds are a range: "
            "arithmetic, memory and links overlapped wholly, or not at all; rates are "
            "the data sheets', float32 without TF32, which no program quite reaches. "
            f"A distillation step on chunks of 2000 needs {step / 1e9:.1f} GFLOP "
            f"({args.dim_x} and {args.dim_y} columns, {args.dim} shared dimensions), "
            f"an epoch {epoch / 1e12:.1f} TFLOP, {args.epochs} epochs at the "
            "data sheets' float32 rates "
            + " and ".join(
                f"{args.epochs * epoch / d.flops / 60:.1f} min on one {d.name}"
                for d in DEVICES
            )
            + ".",
            *_checked(args.docs),
        ]
        write_markdown("analytic", parts, args.docs)


def _range(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    return str(least) if least == most else f"{least} to {most}"


def _row(args: Args, device: Device, devices: int) -> tuple[str, ...]:
    took = iteration(device, args.rows, args.rows, args.r, devices=devices)
    minutes = [seconds * args.iterations / 60 for seconds in (took.least, took.most)]
    return (
        device.name,
        str(devices),
        number(took.flops / 1e12),
        number(took.bytes / 1e12),
        number(took.resident / 1e9),
        f"{number(took.least)} to {number(took.most)}",
        f"{number(minutes[0])} to {number(minutes[1])}",
    )


def _checked(docs: Path) -> list[str]:
    """Return the same formula against the times measured here, where there are any."""
    floors, cells = docs / "floors.json", docs / "coupling.csv"
    if not floors.is_file() or not cells.is_file():
        return []
    rates = files.read_json(floors, "The floors")
    lines, iterations = [], []
    with cells.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["implementation"] != "ours-streamed" or not row["warm_seconds"]:
                continue
            sizes = [int(row[name]) for name in ("n", "m", "r", "iterations")]
            iterations.append(sizes[3])
            expected = solve_seconds(
                *sizes, flops=rates["tile_rate"], bandwidth=rates["read_rate"]
            )
            measured = float(row["warm_seconds"]) - float(row["profile_seconds"])
            lines.append(
                (
                    row["data"],
                    f"{row['n']} x {row['m']}",
                    *(str(size) for size in sizes[2:]),
                    number(expected),
                    number(measured),
                    number(measured / expected),
                )
            )
    if not lines:
        return []
    return [
        "On the machine of floors.md "
        f"({machine.sentence(rates['machine']).removesuffix('.')}), with its rates "
        f"({rates['tile_rate'] / 1e9:.1f} GFLOP/s, "
        f"{rates['read_rate'] / 1e9:.1f} GB/s), tiles in the caches and no "
        "exponentials counted, against the streamed solves of coupling.md, which made "
        f"{_range(iterations)} iterations:",
        table(
            ("data", "pools", "r", "iterations", "expected s", "measured s", "ratio"),
            lines,
        ),
    ]


if __name__ == "__main__":
    main(tyro.cli(Args))
