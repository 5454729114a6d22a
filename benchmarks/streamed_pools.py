"""Memory and seconds of a fit whose x pool stays in its file, or is in memory.

    python benchmarks/streamed_pools.py --rows 400000 --dim 512 --epochs 1

Writes a synthetic HDF5 file of float16 rows, block by block, and fits it twice, each
in a process of its own: streamed (`distillation.pool_memory` 0) and resident. The y
pool is small, so that the transport takes little. Printed are the seconds of each
stage, the peak memory of the process, what it held before the fit, and the largest
difference between the two models' parameters.
"""

import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import tyro
from measuring import resident

BLOCK = 10_000
MEGA = 1e6


@dataclasses.dataclass(frozen=True)
class Args:
    """Sizes of the problem."""

    rows: int = 400_000
    """Rows of the x pool."""
    others: int = 2_000
    """Rows of the y pool."""
    dim: int = 512
    """Columns of both sides."""
    anchors: int = 64
    """Known pairs, which bound the columns of the coordinates."""
    epochs: int = 1
    """Passes over the pools."""
    chunk_size: int = 2_000
    """Rows of each pool in a step."""
    resident: bool = True
    """Whether to fit with the pool in memory as well."""
    fit: Path | None = None
    """Internal: the folder of the files, in the process that fits."""
    memory: int = 0
    """Internal: its limit in bytes."""


def write_side(path: Path, rows: int, args: Args, seed: int) -> None:
    """Write rows of a random map of 32 latent numbers, in float16."""
    random = np.random.default_rng(seed)
    view = random.normal(size=(32, args.dim))
    with h5py.File(path, "w") as file:
        data = file.create_dataset("embeddings", (rows, args.dim), np.float16)
        for start in range(0, rows, BLOCK):
            count = min(BLOCK, rows - start)
            # The anchors come first and are the same latent rows on both sides.
            latent = np.random.default_rng(start).normal(size=(count, 32))
            data[start : start + count] = latent @ view


def fit(folder: Path, args: Args) -> None:
    """Fit the folder's files and print what it took, as JSON."""
    from anchordot_jax import Config, CouplingConfig, DistillationConfig
    from anchordot_jax.alignment import fit_data
    from anchordot_jax.comparison.memory import peak_memory
    from anchordot_jax.data import split_by_exclusion
    from anchordot_jax.fit_files import read_fit_data
    from anchordot_jax.runs.sources import Sources

    pairs = np.stack(2 * [np.arange(args.anchors)], axis=1)
    n, m = args.rows + args.anchors, args.others + args.anchors
    split = split_by_exclusion(pairs, None, n, m)
    names = [str(folder / name) for name in ("x.h5", "y.h5")]
    sources = Sources(*names, None, None, None, None)
    config = Config(
        recipe="paper",
        gamma=0.75,
        eta=0.05,
        coupling=CouplingConfig(cost_memory=0),
        distillation=DistillationConfig(
            dim=128,
            epochs=args.epochs,
            chunk_size=args.chunk_size,
            pool_memory=args.memory,
        ),
    )
    before = resident()
    with peak_memory() as peak:
        data = read_fit_data(sources, split, memory=args.memory)
        result = fit_data(data, config)
    result.model.save(folder / f"model-{args.memory}")
    print(json.dumps({"before": before, "peak": peak.bytes, **result.seconds}))


def measured(folder: Path, args: Args, memory: int) -> dict[str, Any]:
    """Return what a fit in a process of its own printed."""
    sizes = {k: v for k, v in dataclasses.asdict(args).items() if isinstance(v, int)}
    words = [
        word
        for name, value in (sizes | {"memory": memory}).items()
        if not isinstance(value, bool)
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    done = subprocess.run(
        [sys.executable, __file__, "--fit", str(folder), *words],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def difference(folder: Path, one: int, other: int) -> float:
    """Return the largest difference between two models' parameters."""
    from safetensors.numpy import load_file

    a, b = (
        load_file(folder / f"model-{m}" / "model.safetensors") for m in (one, other)
    )
    return max(float(np.abs(a[name] - b[name]).max()) for name in a)


def main(args: Args) -> None:
    """Write the files, fit, and print."""
    if args.fit is not None:
        fit(args.fit, args)
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_side(folder / "x.h5", args.rows + args.anchors, args, 1)
        write_side(folder / "y.h5", args.others + args.anchors, args, 2)
        whole = 4 * args.rows * args.dim
        limits = {"streamed": 0, "resident": 2**62}
        if not args.resident:
            del limits["resident"]
        print(f"x pool: {args.rows} x {args.dim}, {whole / MEGA:.0f} MB as float32")
        for name, memory in limits.items():
            got = measured(folder, args, memory)
            stages = ("selection", "coupling", "distillation")
            seconds = ", ".join(f"{stage} {got[stage]:.1f}" for stage in stages)
            print(
                f"{name}: peak {got['peak'] / MEGA:.0f} MB, before the fit "
                f"{got['before'] / MEGA:.0f} MB; seconds: {seconds}"
            )
        if args.resident:
            print(f"largest difference: {difference(folder, *limits.values()):.1e}")


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
