"""Seconds and peak memory of one fit of every method at M = 2000, N = 500.

The sizes of the AnchorDOT paper's Table 7, on planted data of its dimensions (384 and
384 columns): pools of 2000 a side, 500 anchors. Settings are given, not chosen, so that
fits alone are timed (the refined recipe has none to be given: its choice is part of its
fit); each method is fitted in a process of its own, compilation included.

    python benchmarks/fit_times.py --methods anchordot sotalign ridge-cca
    python benchmarks/fit_times.py --schedule short

With --docs the figures are written, too, to FOLDER/fit_times.json and .md.
"""

import dataclasses
import json
import time
from pathlib import Path
from typing import Any, Literal

import jax
import machine
import numpy as np
import tyro
from measuring import process_seconds
from output import number, one_sentence, table, write_markdown
from processes import FailedError, available_cores, measure

from anchordot_jax import Config, files
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.baselines.registry import find_methods
from anchordot_jax.comparison.memory import peak_memory


@dataclasses.dataclass(frozen=True)
class Args:
    """What to time."""

    methods: tuple[str, ...] = ("all",)
    schedule: Literal["full", "short"] = "full"
    m: int = 2000
    """Rows of each pool."""
    n: int = 500
    """Anchors."""
    dim_x: int = 384
    dim_y: int = 384
    limit: float = 240.0
    """Seconds after which a method is stopped."""
    docs: Path | None = None
    """Folder of fit_times.json and fit_times.md; None: printed only."""
    alone: bool = False
    """Time the one method in this process and print JSON."""


def planted(args: Args) -> tuple[Anchors, Pools]:
    """Return anchors and pools that are noisy views of 40 common latents."""
    rng = np.random.default_rng(0)
    total = args.n + 2 * args.m
    latent = rng.normal(size=(total, 40))
    sides = []
    for d in (args.dim_x, args.dim_y):
        rows = latent @ rng.normal(size=(40, d)) + 4 * rng.normal(size=(total, d))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        sides.append(rows.astype(np.float32))
    x, y = sides
    n, m = args.n, args.m
    return Anchors(x[:n], y[:n]), Pools(x[n : n + m], y[n + m :])


def time_method(args: Args) -> dict[str, float]:
    """Return the seconds and gigabytes of one fit."""
    (method,) = find_methods(args.methods)
    anchors, pools = planted(args)
    settings = method.settings
    if isinstance(settings, Config) and settings.recipe == "paper":
        settings = dataclasses.replace(settings, gamma=0.75, eta=0.02)
    if args.schedule == "short":
        settings = dataclasses.replace(settings, **method.short)
    start = time.perf_counter()
    with peak_memory() as peak:
        method.fit(anchors, pools, settings=settings, key=jax.random.key(0))
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "gigabytes": peak.bytes / 1e9, **process_seconds()}


def main(args: Args) -> None:
    """Time each method in a process of its own, and print a table."""
    if args.alone:
        print(json.dumps(time_method(args)))
        return
    threads = len(available_cores())
    results: dict[str, Any] = {
        "machine": machine.describe(threads),
        "settings": {
            name: getattr(args, name)
            for name in ("schedule", "m", "n", "dim_x", "dim_y", "limit")
        },
        "methods": {},
    }
    print(f"{args.schedule} schedule, pools of {args.m}, {args.n} anchors")
    print(f"{'method':28} {'seconds':>8} {'GB':>6}")
    with one_sentence():
        methods = find_methods(args.methods)
    for method in methods:
        options = [
            *("--methods", method.name, "--schedule", args.schedule, "--alone"),
            *("--m", str(args.m), "--n", str(args.n)),
            *("--dim-x", str(args.dim_x), "--dim-y", str(args.dim_y)),
        ]
        try:
            told = measure(
                ["fit_times.py", *options], threads=threads, limit=args.limit
            )
        except FailedError as error:
            told = {"failed": str(error)}
        results["methods"][method.name] = told
        print(f"{method.name:28} {' '.join(_figures(told))}", flush=True)
        # After each, so that a stop loses no more than the method in progress.
        if args.docs is not None:
            files.write_json(args.docs / "fit_times.json", results)
            write_markdown("fit_times", page(results), args.docs)


def page(results: dict[str, Any]) -> list[str]:
    """Return the parts of fit_times.md."""
    own = results["settings"]
    rows = [(name, *_figures(told)) for name, told in results["methods"].items()]
    return [
        machine.sentence(results["machine"]),
        f"One fit, compilation included, of planted pools of {own['m']} rows a side, "
        f"{own['dim_x']} and {own['dim_y']} columns, and {own['n']} anchors, "
        f"{own['schedule']} schedule; stopped after {own['limit']:g} s:",
        table(("method", "seconds", "peak GB"), rows),
    ]


def _figures(told: dict[str, Any]) -> tuple[str, str]:
    """Return the seconds and gigabytes as printed."""
    if "failed" in told:
        return told["failed"], "-"
    if "over_limit" in told:
        return f"more than {told['over_limit']:g}", "-"
    return f"{told['seconds']:8.1f}".strip(), number(told["gigabytes"])


if __name__ == "__main__":
    main(tyro.cli(Args))
