"""This machine in words, and its measured rates: matrix products and memory traffic."""

import os
import platform
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from anchordot_jax.runs.run_folder import package_version

PACKAGES = ("anchordot-jax", "jax", "jaxlib", "ott-jax", "numpy")
REPEATS = 7
SECONDS = 0.05


def describe(threads: int) -> dict[str, Any]:
    """Return the processor, cores, threads, load and versions; no names of machines."""
    device = jax.devices()[0]
    return {
        "processor": processor(),
        "cores": os.cpu_count() or 1,
        "threads": threads,
        "memory_gigabytes": round(_memory() / 1e9, 1),
        "load": round(os.getloadavg()[0], 1),
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
    load = machine["load"]
    busy = (
        f" Other programs ran beside (load {load:g} at the start), so that times are "
        "too long and ratios uncertain."
        if load > 0.5
        else f" Nothing else ran (load {load:g} at the start)."
    )
    return text + busy


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
    """Return the least seconds of some calls, after one that compiles.

    Each is repeated until it takes long enough for the clock.
    """
    jax.block_until_ready(work())
    clock = time.perf_counter()
    jax.block_until_ready(work())
    once = max(time.perf_counter() - clock, 1e-7)
    count = max(1, round(SECONDS / once))
    best = once
    for _ in range(repeats):
        clock = time.perf_counter()
        for _ in range(count):
            out = work()
        jax.block_until_ready(out)
        best = min(best, (time.perf_counter() - clock) / count)
    return best


def matmul_rate(rows: int, inner: int, columns: int) -> float:
    """Return the float32 operations a second of one product of that shape."""
    a = jnp.ones((rows, inner), jnp.float32)
    b = jnp.ones((inner, columns), jnp.float32)
    product = jax.jit(
        lambda a, b: jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
    )
    return 2 * rows * inner * columns / seconds_of(lambda: product(a, b))


def read_rate(rows: int, columns: int) -> float:
    """Return the bytes a second at which a float32 matrix is read.

    By a sum, and by a product with a vector: the quicker of them.
    """
    values = jnp.ones((rows, columns), jnp.float32)
    vector = jnp.ones(rows, jnp.float32)
    total, product = jax.jit(jnp.sum), jax.jit(jnp.matmul)
    ways = (lambda: total(values)), (lambda: product(vector, values))
    return 4 * rows * columns / min(seconds_of(way) for way in ways)
