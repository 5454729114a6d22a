"""The plan's most certain pairs, found tile by tile.

A row's best match is the column of its largest plan entry; its share is the part of the
row's mass that lies there, its margin the logarithm of how much more that is than the
second best's. With one direction's potentials h,

    log share_i = z_ij - log sum_k exp(z_ik),    z_ij = (h_j - C_ij)/epsilon,

in which the row's own potential cancels. A pair is mutual where each is the other's
best; its confidence is the geometric mean of its two shares.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchordot_jax import geometry
from anchordot_jax.arrays import AnyArray


class Best(NamedTuple):
    """Each row's best column in the plan."""

    match: np.ndarray
    """Its number `[n]`, int32."""
    log_share: np.ndarray
    """Logarithm of the share of the row's mass there `[n]`."""
    margin: np.ndarray
    """Logarithm of its ratio to the second best `[n]`; infinite without a second."""


class Matches(NamedTuple):
    """Every x row with its best match, most confident first; mutual ones before."""

    x: np.ndarray
    """Rows of x `[n]`."""
    y: np.ndarray
    """Their best rows of y `[n]`."""
    confidence: np.ndarray
    """Geometric mean of the shares of both directions `[n]`, in [0, 1]."""
    margin: np.ndarray
    """The smaller of the two directions' margins for mutual pairs, else x's own."""
    mutual: np.ndarray
    """Whether x is y's best match too `[n]`."""


def best_matches(
    x: AnyArray,
    y: AnyArray,
    f: AnyArray,
    g: AnyArray,
    epsilon: AnyArray | float,
    *,
    tile: int | None = None,
) -> Matches:
    """Return every x row's best match in the plan exp((f + g - C)/epsilon), sorted.

    Args:
        x: coordinates of the x pool, `[n, r]`.
        y: coordinates of the y pool, `[m, r]`.
        f: potential of the x pool, `[n]`.
        g: potential of the y pool, `[m]`.
        epsilon: regularisation.
        tile: rows of the plan that exist at once; None: see `geometry.tile_rows`.
    """
    rows = best_of_rows(x, y, g, epsilon, tile=tile)
    columns = best_of_rows(y, x, f, epsilon, tile=tile)
    n = len(rows.match)
    own = np.arange(n)
    mutual = columns.match[rows.match] == own
    # The other direction's share of the same entry: log pi_ij less the column's sum,
    # which for a mutual pair is what `columns` holds.
    back = _log_share_of(x, y, f, epsilon, own, rows.match, columns)
    confidence = np.exp((rows.log_share + back) / 2)
    margin = np.where(
        mutual, np.minimum(rows.margin, columns.margin[rows.match]), rows.margin
    )
    order = np.lexsort((own, -confidence, ~mutual))
    return Matches(
        own[order], rows.match[order], confidence[order], margin[order], mutual[order]
    )


def best_of_rows(
    x: AnyArray,
    y: AnyArray,
    h: AnyArray,
    epsilon: AnyArray | float,
    *,
    tile: int | None = None,
) -> Best:
    """Return the best column of every row; ties go to the smaller number.

    Args:
        x: coordinates of the rows, `[n, r]`.
        y: coordinates of the columns, `[m, r]`.
        h: the columns' potential, `[m]`.
        epsilon: regularisation.
        tile: rows of the plan that exist at once.
    """
    arrays = (jnp.asarray(a, jnp.float32) for a in (x, y, h, epsilon))
    found = _best_of_rows(*arrays, tile=tile or geometry.tile_rows(len(y)))
    return Best(*(np.asarray(part) for part in found))


@functools.partial(jax.jit, static_argnames="tile")
def _best_of_rows(
    x: jax.Array, y: jax.Array, h: jax.Array, epsilon: jax.Array, *, tile: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    def reduce_row(row: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        similarity = jnp.matmul(y, row, precision=geometry.HIGHEST)
        z = (h + similarity - 1) / epsilon
        best = jnp.argmax(z)
        others = jnp.where(jnp.arange(len(z)) == best, -jnp.inf, z)
        share = z[best] - jax.nn.logsumexp(z)
        return best.astype(jnp.int32), share, z[best] - jnp.max(others)

    found: tuple[jax.Array, jax.Array, jax.Array] = jax.lax.map(
        reduce_row, x, batch_size=tile
    )
    return found


def _log_share_of(
    x: AnyArray,
    y: AnyArray,
    f: AnyArray,
    epsilon: AnyArray | float,
    rows: np.ndarray,
    columns: np.ndarray,
    best: Best,
) -> np.ndarray:
    """Return the log share of entries (row, column) of their column's mass.

    It is the best entry's share less how far the entry is behind the best one.
    """
    top = best.match[columns]
    f = np.asarray(f)
    y_rows = np.asarray(y)[columns]
    near = f[rows] + np.einsum("ij,ij->i", np.asarray(x)[rows], y_rows)
    ahead = f[top] + np.einsum("ij,ij->i", np.asarray(x)[top], y_rows)
    behind = (near - ahead) / float(epsilon)
    share: np.ndarray = best.log_share[columns] + np.minimum(behind, 0.0)
    return share
