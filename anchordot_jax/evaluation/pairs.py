"""Which gallery items are right for which query: tables of positives.

A table of positives [q, p] holds every query's positive gallery positions, padded
with -1. Test pairs may share rows: an image with five captions is one query with five
positives in one direction, and five queries with one positive each in the other.
"""

from typing import NamedTuple

import numpy as np

from anchordot_jax.errors import InputError


class PairedRows(NamedTuple):
    """The distinct rows of some test pairs, and which of them belong together."""

    query_rows: np.ndarray
    """Distinct x rows in order of first appearance [q]."""
    gallery_rows: np.ndarray
    """Distinct y rows in order of first appearance [m]."""
    positives_x2y: np.ndarray
    """Positions in gallery_rows of each query row's partners [q, p], -1 padded."""
    positives_y2x: np.ndarray
    """Positions in query_rows of each gallery row's partners [m, p'], -1 padded."""


def positives_from_pairs(pairs: np.ndarray) -> PairedRows:
    """Return the distinct rows of test pairs and the positives of both directions.

    Example: the pairs (7, 2), (7, 3), (4, 2) give query_rows (7, 4), gallery_rows
    (2, 3), positives_x2y ((0, 1), (0, -1)) and positives_y2x ((0, 1), (0, -1)).

    Args:
        pairs: Row numbers (x row, y row) [T, 2]; a repeated pair counts once.

    Raises:
        InputError: If pairs are not whole numbers >= 0 of shape [T, 2] with T >= 1.
    """
    rows = np.asarray(pairs)
    fits = rows.ndim == 2 and rows.shape[1] == 2 and len(rows) > 0
    if not fits or not np.issubdtype(rows.dtype, np.integer) or rows.min() < 0:
        raise InputError(
            "pairs must be whole numbers >= 0 of shape [T, 2], one (x row, y row) a "
            f"line, got {rows.dtype} of shape {rows.shape}."
        )
    query_rows, x = _by_first_appearance(rows[:, 0])
    gallery_rows, y = _by_first_appearance(rows[:, 1])
    return PairedRows(query_rows, gallery_rows, _padded(x, y), _padded(y, x))


def positive_table(positives: np.ndarray, q: int, m: int) -> np.ndarray:
    """Return the positives as a checked table [q, p], each once, padded with -1.

    Args:
        positives: Gallery positions: [q], or [q, p] padded with -1.
        q: Number of queries.
        m: Number of gallery items.

    Raises:
        InputError: If the shape does not match, a position is not in the gallery, or
            a query has no positive.
    """
    table = np.asarray(positives)
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2 or len(table) != q or not np.issubdtype(table.dtype, np.integer):
        raise InputError(
            f"positives must be whole numbers of shape ({q},) or ({q}, p), one row "
            f"per query, got {table.dtype} of shape {np.shape(positives)}."
        )
    if table.size and (table.min() < -1 or table.max() >= m):
        raise InputError(
            f"positives must be gallery positions from 0 to {m - 1}, or -1 as "
            f"padding, got values from {table.min()} to {table.max()}."
        )
    empty = ~(table >= 0).any(axis=1)
    if empty.any():
        raise InputError(
            f"query {int(np.argmax(empty))} has no positive in the gallery; leave "
            "such queries out."
        )
    table = np.sort(table.astype(np.int32), axis=1)
    table[:, 1:][table[:, 1:] == table[:, :-1]] = -1
    return table


def _by_first_appearance(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows in order of appearance, and each entry's position."""
    distinct, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    order = np.argsort(first)
    position = np.argsort(order)
    return distinct[order], position[inverse]


def _padded(queries: np.ndarray, items: np.ndarray) -> np.ndarray:
    """Return each query's distinct items in ascending order [q, p], padded with -1."""
    queries, items = np.unique(np.stack([queries, items], axis=1), axis=0).T
    counts = np.bincount(queries)
    first = np.cumsum(counts) - counts
    table = np.full((len(counts), counts.max()), -1)
    table[queries, np.arange(len(queries)) - first[queries]] = items
    return table
