"""The rows of an unfinished extraction, kept so that a killed one can go on.

A batch is one stretch of items. Its rows are appended to `rows.bin` and synced, then
one line is appended to `batches.jsonl` and synced: the line makes the batch count. On
opening, whatever lies behind the last whole line is cut off, so no row is lost, doubled
or half there. HDF5 itself cannot be appended to in that way: a kill while it writes can
leave a file that no longer opens.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchordot_jax import files
from anchordot_jax.errors import InputError

SETTINGS = "settings.json"
ROWS = "rows.bin"
BATCHES = "batches.jsonl"


class Row(NamedTuple):
    """One row that was embedded."""

    id: str
    record: str
    split: str


class Refusal(NamedTuple):
    """One item that was not, and why."""

    id: str
    record: str
    reason: str


class Batch(NamedTuple):
    """What became of the items `start` to `stop`."""

    start: int
    stop: int
    rows: Sequence[Row]
    refused: Sequence[Refusal]


class Journal:
    """The batches done so far, in a folder of their own."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], dim: int) -> None:
        """Open the journal, or begin it.

        Raises:
            InputError: it belongs to an extraction with other settings.
        """
        self.folder = folder
        self.settings = dict(settings)
        self.dim = dim
        self.dtype = np.dtype(str(settings["dtype"]))
        self._begin()
        self.batches = 0
        self.items = 0
        self.rows = 0
        self.refused = 0
        self._recover()
        self._rows_file: BinaryIO = (folder / ROWS).open("ab")
        self._batches_file: BinaryIO = (folder / BATCHES).open("ab")

    def append(self, batch: Batch, rows: NDArray[np.floating]) -> None:
        """Add a batch; once this returns, no kill can undo it."""
        self._rows_file.write(np.ascontiguousarray(rows, self.dtype).tobytes())
        _sync(self._rows_file)
        line = json.dumps(batch, ensure_ascii=False)
        self._batches_file.write(line.encode("utf-8", "surrogatepass") + b"\n")
        _sync(self._batches_file)
        self._count(batch)

    def read(self) -> Iterator[Batch]:
        """Yield the batches in order."""
        return read(self.folder)

    def blocks(self, rows: int) -> Iterator[NDArray[np.floating]]:
        """Yield the embeddings in order, some rows at a time."""
        with (self.folder / ROWS).open("rb") as stream:
            while data := stream.read(rows * self._row_bytes()):
                yield np.frombuffer(data, self.dtype).reshape(-1, self.dim)

    def close(self) -> None:
        """Close the files; the journal stays."""
        self._rows_file.close()
        self._batches_file.close()

    def remove(self) -> None:
        """Remove the journal."""
        self.close()
        remove(self.folder)

    def _begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / SETTINGS
        if not path.is_file():
            for name in (ROWS, BATCHES):
                (self.folder / name).write_bytes(b"")
            files.write_json(path, self.settings)
            return
        begun = files.read_json(path, str(self.folder))
        for name in sorted({*begun, *self.settings}):
            if begun.get(name) != self.settings.get(name):
                raise InputError(
                    f"{self.folder.parent} holds an unfinished extraction with another "
                    f"{name} ({begun.get(name)}, now {self.settings.get(name)}); "
                    "finish it with its own settings, choose another --out, or pass "
                    "--restart to discard it."
                )

    def _recover(self) -> None:
        """Cut off what lies behind the last whole batch."""
        path = self.folder / BATCHES
        whole = 0
        with path.open("rb") as stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                batch = _parse(line)
                self._count(batch)
                whole += len(line)
        os.truncate(path, whole)
        rows = self.folder / ROWS
        if rows.stat().st_size < self.rows * self._row_bytes():
            raise InputError(
                f"{rows} is shorter than its batches say: it was damaged from outside; "
                "pass --restart to begin anew."
            )
        os.truncate(rows, self.rows * self._row_bytes())

    def _count(self, batch: Batch) -> None:
        self.batches += 1
        self.items = batch.stop
        self.rows += len(batch.rows)
        self.refused += len(batch.refused)

    def _row_bytes(self) -> int:
        return self.dim * self.dtype.itemsize


def read(folder: Path) -> Iterator[Batch]:
    """Yield the batches of the journal in a folder, whose last line is whole."""
    with (folder / BATCHES).open("rb") as stream:
        for line in stream:
            yield _parse(line)


def remove(folder: Path) -> None:
    """Remove the journal in a folder, if there is one."""
    # The settings go first: without them what is left is begun anew.
    for name in (SETTINGS, BATCHES, ROWS):
        (folder / name).unlink(missing_ok=True)
    if folder.is_dir():
        folder.rmdir()


def _parse(line: bytes) -> Batch:
    start, stop, rows, refused = json.loads(line.decode("utf-8", "surrogatepass"))
    return Batch(
        start, stop, [Row(*row) for row in rows], [Refusal(*row) for row in refused]
    )


def _sync(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())
