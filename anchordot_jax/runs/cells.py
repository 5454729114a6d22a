"""An experiment as a grid of cells: one JSON file each, what is finished is skipped.

A cell is an experiment's name and its settings; its result is what a function returns
of the settings alone, so that cells can run in any order, in other processes and on
other machines. Cells whose shapes agree can be given to one function together, which
runs them as one program.
"""

import dataclasses
import hashlib
import itertools
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from anchordot_jax import files
from anchordot_jax.errors import InputError
from anchordot_jax.runs.run_folder import environment

SCHEMA = 1
DIGEST_LENGTH = 10
NAME_LENGTH = 80
POLL_SECONDS = 0.1

Scalar = str | int | float | bool | None
Settings = Mapping[str, Scalar]
Result = Mapping[str, Scalar]
Run = Callable[[Settings], Result]
"""settings -> result of one cell."""
RunMany = Callable[[Sequence[Settings]], Sequence[Result]]
"""The settings of cells that share shapes -> their results, in the same order."""


class Cell(NamedTuple):
    """One point of a grid."""

    experiment: str
    settings: dict[str, Scalar]


class Progress(NamedTuple):
    """How far a grid is."""

    done: int
    """Cells that have a result, those found there included."""
    failed: int
    total: int
    seconds_left: float | None
    """None until a cell was run."""

    @property
    def line(self) -> str:
        """It in words."""
        left = self.seconds_left
        rest = (
            ""
            if left is None
            else f", about {time.strftime('%H:%M:%S', time.gmtime(left))} left"
        )
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done} of {self.total} cells{failed}{rest}"


class Work(Protocol):
    """What a worker promises: `concurrent.futures` and submitit both do."""

    def done(self) -> bool:
        """Return whether it has ended."""

    def result(self) -> Any:
        """Return what came out, or raise what was raised."""


class Workers(Protocol):
    """Where cells run; submitit's executors are of this form too."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Work:
        """Return a promise of `fn(*args)`."""


@dataclasses.dataclass(frozen=True)
class Grouping:
    """How to run cells together as one program."""

    run_many: RunMany
    key: Callable[[Settings], Any]
    """Cells of one key are run together."""
    most: int = 16
    """At most so many at once."""


def grid(experiment: str, **axes: Iterable[Scalar]) -> list[Cell]:
    """Return every combination of the axes' values; the last axis varies fastest."""
    values = itertools.product(*(tuple(axis) for axis in axes.values()))
    return [Cell(experiment, dict(zip(axes, own, strict=True))) for own in values]


def cell_path(out: Path, cell: Cell) -> Path:
    """Return where a cell's result lies: a readable name with a digest."""
    text = json.dumps(cell.settings, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]
    words = [f"{name}={value}" for name, value in cell.settings.items()]
    name = re.sub(r"[^\w.=+-]+", "_", ",".join(words))[:NAME_LENGTH]
    return out / cell.experiment / f"{name}-{digest}.json"


def run_cells(
    cells: Sequence[Cell],
    run: Run,
    out: Path,
    *,
    grouping: Grouping | None = None,
    workers: Workers | None = None,
    report: Callable[[Progress], None] | None = None,
) -> list[dict[str, Any]]:
    """Return every cell's record, in the order of the cells; missing ones are run.

    A record holds `experiment`, `settings`, `status` ("done"; "refused" by the data,
    with a `reason`; or "failed", which the next call runs again), `result`, `seconds`,
    `cpu_seconds` and `environment`. Each is written as soon as it is there, so a
    killed grid goes on where it stopped.

    Args:
        cells: what is run.
        run: settings -> result; importable from other processes with workers.
        out: folder of the results, a folder an experiment.
        grouping: how to run several cells as one program.
        workers: where to run; None for this process.
        report: told of the progress.

    Raises:
        InputError: the folder cannot be written to, or a result in it cannot be read.
    """
    files.check_writable(out)
    missing = [cell for cell in cells if _finished(out, cell) is None]
    tasks = _tasks(missing, grouping)
    start, done, failed = time.perf_counter(), len(cells) - len(missing), 0
    for records in _run_tasks(tasks, run, grouping, out, workers):
        done += len(records)
        failed += sum(record["status"] == "failed" for record in records)
        ran = done - (len(cells) - len(missing))
        pace = (time.perf_counter() - start) / ran
        if report is not None:
            report(Progress(done, failed, len(cells), pace * (len(cells) - done)))
    if report is not None and not tasks:
        report(Progress(done, failed, len(cells), None))
    return [_read(cell_path(out, cell)) for cell in cells]


def _finished(out: Path, cell: Cell) -> dict[str, Any] | None:
    """Return a stored record; None where there is none or the cell had failed."""
    path = cell_path(out, cell)
    if not path.exists():
        return None
    record = _read(path)
    return None if record["status"] == "failed" else record


def _read(path: Path) -> dict[str, Any]:
    record = files.read_json(path, f"The result {path}")
    files.check_schema(record, SCHEMA, f"The result {path}")
    if record.get("status") not in ("done", "refused", "failed"):
        raise InputError(f"{path} is not a cell's result; delete it to run it again.")
    return record


def _tasks(cells: Sequence[Cell], grouping: Grouping | None) -> list[list[Cell]]:
    """Return the cells as groups that run together, in the order of their firsts."""
    if grouping is None:
        return [[cell] for cell in cells]
    groups: dict[Any, list[Cell]] = {}
    for cell in cells:
        key = cell.experiment, grouping.key(cell.settings)
        groups.setdefault(key, []).append(cell)
    return [
        group[start : start + grouping.most]
        for group in groups.values()
        for start in range(0, len(group), grouping.most)
    ]


def _run_tasks(
    tasks: Sequence[list[Cell]],
    run: Run,
    grouping: Grouping | None,
    out: Path,
    workers: Workers | None,
) -> Iterable[list[dict[str, Any]]]:
    """Yield each task's records as it ends."""
    many = grouping.run_many if grouping is not None else None
    if workers is None:
        for task in tasks:
            yield run_task(task, run, many, out)
        return
    promised = [workers.submit(run_task, task, run, many, out) for task in tasks]
    while promised:
        for promise in [promise for promise in promised if promise.done()]:
            promised.remove(promise)
            yield promise.result()
        time.sleep(POLL_SECONDS if promised else 0)


def run_task(
    cells: Sequence[Cell], run: Run, run_many: RunMany | None, out: Path
) -> list[dict[str, Any]]:
    """Run cells, one by one or as one program, and write their records."""
    start, start_cpu = time.perf_counter(), time.process_time()
    settings = [cell.settings for cell in cells]
    outcomes: list[dict[str, Any]]
    try:
        results = [run(settings[0])] if run_many is None else run_many(settings)
        outcomes = [{"status": "done", "result": dict(result)} for result in results]
        # What cannot be stored is a failure of the cell, not of the grid.
        json.dumps(outcomes, allow_nan=False)
    except InputError as error:
        outcomes = [{"status": "refused", "reason": str(error)} for _ in cells]
    except Exception as error:  # noqa: BLE001
        # Whatever a cell dies of, the others are still worth having.
        reason = f"{type(error).__name__}: {error}"
        outcomes = [{"status": "failed", "reason": reason} for _ in cells]
    shared = {
        "seconds": (time.perf_counter() - start) / len(cells),
        "cpu_seconds": (time.process_time() - start_cpu) / len(cells),
        "together": len(cells),
        "environment": environment(),
    }
    records = []
    for cell, outcome in zip(cells, outcomes, strict=True):
        records.append({"schema": SCHEMA, **cell._asdict(), **outcome, **shared})
        files.write_json(cell_path(out, cell), records[-1])
    return records


def local_workers(processes: int) -> ProcessPoolExecutor:
    """Return so many processes of this machine; each starts afresh, as JAX needs."""
    return ProcessPoolExecutor(processes, mp_context=get_context("spawn"))


def slurm_workers(folder: Path, *, cluster: str = "slurm", **options: Any) -> Workers:
    """Return workers that submit each task as a job of Slurm, through submitit.

    Args:
        folder: where the jobs' logs lie; shared between the machines.
        cluster: "slurm", or "local" for processes of this machine under the same code.
        options: of submitit's `update_parameters`: `slurm_partition="gpu"`,
            `gpus_per_node=1`, `timeout_min=60`, `slurm_array_parallelism=32`.

    Raises:
        InputError: submitit is not installed, there is no Slurm here, or an option is
            unknown.
    """
    try:
        import submitit
    except ImportError:
        raise InputError(
            "Jobs of Slurm need submitit: pip install 'anchordot-jax[slurm]'."
        ) from None
    try:
        workers = submitit.AutoExecutor(folder=folder, cluster=cluster)
        workers.update_parameters(**options)
    except (RuntimeError, ValueError, NameError, TypeError) as error:
        raise InputError(f"Jobs cannot be submitted to {cluster}: {error}.") from None
    return workers


def tidy_rows(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Scalar]]:
    """Return one flat row a finished cell: experiment, settings, results.

    Sorted, and without seconds, so that a grid that was stopped and one that was not
    have the same rows.
    """
    rows = [
        {
            "experiment": record["experiment"],
            **record["settings"],
            **record.get("result", {}),
        }
        for record in records
        if record["status"] == "done"
    ]
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def stored_records(out: Path) -> list[dict[str, Any]]:
    """Return every record below a folder, by experiment and name."""
    return [_read(path) for path in sorted(out.glob("*/*.json"))]
