"""Pairs files: two columns, `x` and `y`, of row numbers or of ids.

Each side decides for itself what its values are. Ids win when the embedding file holds
ids and every value is one of them; otherwise the values are row numbers. A file that
could be read both ways is refused rather than guessed at.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn, get_args

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.data.source import EmbeddingSource
from anchordot_jax.errors import InputError

Keys = Literal["auto", "rows", "ids"]
SIDES = ("x", "y")
WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
SHOWN = 3
FEWEST = 2


class _Column(NamedTuple):
    """One side of a pairs file: its values as written and the lines they stand on."""

    side: str
    values: list[str]
    lines: list[int]
    path: Path

    def at(self, index: int) -> str:
        """Return e.g. `Line 3 of pairs.csv: x = 'cat'`."""
        place = f"Line {self.lines[index]} of {self.path}"
        return f"{place}: {self.side} = {self.values[index]!r}"


def read_pairs(
    path: str | Path,
    source_x: EmbeddingSource,
    source_y: EmbeddingSource,
    *,
    keys: Keys = "auto",
) -> NDArray[np.int64]:
    """Return the pairs of a CSV file as row numbers `[N, 2]`.

    Args:
        path: A file whose header names the columns `x` and `y`; others are ignored. It
            is split at tabs if the header has one, else at commas.
        source_x: The embeddings that the column `x` refers to.
        source_y: The embeddings that the column `y` refers to.
        keys: `rows` takes all values as row numbers (from 0), `ids` as ids wherever the
            file holds ids, and `auto` decides per side.

    Raises:
        InputError: The file is missing, malformed, ambiguous, names an unknown row or
            id, or lists a pair twice.
    """
    if keys not in get_args(Keys):
        raise InputError(f"keys must be auto, rows or ids; got {keys!r}.")
    if keys == "ids" and source_x.ids is None and source_y.ids is None:
        raise InputError(
            f"Pairs cannot be read by id: neither {source_x.where} nor "
            f"{source_y.where} holds ids; use row numbers (--pair-keys rows)."
        )
    columns = _read_columns(Path(path))
    sides = [
        _to_rows(column, source, keys)
        for column, source in zip(columns, (source_x, source_y), strict=True)
    ]
    pairs = np.stack(sides, axis=1)
    _check_distinct(pairs, columns[0])
    return pairs


def check_enough_pairs(pairs: NDArray[np.int64], where: str) -> None:
    """Return None when there are at least two pairs.

    Raises:
        InputError: There are fewer.
    """
    if len(pairs) < FEWEST:
        raise InputError(
            f"{where} gives {len(pairs)} pair(s); at least {FEWEST} are needed, and "
            "100 to 500 are usual."
        )


def _read_columns(path: Path) -> list[_Column]:
    """Return the columns x and y of a pairs file."""
    records = _records(path)
    _, header = next(records, (0, []))
    if not header:
        raise InputError(f"{path} is empty; it needs the header line x,y and pairs.")
    at = _positions(path, header)
    columns = [_Column(side, [], [], path) for side in SIDES]
    for line, fields in records:
        if any(fields[len(header) :]):
            raise InputError(
                f"Line {line} of {path} has {len(fields)} fields but the header has "
                f"{len(header)}; put quotes around values that hold the separator."
            )
        for column, index in zip(columns, at, strict=True):
            value = fields[index] if index < len(fields) else ""
            if not value:
                raise InputError(
                    f"Line {line} of {path} has no value for {column.side}; each line "
                    "needs an x and a y."
                )
            column.values.append(value)
            column.lines.append(line)
    if not columns[0].lines:
        raise InputError(f"{path} holds no pairs, only its header; add lines to it.")
    return columns


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, stripped fields) of each line that is not blank."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            header = next((line for line in stream if line.strip()), "")
            stream.seek(0)
            delimiter = "\t" if "\t" in header else ","
            reader = csv.reader(stream, delimiter=delimiter, strict=True)
            for fields in reader:
                stripped = [field.strip() for field in fields]
                if any(stripped):
                    yield reader.line_num, stripped
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; check the path.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; save it as UTF-8 CSV.") from error
    except csv.Error as error:
        raise InputError(
            f"{path} is not valid CSV ({error}); check its quotes."
        ) from error
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); name a CSV file that you may "
            "read."
        ) from error


def _positions(path: Path, header: list[str]) -> list[int]:
    """Return where the columns x and y stand in the header."""
    if all(header.count(side) == 1 for side in SIDES):
        return [header.index(side) for side in SIDES]
    found = f"{path} needs one column x and one column y in its first line; it has"
    if len(header) == len(SIDES) and all(WHOLE.fullmatch(name) for name in header):
        raise InputError(
            f"{found} the numbers {', '.join(header)}; add the header line x,y."
        )
    raise InputError(
        f"{found} {', '.join(header)}; rename its columns, separated by commas or tabs."
    )


def _to_rows(column: _Column, source: EmbeddingSource, keys: Keys) -> NDArray[np.int64]:
    """Return the row numbers that one column means, `[N]`."""
    if keys == "rows":
        return _as_row_numbers(column, source)
    whole = all(WHOLE.fullmatch(value) for value in column.values)
    if source.ids is None:
        return _as_row_numbers(column, source) if whole else _refuse_ids(column, source)
    table = _IdTable(source.ids)
    if keys == "ids":
        return _by_id(column, source, table)
    known = table.find(column.values)[1]
    in_range = whole and all(0 <= int(v) < source.shape[0] for v in column.values)
    if known.all():
        rows = _by_id(column, source, table)
        if in_range:
            _check_unambiguous(column, source, rows)
        return rows
    # Numbers out of range of which some are ids must be ids with a mistake in them.
    if in_range or (whole and not known.any()):
        return _as_row_numbers(column, source)
    return _by_id(column, source, table)


class _IdTable:
    """The ids of a file, sorted once so that many can be looked up."""

    def __init__(self, ids: NDArray[np.str_] | NDArray[np.int64]) -> None:
        self.whole = ids.dtype.kind == "i"
        self.ids = ids if self.whole else np.char.strip(ids.astype(np.str_, copy=False))
        self.unique, self.first, self.counts = np.unique(
            self.ids, return_index=True, return_counts=True
        )

    def find(self, values: list[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the place of each value in `unique`, and whether it is there."""
        fits = np.ones(len(values), np.bool_)
        keys = np.array(values)
        if self.whole:
            fits = np.array([bool(WHOLE.fullmatch(value)) for value in values])
            whole = [int(v) if fit else 0 for v, fit in zip(values, fits, strict=True)]
            keys = np.array(whole, np.int64)
        places = np.searchsorted(self.unique, keys).clip(max=len(self.unique) - 1)
        return places, fits & (self.unique[places] == keys)


def _refuse_ids(column: _Column, source: EmbeddingSource) -> NoReturn:
    """Raise because the column lists ids of a file that has none."""
    odd = next(i for i, v in enumerate(column.values) if not WHOLE.fullmatch(v))
    raise InputError(
        f"{column.at(odd)} cannot be an id because {source.where} has no ids (a 1-D "
        "array of text or whole numbers called ids, id or keys, as long as the "
        "embeddings); add one or give row numbers."
    )


def _by_id(
    column: _Column, source: EmbeddingSource, table: _IdTable
) -> NDArray[np.int64]:
    """Return the rows whose ids the column lists."""
    places, known = table.find(column.values)
    unknown = np.flatnonzero(~known)
    if len(unknown):
        values = list(dict.fromkeys(column.values[i] for i in unknown))
        listed = ", ".join(map(repr, values[:SHOWN])) + ", ..." * (len(values) > SHOWN)
        raise InputError(
            f"{len(values)} value(s) of column {column.side} are not ids of "
            f"{source.where}: {listed} (first on line {column.lines[unknown[0]]} of "
            f"{column.path}); correct them (row numbers would run from 0 to "
            f"{source.shape[0] - 1})."
        )
    shared = np.flatnonzero(table.counts[places] > 1)
    if len(shared):
        rows = np.flatnonzero(table.ids == table.unique[places[shared[0]]])
        raise InputError(
            f"{column.at(int(shared[0]))} is the id of {len(rows)} rows of "
            f"{source.where} ({', '.join(map(str, rows[:SHOWN]))}); ids used in pairs "
            "must be unique (for row numbers, pass --pair-keys rows)."
        )
    return table.first[places].astype(np.int64)


def _as_row_numbers(column: _Column, source: EmbeddingSource) -> NDArray[np.int64]:
    """Return the column's values as row numbers of the source."""
    n = source.shape[0]
    rows = np.empty(len(column.values), np.int64)
    for index, value in enumerate(column.values):
        if not WHOLE.fullmatch(value):
            raise InputError(
                f"{column.at(index)} is not a row number; give whole "
                "numbers, or ids with --pair-keys ids."
            )
        rows[index] = int(value)
        if not 0 <= rows[index] < n:
            hint = "" if source.ids is None else "; if it is an id, it is not one there"
            raise InputError(
                f"{column.at(index)} is outside {source.where}, which has "
                f"{n} rows (0 to {n - 1}; rows count from 0){hint}."
            )
    return rows


def _check_unambiguous(
    column: _Column, source: EmbeddingSource, by_id: NDArray[np.int64]
) -> None:
    """Raise when the same values are other rows if read as row numbers."""
    rows = np.array([int(value) for value in column.values], np.int64)
    if not np.array_equal(rows, by_id):
        index = int(np.flatnonzero(rows != by_id)[0])
        raise InputError(
            f"Column {column.side} of {column.path} can be read two ways: on line "
            f"{column.lines[index]}, {column.values[index]} is row {rows[index]} of "
            f"{source.where} but also the id of row {by_id[index]}; pass --pair-keys "
            "rows or --pair-keys ids."
        )


def _check_distinct(pairs: NDArray[np.int64], column: _Column) -> None:
    """Raise when a pair is listed twice."""
    _, first, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    # NumPy 2.0 alone gives the inverse of `axis=0` a second dimension.
    origin = first[inverse.reshape(-1)]
    again = np.flatnonzero(origin != np.arange(len(pairs)))
    if len(again):
        later, earlier = int(again[0]), int(origin[again[0]])
        raise InputError(
            f"{column.path} lists the pair of x row {pairs[later, 0]} and y row "
            f"{pairs[later, 1]} twice, on lines {column.lines[earlier]} and "
            f"{column.lines[later]}; remove one."
        )
