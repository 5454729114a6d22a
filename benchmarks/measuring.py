"""What every measured program does: keep to its cores, time two calls, tell its peak.

It runs in the rivals' environments too and needs the standard library and NumPy alone.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from anchordot_jax.comparison.memory import peak_bytes as peak_bytes
from anchordot_jax.comparison.memory import peak_memory

GIGA = 1e9
ROWS = 2048


class Solved(NamedTuple):
    """Potentials of the plan exp((f_i + g_j - C_ij)/epsilon), and how they came."""

    f: np.ndarray[Any, Any]
    g: np.ndarray[Any, Any]
    iterations: int
    parts: Mapping[str, float] = MappingProxyType({})
    """Seconds of parts of the call."""


def start() -> float:
    """Keep to the cores that this program was given; return the time it began.

    Before JAX is imported, which counts its threads then.
    """
    began = time.perf_counter()
    threads = int(os.environ.get("BENCHMARK_THREADS", "0"))
    if threads and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    return began


def report(
    solve: Callable[[], Solved],
    error: Callable[[Solved], float],
    *,
    limit: float,
    began: float,
) -> None:
    """Print the seconds of a first and a second call, the error and the peak memory.

    `process_seconds` is from the start of the process, imports included, to the end of
    the first call.

    The second call is left out where it would pass the limit. The peak is that of the
    process, libraries and inputs included; `start_gigabytes` is what it held before the
    first call.
    """
    told: dict[str, float | int] = {"start_gigabytes": resident() / GIGA}
    with peak_memory() as peak:
        clock = time.perf_counter()
        solved = solve()
        told["cold_seconds"] = time.perf_counter() - clock
    told |= process_seconds()
    told |= {"peak_gigabytes": peak.bytes / GIGA, "iterations": solved.iterations}
    told["column_error"] = error(solved)
    told |= {f"cold_{name}_seconds": value for name, value in solved.parts.items()}
    print(json.dumps(told), flush=True)
    if time.perf_counter() - began + told["cold_seconds"] > limit:
        return
    with peak_memory() as peak:
        clock = time.perf_counter()
        solved = solve()
        told["warm_seconds"] = time.perf_counter() - clock
    told |= {f"{name}_seconds": value for name, value in solved.parts.items()}
    told["peak_gigabytes"] = max(told["peak_gigabytes"], peak.bytes / GIGA)
    print(json.dumps(told), flush=True)


def process_seconds() -> dict[str, float]:
    """Return the seconds since the program that measures started this one.

    So imports count; nothing where none started it.
    """
    started = os.environ.get("BENCHMARK_STARTED")
    return {} if started is None else {"process_seconds": time.time() - float(started)}


def column_error(
    x: np.ndarray[Any, Any],
    y: np.ndarray[Any, Any],
    f: np.ndarray[Any, Any],
    g: np.ndarray[Any, Any],
    epsilon: float,
) -> float:
    """Return sum_j |sum_i exp((f_i + g_j - C_ij)/epsilon) - 1/m|, C = 1 - x y^T.

    By NumPy, some rows at a time: one judge for all implementations.
    """
    sums = np.zeros(len(y))
    for begin in range(0, len(x), ROWS):
        rows = slice(begin, begin + ROWS)
        exponent = x[rows] @ y.T - 1 + f[rows, None] + g[None, :]
        sums += np.exp(exponent / epsilon).sum(axis=0, dtype=np.float64)
    return float(np.abs(sums - 1 / len(y)).sum())


def resident() -> int:
    """Return the bytes that the process holds now; 0 where that is not known."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
