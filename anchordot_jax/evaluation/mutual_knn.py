"""Mutual nearest neighbours: do two spaces agree on who is close to whom?"""

import jax.numpy as jnp
import numpy as np

from anchordot_jax import matching, profiles
from anchordot_jax.arrays import AnyArray
from anchordot_jax.errors import InputError
from anchordot_jax.matching.nearest import as_embeddings, check_count


def mutual_knn_alignment(x: AnyArray, y: AnyArray, k: int = 10) -> float:
    """Return the share of neighbours that paired items have in common, from 0 to 1.

    The mean over items i of |N_k(x_i) n N_k(y_i)| / k, where N_k are the k nearest
    other items of the same side by cosine; the alignment measure of Huh et al. (2024),
    "The Platonic Representation Hypothesis". Unrelated spaces have k / (n - 1) on
    average. Equally near items are ordered by row number. The n x n similarities are
    never whole.

    Args:
        x: `[n, dx]`; row i belongs to row i of y.
        y: `[n, dy]`.
        k: neighbours an item, fewer than n.

    Raises:
        InputError: the rows are not paired, zero or not finite, or k is out of range.
    """
    rows_x, rows_y = as_embeddings(x, "x"), as_embeddings(y, "y")
    check_count("k", k)
    if len(rows_x) != len(rows_y):
        raise InputError(
            f"Mutual neighbours need as many rows in x as in y, got {len(rows_x)} and "
            f"{len(rows_y)}; give the paired rows of both sides."
        )
    if k >= len(rows_x):
        raise InputError(
            f"k must be less than the {len(rows_x)} items, for each has one neighbour "
            f"fewer, got {k}."
        )
    # Neighbours are distinct within a side, so equal ones are of different sides.
    both = [_other_neighbours(rows_x, "x", k), _other_neighbours(rows_y, "y", k)]
    together = np.sort(np.concatenate(both, axis=1), axis=1)
    shared = int(np.count_nonzero(together[:, 1:] == together[:, :-1]))
    return shared / (len(rows_x) * k)


def _other_neighbours(rows: np.ndarray, name: str, k: int) -> np.ndarray:
    """Return each row's k nearest other rows, `[n, k]`, in no order."""
    zero = ~rows.any(axis=1)
    if zero.any():
        raise InputError(
            f"{name} is zero in row {int(zero.argmax())}, which has no cosine; leave "
            f"that pair out."
        )
    largest = np.abs(rows).max(axis=1, keepdims=True)
    unit = np.asarray(profiles.normalize(jnp.asarray(rows / largest)))
    nearest = matching.top_k(unit, unit, k + 1).indices
    # Among copies of an item, the item itself may come later than first, or not at
    # all; then the last of the k + 1 is left out.
    left_out = nearest == np.arange(len(rows))[:, None]
    left_out[~left_out.any(axis=1), -1] = True
    others: np.ndarray = nearest[~left_out].reshape(len(rows), k)
    return others
