"""One side's map of a model, applied to arrays and files block by block."""

import functools
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from anchordot_jax import maps
from anchordot_jax.data import EmbeddingSource, validation
from anchordot_jax.errors import InputError
from anchordot_jax.fit_inputs import as_float32
from anchordot_jax.students import Params

BATCH_SIZE = 8192

Side = Literal["x", "y"]

Rows = ArrayLike | EmbeddingSource


class SideMap(NamedTuple):
    """The map of one side."""

    params: Params
    """Of both sides."""
    kind: str
    """A key of `maps.KINDS`."""
    side: Side
    settings: tuple[tuple[str, Any], ...]
    """What the map's kind is told beside its parameters."""

    def check(self, rows: Rows) -> None:
        """Raise InputError unless the rows have the side's dimension."""
        dim = maps.KINDS[self.kind].dims(self.params, self.side)[0]
        if isinstance(rows, EmbeddingSource):
            where, shape = rows.where, tuple(rows.shape)
        else:
            where, shape = "The array", np.shape(rows)
        if len(shape) != 2 or shape[1] != dim:
            raise InputError(
                f"{where} has shape {shape}, and the model's {self.side} side takes "
                f"rows of {dim} numbers; give embeddings of the encoder it was fitted "
                f"with."
            )

    def blocks(self, rows: Rows, batch_size: int) -> Iterator[np.ndarray]:
        """Yield the embeddings of all rows, `batch_size` rows at a time.

        Raises:
            InputError: wrong shape, or rows that are zero or not finite.
        """
        self.check(rows)
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}.")
        n = (
            rows.shape[0]
            if isinstance(rows, EmbeddingSource)
            else len(np.asarray(rows))
        )
        # Batches are padded to one size, so that one compilation serves them all.
        size = min(batch_size, _next_power_of_two(n))
        for batch in _batches(self.side, rows, size):
            padded = np.pad(batch, ((0, size - len(batch)), (0, 0)))
            embedded = _embed(
                self.params,
                padded,
                kind=self.kind,
                side=self.side,
                settings=self.settings,
            )
            yield np.asarray(embedded)[: len(batch)]

    def whole(self, rows: Rows, batch_size: int = BATCH_SIZE) -> np.ndarray:
        """Return the embeddings of all rows, `[n, k]`."""
        blocks = list(self.blocks(rows, batch_size))
        dim = maps.KINDS[self.kind].dims(self.params, self.side)[1]
        return np.concatenate(blocks or [np.zeros((0, dim), np.float32)])

    def some(self, rows: Rows, chosen: np.ndarray) -> np.ndarray:
        """Return the embeddings of some rows; of an opened file only they are read.

        Raises:
            InputError: row numbers out of range, or rows that cannot be used.
        """
        self.check(rows)
        if isinstance(rows, EmbeddingSource):
            array, where = rows.read(chosen), rows.where
        else:
            array = np.asarray(rows)
            if chosen.max() >= len(array):
                raise InputError(
                    f"The pairs name row {chosen.max()} of {self.side}, which has "
                    f"{len(array)} rows, counted from 0."
                )
            array, where = as_float32(array[chosen]), _name(self.side)
        validation.check_embeddings(array, where, rows=chosen)
        return self.whole(array)


def _batches(side: Side, rows: Rows, size: int) -> Iterator[np.ndarray]:
    """Yield checked float32 blocks of an array or an opened file."""
    if isinstance(rows, EmbeddingSource):
        for start, block in rows.iter_blocks(size):
            validation.check_embeddings(block, rows.where, first_row=start)
            yield block
        return
    array = np.asarray(rows)
    for start in range(0, len(array), size):
        block = as_float32(array[start : start + size])
        validation.check_embeddings(block, _name(side), first_row=start)
        yield block


def _name(side: Side) -> str:
    return f"The array given as side {side}"


@functools.partial(jax.jit, static_argnames=("kind", "side", "settings"))
def _embed(
    params: Params,
    rows: Array,
    *,
    kind: str,
    side: str,
    settings: tuple[tuple[str, Any], ...],
) -> Float[Array, "n k"]:
    return maps.KINDS[kind].embed(params, rows, side, dict(settings))


def _next_power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()
