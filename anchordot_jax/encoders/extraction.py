"""One side after the other: items in batches, through the encoder, into a file.

A batch is a fixed stretch of the source's items, so that a run resumed after a kill
goes on with the very batches of an uninterrupted one, and the file is the same.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from anchordot_jax import files
from anchordot_jax.encoders import journal as journals
from anchordot_jax.encoders import output, pair_table
from anchordot_jax.encoders.base import Encoder, Rejected, is_out_of_memory
from anchordot_jax.encoders.journal import Batch, Journal, Refusal, Row
from anchordot_jax.encoders.sources.base import Item, Source, items
from anchordot_jax.errors import InputError

REFUSED = "rejected.csv"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractionConfig:
    """How a source is embedded."""

    batch_size: int = 32
    """Items encoded at once; halved where memory runs out."""
    dtype: Literal["float16", "float32"] = "float16"
    """Type of the numbers written."""
    unit_norm: bool = True
    """Whether rows are scaled to unit norm; the fit does so anyway."""
    strict: bool = False
    """Whether the first unreadable item stops the run."""
    limit: int | None = None
    """Only so many entries of the source."""
    workers: int = 4
    """Threads that read and decode items."""
    restart: bool = False
    """Whether unfinished or finished files of other settings are replaced."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "workers", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                flag = name.replace("_", "-")
                raise InputError(f"--{flag} must be at least 1, got {value}.")


class Listener(Protocol):
    """Whoever watches an extraction."""

    def begin(self, side: str, done: int, total: int | None) -> None:
        """Hear that a side starts, with the items that an earlier run did."""

    def advance(self, side: str, done: int, rows: int, refused: int) -> None:
        """Hear how many items are done."""

    def warn(self, message: str) -> None:
        """Hear of something odd that does not stop the run."""


class SideResult(NamedTuple):
    """What one side came to."""

    side: output.Side
    refused: Sequence[Refusal]
    resumed_at: int
    complete_before: bool


class Result(NamedTuple):
    """What an extraction wrote."""

    sides: dict[str, SideResult]
    pairs: dict[str, int]
    refused: int


def extract(
    source: Source,
    encoders: dict[str, Encoder],
    folder: Path,
    config: ExtractionConfig,
    listener: Listener,
) -> Result:
    """Return what was written: `x.h5`, `y.h5`, the pairs, and `rejected.csv`.

    Args:
        source: the raw items.
        encoders: the encoder of `x`, of `y`, or both.
        folder: where the files go; the same call again resumes.
        config: batch size and the like.
        listener: told of the progress.

    Raises:
        InputError: the folder holds files of other settings, an item is unreadable in
            a strict run, or no item of a side could be read.
    """
    files.check_writable(folder)
    earlier = pair_table.read_refusals(folder / REFUSED)
    results: dict[str, SideResult] = {}
    for name, encoder in encoders.items():
        other = next((result.side for result in results.values()), None)
        results[name] = _extract_side(
            name, source, encoder, folder, config, listener, other, earlier
        )
    pairs: dict[str, int] = {}
    if len(results) == 2:
        rows_x, rows_y = (results[name].side.rows for name in ("x", "y"))
        pairs = pair_table.write_pairs(folder, pair_table.pairs_of(rows_x, rows_y))
    kept = {name: earlier.get(name, ()) for name in ("x", "y")}
    sides = {**kept, **{name: result.refused for name, result in results.items()}}
    pair_table.write_refusals(folder / REFUSED, sides)
    for name in results:
        journals.remove(_journal_folder(folder, name))
    return Result(results, pairs, sum(len(r.refused) for r in results.values()))


def _extract_side(
    name: str,
    source: Source,
    encoder: Encoder,
    folder: Path,
    config: ExtractionConfig,
    listener: Listener,
    other: output.Side | None,
    earlier: dict[str, list[Refusal]],
) -> SideResult:
    path = folder / f"{name}.h5"
    settings = _settings(source, encoder, config, other)
    place = _journal_folder(folder, name)
    if config.restart:
        journals.remove(place)
        path.unlink(missing_ok=True)
    if path.exists():
        return _finished(name, path, settings, place, earlier, other)
    journal = Journal(place, settings, encoder.dim)
    try:
        begun = journal.items
        listener.begin(name, begun, config.limit or source.length)
        _fill(name, source, encoder, journal, config, listener)
        refused = [refusal for batch in journal.read() for refusal in batch.refused]
        if not journal.rows:
            raise InputError(_nothing(name, source, refused))
        output.write_side(path, journal, other)
    except InputError:
        # Bad input leaves nothing behind; a kill or a crash leaves the journal.
        journal.remove()
        _remove_empty(folder)
        raise
    finally:
        journal.close()
    return SideResult(output.read_side(path), refused, begun, False)


def _finished(
    name: str,
    path: Path,
    settings: dict[str, Any],
    place: Path,
    earlier: dict[str, list[Refusal]],
    other: output.Side | None,
) -> SideResult:
    """Return a side that an earlier run completed."""
    side = output.read_side(path)
    alone = {**settings, "other_side": None}
    if other and side.attributes.get("fingerprint") == output.fingerprint(alone):
        # It was made before the other side was asked for: only its index is missing.
        output.add_index(side, settings, other)
        side = output.read_side(path)
    if side.attributes.get("fingerprint") != output.fingerprint(settings):
        differing = [
            f"{key} {side.attributes.get(key)!r}, now {value!r}"
            for key, value in sorted(settings.items())
            if side.attributes.get(key) != ("" if value is None else value)
        ]
        raise InputError(
            f"{path} was made with other settings ({'; '.join(differing)}); choose "
            "another --out, or pass --restart to replace it."
        )
    refused: Sequence[Refusal] = earlier.get(name, [])
    if (place / journals.SETTINGS).is_file():
        # Killed between the file and the list of refusals: the journal still has it.
        refused = [
            refusal for batch in journals.read(place) for refusal in batch.refused
        ]
    return SideResult(side, refused, len(side.rows), True)


def _settings(
    source: Source,
    encoder: Encoder,
    config: ExtractionConfig,
    other: output.Side | None,
) -> dict[str, Any]:
    """Return what decides the file: a resumed run must have the same."""
    return {
        **encoder.facts,
        "kind": encoder.kind,
        "dim": encoder.dim,
        "dtype": config.dtype,
        "unit_norm": config.unit_norm,
        "limit": config.limit,
        "source": source.what,
        "source_digest": source.digest,
        "other_side": other.attributes["fingerprint"] if other else None,
    }


def _fill(
    name: str,
    source: Source,
    encoder: Encoder,
    journal: Journal,
    config: ExtractionConfig,
    listener: Listener,
) -> None:
    """Append the batches that the journal lacks."""
    todo = itertools.islice(
        items(source, encoder.kind, config.limit), journal.items, None
    )
    size = config.batch_size
    with ThreadPoolExecutor(config.workers) as threads:
        for chunk in _batches(todo, config.batch_size):
            prepared = list(threads.map(lambda item: _prepare(encoder, item), chunk))
            good = [value for value, error in prepared if not error]
            rows, smaller = _encode(encoder, good, size, config)
            if smaller < size:
                listener.warn(
                    f"memory ran out with {size} items at once; going on with {smaller}"
                )
                size = smaller
            batch, kept = _judge(journal.items, chunk, prepared, rows)
            if config.strict and batch.refused:
                first = batch.refused[0]
                raise InputError(
                    f"{first.id} of {source.place} cannot be embedded as {name}: "
                    f"{first.reason}; repair it, or leave --strict out to skip it."
                )
            journal.append(batch, kept)
            listener.advance(name, journal.items, journal.rows, journal.refused)


def _batches(todo: Iterator[Item], size: int) -> Iterator[list[Item]]:
    while chunk := list(itertools.islice(todo, size)):
        yield chunk


def _prepare(encoder: Encoder, item: Item) -> tuple[Any, str]:
    """Return an item as the encoder takes it, or why it cannot be read."""
    if item.error:
        return None, item.error
    try:
        return encoder.prepare(item.value), ""
    except Rejected as rejected:
        return None, str(rejected)


def _encode(
    encoder: Encoder, prepared: Sequence[Any], size: int, config: ExtractionConfig
) -> tuple[NDArray[np.floating], int]:
    """Return the rows in the type written, and the batch size that memory allowed."""
    parts = [np.empty((0, encoder.dim), config.dtype)]
    start = 0
    while start < len(prepared):
        try:
            rows = encoder.encode(prepared[start : start + size])
        except Exception as error:
            if size == 1 or not is_out_of_memory(error):
                raise
            size = max(1, min(size, len(prepared)) // 2)
            continue
        if config.unit_norm:
            norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
            with np.errstate(divide="ignore", invalid="ignore"):
                rows = (rows / norms).astype(np.float32)
        with np.errstate(over="ignore"):
            parts.append(rows.astype(config.dtype))
        start += len(rows)
    return np.concatenate(parts), size


def _judge(
    start: int,
    chunk: Sequence[Item],
    prepared: Sequence[tuple[Any, str]],
    rows: NDArray[np.floating],
) -> tuple[Batch, NDArray[np.floating]]:
    """Return a batch's record and its good rows; NaN and infinity are refused too."""
    finite = np.isfinite(rows).all(axis=1)
    kept: list[Row] = []
    refused: list[Refusal] = []
    at = 0
    for item, (_, error) in zip(chunk, prepared, strict=True):
        if not error:
            at += 1
            if not finite[at - 1]:
                error = "the encoder gave zeros, NaN, or numbers too large for the type"
        if error:
            refused.append(Refusal(item.id, item.record, error))
        else:
            kept.append(Row(item.id, item.record, item.split))
    return Batch(start, start + len(chunk), kept, refused), rows[finite]


def _nothing(name: str, source: Source, refused: Sequence[Refusal]) -> str:
    if not refused:
        return f"{source.place} holds no items for {name}; check the path."
    first = refused[0]
    return (
        f"None of the {len(refused)} items of {source.place} could be embedded as "
        f"{name}; the first, {first.id}: {first.reason}."
    )


def _journal_folder(folder: Path, name: str) -> Path:
    return folder / f".{name}.partial"


def _remove_empty(folder: Path) -> None:
    """Remove the output folder if nothing is in it."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
