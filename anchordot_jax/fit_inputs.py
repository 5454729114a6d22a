"""What a fit sees, and the checks that it can be fitted."""

import hashlib
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from anchordot_jax.data import validation
from anchordot_jax.data.stored_pool import StoredPool, blocks
from anchordot_jax.errors import InputError

Pool = np.ndarray | StoredPool
"""Unpaired rows, in memory or in their file."""


class FitData(NamedTuple):
    """What a fit sees: the paired anchors and the two unpaired pools."""

    anchors_x: np.ndarray
    """`[N, dx]`; row k belongs to row k of `anchors_y`."""
    anchors_y: np.ndarray
    pool_x: Pool
    """`[n, dx]`."""
    pool_y: Pool
    """`[m, dy]`."""
    a: np.ndarray | None = None
    """Positive weights of the x pool, `[n]`; None is uniform."""
    b: np.ndarray | None = None

    def digest(self) -> str:
        """Return 16 hexadecimal digits that change when any number changes."""
        digest = hashlib.sha256()
        for name, array in self._asdict().items():
            if array is None:
                continue
            digest.update(f"{name}{array.shape}{array.dtype}".encode())
            if isinstance(array, StoredPool):
                for _, block in blocks(array):
                    digest.update(np.ascontiguousarray(block).data)
            else:
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]

    @property
    def stored(self) -> bool:
        """Whether a pool stays in its file."""
        return any(isinstance(pool, StoredPool) for pool in (self.pool_x, self.pool_y))

    def whole_pools(self, what: str) -> tuple[np.ndarray, np.ndarray]:
        """Return both pools as arrays.

        Args:
            what: the work that reads them whole.

        Raises:
            InputError: a pool that stays in its file.
        """
        x, y = self.pool_x, self.pool_y
        if isinstance(x, StoredPool) or isinstance(y, StoredPool):
            raise InputError(
                f"{what} needs both pools in memory, and here one stays in its file; "
                f"give arrays, as read_fit_data reads them without a limit of memory."
            )
        return x, y


def pool_bytes(x: Pool, y: Pool) -> int:
    """Return the bytes that both pools take as float32."""
    return 4 * sum(math.prod(pool.shape) for pool in (x, y))


def check_data(data: FitData) -> None:
    """Raise InputError unless anchors, pools and weights can be fitted."""
    if len(data.anchors_x) != len(data.anchors_y):
        raise InputError(
            f"The anchors must be paired row by row, got {len(data.anchors_x)} of x "
            f"and {len(data.anchors_y)} of y."
        )
    if len(data.anchors_x) < 2:
        raise InputError(f"At least 2 pairs are needed, got {len(data.anchors_x)}.")
    for side in ("x", "y"):
        anchors, pool = getattr(data, f"anchors_{side}"), getattr(data, f"pool_{side}")
        if len(pool) == 0:
            raise InputError(f"The {side} pool is empty; give unpaired {side} rows.")
        if anchors.shape[1] != pool.shape[1]:
            raise InputError(
                f"The {side} pool must have the anchors' {anchors.shape[1]} columns, "
                f"got {pool.shape[1]}."
            )
        if anchors.shape[1] < 2:
            raise InputError(
                f"The {side} embeddings have 1 column, and a student needs at least 2: "
                f"it standardises each row."
            )
        validation.check_embeddings(anchors, f"The array of {side} anchors")
        # The rows of a stored one were looked at when it was opened.
        if not isinstance(pool, StoredPool):
            validation.check_embeddings(pool, f"The {side} pool")
    for name, weights, pool in (("a", data.a, data.pool_x), ("b", data.b, data.pool_y)):
        if weights is not None:
            _check_weights(name, weights, len(pool))


def _check_weights(name: str, weights: np.ndarray, n: int) -> None:
    if weights.shape != (n,):
        raise InputError(
            f"The marginal {name} must have one weight a pool row, {n}, got shape "
            f"{weights.shape}."
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise InputError(
            f"The marginal {name} must hold finite weights >= 0, not all zero."
        )


def pool_weights(
    weights: ArrayLike | None, n: int, rows: np.ndarray | None
) -> np.ndarray | None:
    """Return the weights of the pool's rows, given those of its source's rows."""
    if weights is None:
        return None
    array = np.asarray(weights, dtype=np.float32)
    if rows is None:
        return array
    if array.shape != (n,):
        raise InputError(f"A marginal needs one weight a row, {n}, got {array.shape}.")
    chosen: np.ndarray = array[rows]
    return chosen


def as_matrix(rows: ArrayLike, name: str) -> np.ndarray:
    """Return the rows as a float32 matrix; raise InputError if they are none."""
    array = _as_array(rows, name)
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.floating):
        raise InputError(
            f"{name} must be a 2-D floating array of embeddings, got shape "
            f"{array.shape} of {array.dtype}."
        )
    return as_float32(array)


def take(array: np.ndarray, rows: np.ndarray, name: str) -> np.ndarray:
    """Return some rows; raise InputError, naming them, unless all can be used."""
    chosen: np.ndarray = array[rows]
    validation.check_embeddings(chosen, name, rows=rows)
    return chosen


def as_pairs(pairs: ArrayLike, name: str) -> np.ndarray:
    """Return the pairs as int64 `[N, 2]`; raise InputError if they are none."""
    array = _as_array(pairs, name)
    if array.size == 0:
        return np.zeros((0, 2), np.int64)
    if (
        array.ndim != 2
        or array.shape[1] != 2
        or not np.issubdtype(array.dtype, np.integer)
    ):
        raise InputError(
            f"{name} must be a list of (row of x, row of y) whole numbers, got shape "
            f"{array.shape} of {array.dtype}."
        )
    return array.astype(np.int64)


def as_float32(array: np.ndarray) -> np.ndarray:
    """Return the values as float32; too large ones become infinite, without a word.

    The checks that follow name their rows.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(array, dtype=np.float32)


def _as_array(values: ArrayLike, name: str) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError(
            f"{name} must be an array, got lists of several lengths ({error})."
        ) from None
