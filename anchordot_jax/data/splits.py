"""Splits: which rows are anchors, which are test pairs, and which fill the pools.

Anchors and test pairs never share a row, and the pools hold neither, so that nothing
seen in fitting is scored and no pool row's true partner is known.
"""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anchordot_jax import files
from anchordot_jax.data.pairs import check_enough_pairs
from anchordot_jax.errors import InputError

SCHEMA = 1
DIGEST_LENGTH = 16
SHOWN = 5


class Split(NamedTuple):
    """Row numbers (int64) of each part; pools are sorted.

    Attributes:
        anchors: `[N, 2]`, the known pairs.
        test_pairs: `[T, 2]`, the pairs held out for scoring; T may be 0.
        pool_x: `[n]`, the unpaired rows of x.
        pool_y: `[m]`, the unpaired rows of y.
    """

    anchors: NDArray[np.int64]
    test_pairs: NDArray[np.int64]
    pool_x: NDArray[np.int64]
    pool_y: NDArray[np.int64]


def split_by_exclusion(
    pairs: NDArray[np.int64],
    test_pairs: NDArray[np.int64] | None,
    n_x: int,
    n_y: int,
    *,
    separate_pools_x: bool = False,
    separate_pools_y: bool = False,
) -> Split:
    """Return the split whose pools are all rows that are in no pair.

    Args:
        pairs: `[N, 2]` anchors.
        test_pairs: `[T, 2]` held-out pairs, or None.
        n_x: Number of rows of x.
        n_y: Number of rows of y.
        separate_pools_x: Whether x's pool is a file of its own; `pool_x` is then empty.
        separate_pools_y: The same for y.

    Raises:
        InputError: A row is in both anchors and test pairs, or out of range; there are
            fewer than two anchors; or no row is left for a pool.
    """
    test = np.empty((0, 2), np.int64) if test_pairs is None else test_pairs
    check_enough_pairs(pairs, "The pairs file")
    pools = []
    sides = (("x", n_x, separate_pools_x), ("y", n_y, separate_pools_y))
    for column, (side, n, separate) in enumerate(sides):
        anchored, tested = pairs[:, column], test[:, column]
        _check_disjoint(anchored, tested, side)
        _check_range(np.concatenate([anchored, tested]), n, side)
        if separate:
            pools.append(np.empty(0, np.int64))
            continue
        free = np.ones(n, np.bool_)
        free[anchored] = free[tested] = False
        pools.append(np.flatnonzero(free).astype(np.int64))
        if not len(pools[-1]):
            raise InputError(
                f"The pool of {side} is empty: each of its {n} rows is an anchor or a "
                f"test item; give a pool of its own with --pool-{side}, or more data."
            )
    return Split(pairs.astype(np.int64), test.astype(np.int64), *pools)


def _check_disjoint(
    anchored: NDArray[np.int64], tested: NDArray[np.int64], side: str
) -> None:
    """Raise when a row is both an anchor and a test item."""
    both = np.intersect1d(anchored, tested)
    if len(both):
        first = ", ".join(map(str, both[:SHOWN])) + ", ..." * (len(both) > SHOWN)
        raise InputError(
            f"{len(both)} row(s) of {side} are in both the anchors and the test pairs "
            f"(rows {first}); remove them from one of the two files."
        )


def _check_range(rows: NDArray[np.int64], n: int, side: str) -> None:
    """Raise when a row number does not exist."""
    outside = rows[(rows < 0) | (rows >= n)]
    if len(outside):
        raise InputError(
            f"Row {outside[0]} of {side} does not exist: there are {n} rows (0 to "
            f"{n - 1}); check the pairs."
        )


def protocol_split(n: int, *, seed: int, anchors: int, test: int) -> Split:
    """Return the standard random split of `n` paired rows.

    With `perm = numpy.random.default_rng(seed).permutation(n)`: the first `anchors`
    rows are anchors, the next `test` are test pairs, and of the rest the first half is
    the x pool and the second half the y pool, so that no pool holds a row's partner. An
    odd row goes to y. Pairs keep the permuted order; pools are sorted.

    Raises:
        InputError: `n` is too small, or there are fewer than two anchors.
    """
    if anchors < 2 or test < 0 or n < anchors + test + 2:
        raise InputError(
            f"{n} rows cannot be split into {anchors} anchors, {test} test pairs and "
            "two pools; it takes at least 2 anchors, 0 test pairs and 2 more rows."
        )
    order = np.random.default_rng(seed).permutation(n).astype(np.int64)
    first, second, rest = np.split(order, [anchors, anchors + test])
    half = len(rest) // 2
    return Split(
        np.stack([first, first], axis=1),
        np.stack([second, second], axis=1),
        np.sort(rest[:half]),
        np.sort(rest[half:]),
    )


def redraw_split(
    pairs: NDArray[np.int64], n_x: int, n_y: int, *, seed: int, anchors: int, test: int
) -> Split:
    """Return a random split of many known pairs into anchors, test pairs and pools.

    The pairs are permuted by `numpy.random.default_rng(seed)`: the first `anchors` are
    anchors, the next `test` are test pairs; of the rest the first half gives its x rows
    to the x pool and the second half its y rows to the y pool, so that no pool row's
    partner is in the other pool. Rows in no pair join their side's pool. For n rows
    that are paired one to one in order this is `protocol_split`.

    Raises:
        InputError: too few pairs, a row in several pairs, or an empty pool.
    """
    if anchors < 2 or test < 1 or len(pairs) < anchors + test:
        raise InputError(
            f"{len(pairs)} pairs cannot give {anchors} anchors and {test} test pairs; "
            "it takes at least 2 anchors and 1 test pair."
        )
    for column, (side, n) in enumerate((("x", n_x), ("y", n_y))):
        rows, counts = np.unique(pairs[:, column], return_counts=True)
        _check_range(rows, n, side)
        if (counts > 1).any():
            raise InputError(
                f"Row {rows[counts > 1][0]} of {side} is in several pairs, so that a "
                "random split could put it on both sides; keep one pair a row, or give "
                "the test pairs in a file of their own."
            )
    order = np.random.default_rng(seed).permutation(len(pairs))
    first, second, rest = np.split(pairs[order], [anchors, anchors + test])
    half = len(rest) // 2
    pools = []
    for column, (side, n, kept) in enumerate(
        (("x", n_x, rest[:half]), ("y", n_y, rest[half:]))
    ):
        alone = np.setdiff1d(np.arange(n), pairs[:, column])
        pools.append(np.sort(np.concatenate([alone, kept[:, column]])).astype(np.int64))
        if not len(pools[-1]):
            raise InputError(
                f"No row of {side} is left for its pool; ask for fewer anchors or test "
                "pairs."
            )
    return Split(first.astype(np.int64), second.astype(np.int64), *pools)


def split_digest(split: Split) -> str:
    """Return 16 hexadecimal digits that change whenever the split does."""
    digest = hashlib.sha256()
    for name, rows in split._asdict().items():
        digest.update(f"{name}{rows.shape}".encode())
        digest.update(np.ascontiguousarray(rows, "<i8").tobytes())
    return digest.hexdigest()[:DIGEST_LENGTH]


def write_split(split: Split, path: str | Path, *, seed: int) -> None:
    """Write the split as JSON, whole or not at all."""
    record = {
        "schema": SCHEMA,
        "seed": seed,
        "digest": split_digest(split),
        **{name: rows.tolist() for name, rows in split._asdict().items()},
    }
    files.write_json(Path(path), record, indent=None)


def read_split(path: str | Path) -> Split:
    """Return the split that `write_split` wrote.

    Raises:
        InputError: The file is missing, of another schema, or was changed.
    """
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); check the path."
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is not JSON ({error}); it was cut short or edited, so write it "
            "again."
        ) from error
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        got = record.get("schema") if isinstance(record, dict) else record
        raise InputError(
            f"{path} is not a split of schema {SCHEMA} (it has {got!r}); write it "
            "again with this version."
        )
    try:
        split = Split(
            _rows(record["anchors"], (-1, 2)),
            _rows(record["test_pairs"], (-1, 2)),
            _rows(record["pool_x"], (-1,)),
            _rows(record["pool_y"], (-1,)),
        )
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise InputError(
            f"{path} does not hold the row numbers of a split ({error}); write it "
            "again."
        ) from error
    if record.get("digest") != split_digest(split):
        raise InputError(
            f"{path} was changed after it was written: its rows do not match its "
            "digest; write it again."
        )
    return split


def _rows(values: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return JSON lists as row numbers of a shape."""
    return np.asarray(values, np.int64).reshape(shape)
