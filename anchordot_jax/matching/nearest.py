"""Exact nearest neighbours by inner product, one block of queries at a time.

The score of gallery item j for a query q is

    score(q, j) = scale * <q, g_j> + offset_j,

and the score matrix [q, m] is never whole: a block of queries meets the whole gallery
in a tile of about `block_bytes` bytes, which its consumer reduces before the next
tile is computed.
"""

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchordot_jax.arrays import AnyArray
from anchordot_jax.errors import InputError

BLOCK_BYTES = 64 << 20
"""Default size of one score tile."""

LEAST_ROWS = 8
"""A block has at least this many queries. XLA turns a block of one into a
matrix-vector product, which sums in another order, so that the last bits of a score
would depend on the block size and equal gallery items could score differently."""


class TopK(NamedTuple):
    """The best k gallery items of every query, best first."""

    indices: np.ndarray
    """Positions in the gallery [q, k], int32."""
    scores: np.ndarray
    """Their scores [q, k], float32, descending."""


class Scoring(NamedTuple):
    """Checked inputs that define a score matrix [q, m]."""

    queries: np.ndarray
    """[q, d], float32."""
    gallery: np.ndarray
    """[m, d], float32."""
    offsets: np.ndarray
    """One term per gallery item [m], float32."""
    scale: float
    """Factor on the inner product."""


def top_k(
    queries: AnyArray,
    gallery: AnyArray,
    k: int,
    *,
    offsets: AnyArray | None = None,
    scale: float = 1.0,
    block_bytes: int = BLOCK_BYTES,
) -> TopK:
    """Return the k best-scoring gallery items of every query.

    Equal scores are ordered by position in the gallery, the smaller first.

    Args:
        queries: Embeddings [q, d].
        gallery: Embeddings [m, d].
        k: Number of items to return; above m it counts as m.
        offsets: One term per gallery item [m], such as `bank_offsets`; None is zero.
        scale: Factor on the inner product.
        block_bytes: Size of a score tile.

    Raises:
        InputError: If shapes do not match, or a value is not finite.
    """
    scoring = score_with(queries, gallery, offsets=offsets, scale=scale)
    check_count("k", k)
    k = min(k, len(scoring.gallery))
    indices = np.empty((len(scoring.queries), k), np.int32)
    scores = np.empty((len(scoring.queries), k), np.float32)
    for rows, tile in score_blocks(scoring, block_bytes):
        best, where = _top_of_tile(tile, k)
        valid = rows.stop - rows.start
        scores[rows] = np.asarray(best)[:valid]
        indices[rows] = np.asarray(where)[:valid]
    return TopK(indices, scores)


def score_with(
    queries: AnyArray, gallery: AnyArray, *, offsets: AnyArray | None, scale: float
) -> Scoring:
    """Return the checked definition of a score matrix that cannot overflow.

    Raises:
        InputError: If shapes do not match, a value is not finite, or the scores could
            leave the range of float32.
    """
    q = as_embeddings(queries, "queries")
    g = as_embeddings(gallery, "gallery")
    if q.shape[1] != g.shape[1]:
        raise InputError(
            f"queries have {q.shape[1]} columns but gallery has {g.shape[1]}; "
            "both must live in the same space."
        )
    added = np.zeros(len(g), np.float32) if offsets is None else np.asarray(offsets)
    if added.shape != (len(g),) or not np.isfinite(added).all():
        raise InputError(
            f"offsets must be {len(g)} finite numbers, one per gallery item, got "
            f"shape {added.shape}; compute them for this gallery."
        )
    largest = q.shape[1] * float(np.abs(q).max()) * float(np.abs(g).max())
    bound = max(1.0, abs(scale)) * largest + float(np.abs(added).max())
    if not math.isfinite(scale) or bound > float(np.finfo(np.float32).max):
        raise InputError(
            f"scores may reach {bound:.3g} with scale {scale!r}, beyond float32; "
            "normalise the rows of queries and gallery, and give a finite scale."
        )
    return Scoring(q, g, added.astype(np.float32), float(scale))


def score_blocks(
    scoring: Scoring, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[slice, jax.Array]]:
    """Yield the rows of each block of queries and its score tile [block, m].

    All tiles have the same shape, so that everything computed from them is compiled
    once per gallery; the last one ends with rows of padding to be left out.
    """
    q = len(scoring.queries)
    block = block_rows(q, len(scoring.gallery), block_bytes)
    gallery, offsets = jnp.asarray(scoring.gallery), jnp.asarray(scoring.offsets)
    for start in range(0, q, block):
        rows = slice(start, min(start + block, q))
        queries = pad_rows(scoring.queries[rows], block)
        yield rows, score_tile(queries, gallery, offsets, scoring.scale)


@jax.jit
def score_tile(
    queries: AnyArray, gallery: AnyArray, offsets: AnyArray, scale: float
) -> jax.Array:
    """Return the scores [b, m] of a block of queries [b, d] for the whole gallery.

    A function of its own, so that its consumers read one stored tile: compiled
    together with them, XLA might compute a score twice and round it differently.
    """
    # Zeros are added even without offsets: they turn -0.0, which a sort puts below
    # 0.0, into 0.0.
    highest = jax.lax.Precision.HIGHEST
    products = jnp.matmul(queries, jnp.transpose(gallery), precision=highest)
    return scale * products + offsets[None, :]


def block_rows(n_queries: int, n_gallery: int, block_bytes: int) -> int:
    """Return the number of queries in a block whose float32 tile fills block_bytes."""
    check_count("block_bytes", block_bytes)
    return max(LEAST_ROWS, min(n_queries, block_bytes // (4 * n_gallery)))


def pad_rows(block: np.ndarray, rows: int) -> np.ndarray:
    """Return the block [b, d] with rows of zeros below it, [rows, d]."""
    return np.pad(block, ((0, rows - len(block)), (0, 0)))


def as_embeddings(values: AnyArray, name: str) -> np.ndarray:
    """Return the embeddings as a finite float32 NumPy array [n, d].

    Raises:
        InputError: If they are not a matrix of finite numbers with a row and a column.
    """
    array = np.asarray(values)
    real = any(jnp.issubdtype(array.dtype, kind) for kind in (np.floating, np.integer))
    if array.ndim != 2 or array.size == 0 or not real:
        raise InputError(
            f"{name} must be a matrix [rows, columns] of numbers with a row and a "
            f"column, got {array.dtype} of shape {array.shape}."
        )
    with np.errstate(over="ignore"):
        array = array.astype(np.float32, copy=False)
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        raise InputError(
            f"{name} has a value that is not finite in float32 in row "
            f"{int(np.argmin(finite))}; remove or repair that row."
        )
    return array


def check_count(name: str, value: int) -> None:
    """Raise InputError unless the value is a whole number of at least 1."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < 1:
        raise InputError(f"{name} must be a whole number >= 1, got {value!r}.")


@functools.partial(jax.jit, static_argnames="k")
def _top_of_tile(tile: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    best, where = jax.lax.top_k(tile, k)
    return best, where
