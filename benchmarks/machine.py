"""This machine in words, and its measured rates: matrix products and memory traffic."""

import os
import platform
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from anchordot_jax.runs.run_folder import package_version

PACKAGES = ("anchordot-jax", "jax", "jaxlib", "ott-jax", "numpy")
REPEATS = 7
SECONDS = 0.05


def describe(threads: int) -> dict[str, Any]:
    """Return the processor, cores, threads and versions; no names of machines."""
    device = jax.devices()[0]
    return {
        "processor": processor(),
        "cores": os.cpu_count() or 1,
        "threads": threads,
        "memory_gigabytes": round(_memory() / 1e9, 1),
        "device": f"{device.platform} ({device.device_kind})",
        "python": platform.python_version(),
        "versions": {name: package_version(name) for name in PACKAGES},
    }


def sentence(machine: dict[str, Any], peers: dict[str, str] | None = None) -> str:
    """Return one paragraph that says what a table was measured on."""
    text = (
        f"{machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gigabytes']:g} GB; {machine['threads']} threads for every "
        f"implementation; device {machine['device']}; Python {machine['python']}, "
        + ", ".join(f"{name} {value}" for name, value in machine["versions"].items())
        + "."
    )
    if peers:
        text += " Rivals: " + ", ".join(
            f"{name} {value}" for name, value in peers.items()
        )
        text += "."
    return text


def processor() -> str:
    """Return the processor's name, as the machine reports it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        found = re.search(r"model name\s*:\s*(.+)", info.read_text(encoding="utf-8"))
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0


def seconds_of(work: Callable[[], Any], *, repeats: int = REPEATS) -> float:
    """Return the least seconds of some calls, after one that compiles."""
    return seconds_in_turn({"work": work}, repeats=repeats)["work"]


def seconds_in_turn(
    works: Mapping[str, Callable[[], Any]], *, repeats: int = REPEATS
) -> dict[str, float]:
    """Return the least seconds of a call of each work, after one that compiles.

    The works take turns, so that a time and the rate of its floor are of the same
    minutes. Short calls are repeated until they take long enough for the clock.
    """
    best: dict[str, float] = {}
    counts: dict[str, int] = {}
    for name, work in works.items():
        jax.block_until_ready(work())
        best[name] = max(_seconds(work, 1), 1e-7)
        counts[name] = max(1, round(SECONDS / best[name]))
    for _ in range(repeats):
        for name, work in works.items():
            best[name] = min(best[name], _seconds(work, counts[name]))
    return best


def _seconds(work: Callable[[], Any], count: int) -> float:
    clock = time.perf_counter()
    for _ in range(count):
        out = work()
    jax.block_until_ready(out)
    return (time.perf_counter() - clock) / count


def product_work(rows: int, inner: int, columns: int) -> Callable[[], jax.Array]:
    """Return one float32 product of that shape: 2 rows inner columns operations."""
    a = jnp.ones((rows, inner), jnp.float32)
    b = jnp.ones((inner, columns), jnp.float32)
    product = jax.jit(
        lambda a, b: jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
    )
    return lambda: product(a, b)


def matmul_rate(rows: int, inner: int, columns: int) -> float:
    """Return the float32 operations a second of one product of that shape."""
    return 2 * rows * inner * columns / seconds_of(product_work(rows, inner, columns))


def read_works(rows: int, columns: int) -> dict[str, Callable[[], jax.Array]]:
    """Return ways to read a float32 matrix once: its sum, its product with a vector."""
    values = jnp.ones((rows, columns), jnp.float32)
    vector = jnp.ones(rows, jnp.float32)
    total, product = jax.jit(jnp.sum), jax.jit(jnp.matmul)
    return {"sum": lambda: total(values), "vector": lambda: product(vector, values)}
