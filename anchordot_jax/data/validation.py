"""What makes an embedding usable: finite values and a direction.

A row of NaN or infinity poisons every similarity, and a row of zeros cannot be scaled
to unit length; nor can one so long or so short that its squares leave float32.
`check_embeddings` refuses them; `inspect_embeddings` counts them.
"""

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.data.source import EmbeddingSource
from anchordot_jax.errors import InputError

SHOWN = 5

SHORTEST, LONGEST = 1e-15, 1e15
"""Norms whose squares float32 holds with room to spare. Devices take subnormal numbers
for zero, so that a shorter row would silently lose its direction."""


@dataclass(frozen=True)
class EmbeddingReport:
    """What one pass over an embedding file found.

    Attributes:
        n: Number of rows.
        d: Number of dimensions.
        dtype: The stored type.
        has_ids: Whether the file holds ids for its rows.
        n_nonfinite: Rows with a NaN or an infinity (float64 beyond float32 included).
        first_nonfinite: The first five of them.
        n_zero: Rows of zeros.
        first_zero: The first five of them.
        n_extreme: Rows whose norm is outside 1e-15 to 1e15.
        first_extreme: The first five of them.
        n_duplicate: Rows that repeat an earlier row exactly, by a 64-bit hash.
        n_constant_dims: Dimensions with one value in all rows.
        norm_min: Smallest Euclidean norm of the finite rows; NaN without any.
        norm_mean: Mean norm of the finite rows.
        norm_max: Largest norm of the finite rows.
    """

    n: int
    d: int
    dtype: str
    has_ids: bool
    n_nonfinite: int
    first_nonfinite: tuple[int, ...]
    n_zero: int
    first_zero: tuple[int, ...]
    n_extreme: int
    first_extreme: tuple[int, ...]
    n_duplicate: int
    n_constant_dims: int
    norm_min: float
    norm_mean: float
    norm_max: float


def check_embeddings(
    array: NDArray[np.floating],
    where: str,
    *,
    first_row: int = 0,
    rows: NDArray[np.integer] | None = None,
) -> None:
    """Return None when every row of `[k, d]` is finite and has a usable length.

    Args:
        array: The embeddings.
        where: Their name in messages.
        first_row: The number in the file of the array's first row.
        rows: The number in the file of each row, where they do not follow one another.

    Raises:
        InputError: Some rows are not finite, all zeros, or far too long or short.
    """
    numbers = first_row + np.arange(len(array)) if rows is None else rows
    nonfinite = numbers[_nonfinite(array)]
    if len(nonfinite):
        raise InputError(
            f"{where} has {_count(nonfinite, 'NaN or infinite values')}; remove or "
            "encode them again."
        )
    zero = numbers[_zero(array)]
    if len(zero):
        raise InputError(
            f"{where} has {_count(zero, 'only zeros, so without a direction')}; remove "
            "or encode them again."
        )
    extreme = numbers[_extreme(_norms(array))]
    if len(extreme):
        raise InputError(
            f"{where} has {_count(extreme, _OUTSIDE)}; scale the rows to unit length "
            "in float64 first."
        )


_OUTSIDE = f"a length outside {SHORTEST:g} to {LONGEST:g}"


def _extreme(norms: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which finite, non-zero norms are too large or small for float32."""
    short = (norms > 0) & (norms < SHORTEST)
    return np.asarray(short | ((norms > LONGEST) & np.isfinite(norms)))


def _nonfinite(array: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return which rows hold a NaN or an infinity."""
    return np.asarray(~np.isfinite(array).all(axis=1))


def _zero(array: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return which rows are all zeros."""
    # A signalling NaN, which only a damaged file has, would be warned of.
    with np.errstate(invalid="ignore"):
        return np.asarray(~array.any(axis=1))


def _count(numbers: NDArray[np.integer], what: str) -> str:
    """Return e.g. `2 rows with NaN or infinite values (rows 3, 8)`."""
    n = len(numbers)
    first = ", ".join(str(number) for number in numbers[:SHOWN])
    more = ", ..." if n > SHOWN else ""
    noun = "row" if n == 1 else "rows"
    return f"{n} {noun} with {what} ({noun} {first}{more})"


def inspect_embeddings(source: EmbeddingSource, batch: int = 65536) -> EmbeddingReport:
    """Return the report of one pass over a file, `batch` rows in memory at a time.

    Eight bytes a row are kept to find duplicates.
    """
    n, d = source.shape
    nonfinite, zero = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    norms, hashes = np.empty(n), np.empty(n, np.uint64)
    low, high = np.full(d, np.inf, np.float32), np.full(d, -np.inf, np.float32)
    for start, block in source.iter_blocks(batch):
        part = slice(start, start + len(block))
        nonfinite[part], zero[part] = _nonfinite(block), _zero(block)
        norms[part] = _norms(block)
        hashes[part] = _row_hashes(block)
        # A NaN is carried on, so a dimension that has one never counts as constant.
        low, high = (
            np.minimum(low, block.min(axis=0)),
            np.maximum(high, block.max(axis=0)),
        )
    finite, extreme = norms[~nonfinite], _extreme(norms)
    return EmbeddingReport(
        n=n,
        d=d,
        dtype=source.dtype,
        has_ids=source.ids is not None,
        n_nonfinite=int(nonfinite.sum()),
        first_nonfinite=_first(nonfinite),
        n_zero=int(zero.sum()),
        first_zero=_first(zero),
        n_extreme=int(extreme.sum()),
        first_extreme=_first(extreme),
        n_duplicate=n - len(np.unique(hashes)),
        n_constant_dims=int((low == high).sum()),
        norm_min=float(finite.min()) if len(finite) else math.nan,
        norm_mean=float(finite.mean()) if len(finite) else math.nan,
        norm_max=float(finite.max()) if len(finite) else math.nan,
    )


def _norms(block: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the rows' Euclidean norms, summed in float64 without a float64 copy."""
    with np.errstate(invalid="ignore"):
        squares = np.einsum("ij,ij->i", block, block, dtype=np.float64)
    return np.asarray(np.sqrt(squares))


def _row_hashes(block: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each row's bytes."""
    # Adding zero turns -0.0 into 0.0, whose bytes differ though the values do not.
    with np.errstate(invalid="ignore"):
        rows = block + np.float32(0)
    digests = b"".join(hashlib.blake2b(row, digest_size=8).digest() for row in rows)
    return np.frombuffer(digests, np.uint64)


def _first(flags: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the numbers of the first few rows flagged."""
    return tuple(np.flatnonzero(flags)[:SHOWN].tolist())
