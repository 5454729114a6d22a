"""A fit killed at any moment resumes to the model of a fit that was left alone.

Each fit is a process of its own, forked from one that has everything imported and no
device opened yet; all share a compilation cache. SIGKILL comes at random times, and
inside the process at random ones of its file operations, which is where a half-written
state would be left.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from planted import OPTIONS, environment, problem, tree, write_pairs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL"),
]

FIT = [
    *("fit", "--x", "x.npy", "--y", "y.npy", "--pairs", "pairs.csv"),
    *("--test-pairs", "test.csv", "--quiet", "--out", "run", *OPTIONS),
    *("--distillation.epochs", "6", "--selection.gammas", "0.5"),
]
KILLS, A_RUN = 50, 5
"""SIGKILLs in all, and in one run folder before it may end."""

STAGES = {
    "selection": "run/config.json",
    "coupling": "run/selection.json",
    "distillation": "run/coupling.safetensors",
    "end": "run/model/config.json",
}
"""Each stage, and the file that is there as soon as it has begun."""

SERVER = """
import os, signal, sys
import anchordot_jax.alignment, anchordot_jax.cli.progress
import anchordot_jax.tracking.listening, anchordot_jax.tracking.trackers
from anchordot_jax.cli.main import main

OPERATIONS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree"}

def watch(limit, after):
    count = 0
    def hook(event, arguments):
        nonlocal count
        if event in OPERATIONS and "/run" in "/" + str(arguments[0]):
            count += not after or os.path.exists(after)
            if count == limit:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    return lambda: count

for line in sys.stdin:
    folder, limit, after, *words = line.rstrip("\\n").split("\\t")
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdout = sys.stderr = open("said.txt", "w")
        counted = watch(int(limit), after)
        code = main(words)
        sys.stdout.write(f"operations {counted()}\\n")
        sys.stdout.flush()
        os._exit(code)
    print("started", child, flush=True)
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Ended(NamedTuple):
    """How a fit ended."""

    code: int
    """Exit code, or minus the signal's number."""
    said: str
    seconds: float


class Forks:
    """Starts fits, and kills them on request."""

    def __init__(self, cache: Path) -> None:
        settings = {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        self.server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            env={**environment(), **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def fit(
        self,
        folder: Path,
        *,
        operation: int = 0,
        after: str = "",
        seconds: float | None = None,
        number: int = signal.SIGKILL,
    ) -> Ended:
        """Run a fit, killed at a file operation or after some seconds, and wait.

        Operations are counted from 1, once the file `after` is there.
        """
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        line = "\t".join([str(folder), str(operation), after, *FIT]) + "\n"
        start = time.monotonic()
        self.server.stdin.write(line.encode())
        self.server.stdin.flush()
        child = int(self.server.stdout.readline().split()[1])
        ended, _, _ = select.select([self.server.stdout], [], [], seconds)
        if not ended:
            os.kill(child, number)
        code = int(self.server.stdout.readline().split()[1])
        said = (folder / "said.txt").read_text(encoding="utf-8")
        return Ended(code, said, time.monotonic() - start)


class Whole(NamedTuple):
    """A fit that was left alone."""

    names: list[str]
    model: dict[str, str]
    operations: int
    seconds: float


def new_folder(base: Path, name: str) -> Path:
    """Return a folder of the planted problem's files."""
    given, folder = problem(), base / name
    folder.mkdir()
    np.save(folder / "x.npy", given.x)
    np.save(folder / "y.npy", given.y)
    write_pairs(folder / "pairs.csv", given.pairs)
    write_pairs(folder / "test.csv", given.test_pairs)
    return folder


def stage_of(run: Path) -> str:
    """Return the stage that a fit was in when it ended."""
    if (run / "model" / "config.json").is_file():
        return "end"
    if (run / "coupling.safetensors").is_file():
        return "distillation"
    return "coupling" if (run / "selection.json").is_file() else "selection"


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Return the process that fits are forked from."""
    started = Forks(tmp_path_factory.mktemp("cache"))
    yield started
    assert started.server.stdin is not None
    assert started.server.stdout is not None
    started.server.stdin.close()
    started.server.wait(60)
    started.server.stdout.close()


@pytest.fixture(scope="module")
def whole(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Return what fits that nobody killed leave, and how long one takes."""
    base = tmp_path_factory.mktemp("whole")
    for name in ("compiled", "timed"):
        folder = new_folder(base, name)
        ended = forks.fit(folder)
        assert ended.code == 0, ended.said
    run = folder / "run"
    operations = int(ended.said.split("operations ")[1])
    return Whole(sorted(tree(run)), tree(run / "model"), operations, ended.seconds)


def assert_same_as(whole: Whole, run: Path) -> None:
    """Assert that a run has the same model, byte by byte, and no file more or less."""
    assert tree(run / "model") == whole.model
    assert sorted(tree(run)) == whole.names


def test_fifty_kills_change_no_bit(forks: Forks, whole: Whole, tmp_path: Path) -> None:
    """Every stage is hit, and every resumed run gives the model of a whole one."""
    draws = np.random.default_rng(20)
    kills: Counter[str] = Counter()
    for number in range(KILLS):
        folder = new_folder(tmp_path, str(number))
        code = -signal.SIGKILL
        for attempt in range(A_RUN + 1):
            last = attempt == A_RUN or kills.total() == KILLS
            operation = int(draws.integers(1, whole.operations))
            seconds = float(draws.uniform(0, whole.seconds))
            by_time = bool(draws.integers(2))
            code, said, _ = forks.fit(
                folder,
                operation=0 if last or by_time else operation,
                seconds=seconds if by_time and not last else None,
            )
            if code != -signal.SIGKILL:
                break
            kills[stage_of(folder / "run")] += 1
        assert code == 0, said
        assert_same_as(whole, folder / "run")
        if kills.total() >= KILLS:
            break
    assert kills.total() >= KILLS
    # Where chance has left a stage out, a kill is aimed at it.
    for stage, begun in STAGES.items():
        for operation in range(kills[stage] + 1, 3):
            folder = new_folder(tmp_path, f"{stage}-{operation}")
            ended = forks.fit(folder, operation=operation, after=begun)
            assert ended.code == -signal.SIGKILL, (stage, ended.said)
            assert stage_of(folder / "run") == stage
            ended = forks.fit(folder)
            assert ended.code == 0, ended.said
            assert_same_as(whole, folder / "run")


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
def test_ctrl_c_at_any_moment_is_one_sentence(
    forks: Forks, whole: Whole, tmp_path: Path, share: float
) -> None:
    """Exit code 1, no traceback, and the same command goes on to the same model."""
    folder = new_folder(tmp_path, "stopped")
    ended = forks.fit(folder, seconds=share * whole.seconds, number=signal.SIGINT)
    assert ended.code in (0, 1)
    assert "Traceback" not in ended.said
    if ended.code == 1:
        assert "stop" in ended.said.lower()
    ended = forks.fit(folder)
    assert ended.code == 0, ended.said
    assert_same_as(whole, folder / "run")
