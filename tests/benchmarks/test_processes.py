"""A measurement in a process of its own: results, limits, failures, threads."""

from pathlib import Path

import processes
import pytest
from measuring import column_error, process_seconds

from anchordot_jax import InputError


def program(folder: Path, text: str) -> list[str]:
    """Return the words that run a small program."""
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return [str(path)]


def test_the_last_object_counts(tmp_path: Path) -> None:
    text = "for told in ('{\"a\": 1}', '{\"a\": 2}', 'noise'): print(told)"
    words = program(tmp_path, text)
    assert processes.measure(words, threads=1) == {"a": 2}


def test_a_stopped_program_has_told_its_peak(tmp_path: Path) -> None:
    words = program(tmp_path, "import time; print('{}', flush=True); time.sleep(60)")
    told = processes.measure(words, threads=1, limit=1.0)
    assert told["over_limit"] == 1.0
    assert 0.001 < told["peak_gigabytes"] < 1


def test_a_first_call_that_was_through_counts(tmp_path: Path) -> None:
    text = "import time; print('{\"cold_seconds\": 3}', flush=True); time.sleep(60)"
    told = processes.measure(program(tmp_path, text), threads=1, limit=1.0)
    assert told == {"cold_seconds": 3}


def test_a_missing_library_is_a_reason(tmp_path: Path) -> None:
    words = program(tmp_path, "import no_such_library")
    with pytest.raises(processes.FailedError, match=r"^ModuleNotFoundError: No module"):
        processes.measure(words, threads=1)


def test_want_of_memory_is_a_reason(tmp_path: Path) -> None:
    words = program(tmp_path, "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(processes.FailedError, match="want of memory"):
        processes.measure(words, threads=1)


def test_whole_seconds_hold_start_and_imports(tmp_path: Path) -> None:
    text = (
        "import time; time.sleep(0.3)\n"
        "import json, measuring\n"
        "print(json.dumps(measuring.process_seconds()))\n"
    )
    folder = Path(processes.HERE)
    words = program(tmp_path, f"import sys; sys.path.append({str(folder)!r})\n" + text)
    told = processes.measure(words, threads=1)
    assert 0.3 < float(told["process_seconds"] or 0) < 60
    # In a process that none started there is nothing to say.
    assert process_seconds() == {}


def test_threads_are_given(tmp_path: Path) -> None:
    text = "import os, json; print(json.dumps({'n': os.environ['OMP_NUM_THREADS']}))"
    assert processes.measure(program(tmp_path, text), threads=1) == {"n": "1"}
    cores = len(processes.available_cores())
    assert processes.check_threads(0) == cores
    with pytest.raises(InputError, match=f"must be 1 to {cores}"):
        processes.check_threads(cores + 1)


def test_the_judge_sees_an_error() -> None:
    import numpy as np

    x = np.ones((3, 1), np.float32)
    y = np.ones((2, 1), np.float32)
    f, g = np.full(3, np.log(1 / 3)), np.full(2, np.log(1 / 2))
    assert column_error(x, y, f, g, 1.0) == pytest.approx(0, abs=1e-7)
    moved = g + np.array([np.log(1.1), 0])
    assert column_error(x, y, f, moved, 1.0) == pytest.approx(0.05, abs=1e-6)
