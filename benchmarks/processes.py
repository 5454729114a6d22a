"""One measurement in a process of its own: its time limit, threads and peak memory.

The measured programs print one JSON object a line, each more complete than the one
before, so that a program that is stopped at the limit has told what it had.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anchordot_jax.errors import REASON_LENGTH, InputError
from anchordot_jax.runs.cells import Scalar

REPOSITORY = Path(__file__).resolve().parents[1]
HERE = REPOSITORY / "benchmarks"


class FailedError(RuntimeError):
    """A measurement that could not be made; the grid runs it again the next time."""


def check_threads(threads: int) -> int:
    """Return the number of threads; 0 stands for all cores of this machine.

    Raises:
        InputError: there are not as many cores.
    """
    cores = available_cores()
    if not 0 <= threads <= len(cores):
        raise InputError(
            f"--threads must be 1 to {len(cores)}, the cores that this process may "
            f"use, or 0 for all of them; got {threads}."
        )
    return threads or len(cores)


def available_cores() -> list[int]:
    """Return the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def measure(
    words: Sequence[str | Path],
    *,
    python: str | Path = sys.executable,
    threads: int,
    limit: float | None = None,
) -> dict[str, Scalar]:
    """Return what a program of this folder printed last.

    Args:
        words: the program's name and its arguments.
        python: interpreter to run it with.
        threads: cores and threads that it may use.
        limit: seconds after which it is stopped; then the result holds `over_limit`,
            and the peak memory until then.

    Raises:
        FailedError: it ended with an error, whose last line is the message.
    """
    program, *rest = (str(word) for word in words)
    with tempfile.TemporaryDirectory() as folder:
        out, error = Path(folder) / "out", Path(folder) / "error"
        with out.open("w") as out_file, error.open("w") as error_file:
            process = subprocess.Popen(
                [str(python), str(HERE / program), *rest],
                stdout=out_file,
                stderr=error_file,
                env=_environment(threads),
                start_new_session=True,
            )
            try:
                process.wait(timeout=limit)
                stopped: dict[str, Scalar] = {}
            except subprocess.TimeoutExpired:
                stopped = {"over_limit": limit, **_memory_so_far(process.pid)}
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        printed = last_object(out.read_text(encoding="utf-8"))
        if process.returncode and not stopped:
            said = error.read_text(encoding="utf-8", errors="replace")
            raise FailedError(_why(process.returncode, said))
    if stopped and "cold_seconds" in printed:
        # The first call was through; only the second was cut off.
        return printed
    return {**printed, **stopped}


def last_object(text: str) -> dict[str, Any]:
    """Return the last line that is a JSON object, empty if there is none."""
    for line in reversed(text.splitlines()):
        if line.startswith("{") and line.endswith("}"):
            values: dict[str, Any] = json.loads(line)
            return values
    return {}


def _environment(threads: int) -> Mapping[str, str]:
    """Return the environment of a measured program.

    JAX takes a thread a core that it may use, so the program is told its cores, too
    (`measuring.start`).
    """
    names = ("OMP", "OPENBLAS", "MKL", "NUMEXPR")
    return {
        **os.environ,
        **{f"{name}_NUM_THREADS": str(threads) for name in names},
        "BENCHMARK_THREADS": str(threads),
        "BENCHMARK_STARTED": repr(time.time()),
        # A stored program would make the first call look like the second.
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONWARNINGS": "ignore",
    }


def _memory_so_far(pid: int) -> dict[str, Scalar]:
    status = Path(f"/proc/{pid}/status")
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="ascii"))
    except OSError:
        return {}
    return {"peak_gigabytes": 1024 * int(found[1]) / 1e9} if found else {}


def _why(code: int, said: str) -> str:
    if code == -signal.SIGKILL:
        return "killed, most likely for want of memory"
    lines = [line for line in said.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:REASON_LENGTH] if lines else f"exit code {code}"
