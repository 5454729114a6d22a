"""What all methods are given: anchors, pools, and the test items they are scored on."""

import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from anchordot_jax import evaluation
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.data.splits import Split
from anchordot_jax.errors import InputError
from anchordot_jax.fit_inputs import as_matrix, take


class Problem(NamedTuple):
    """One split of the data, float32 rows of unit norm."""

    anchors: Anchors
    pools: Pools
    test_x: np.ndarray
    """Distinct test items `[t, dx]`."""
    test_y: np.ndarray
    """`[u, dy]`."""
    positives_x2y: np.ndarray
    """Positions in `test_y` of each test x's partners, padded with -1."""
    positives_y2x: np.ndarray

    def digest(self) -> str:
        """Return 16 hexadecimal digits that change when any number changes."""
        digest = hashlib.sha256()
        parts = {
            "anchors_x": self.anchors.x,
            "anchors_y": self.anchors.y,
            "pool_x": self.pools.x,
            "pool_y": self.pools.y,
            **{name: getattr(self, name) for name in self._fields[2:]},
        }
        for name, array in parts.items():
            digest.update(f"{name}{array.shape}{array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]


def make_problem(
    x: ArrayLike,
    y: ArrayLike,
    split: Split,
    *,
    pool_x: ArrayLike | None = None,
    pool_y: ArrayLike | None = None,
) -> Problem:
    """Return the rows of a split, scaled to unit norm.

    Args:
        x: embeddings of one side, `[n_x, dx]`.
        y: embeddings of the other side, `[n_y, dy]`.
        split: which rows are anchors, test pairs and pools.
        pool_x: pool rows instead of the split's.
        pool_y: the same for y.

    Raises:
        InputError: no test pairs, or rows that cannot be used.
    """
    if not len(split.test_pairs):
        raise InputError("A comparison needs test pairs; none are left to score.")
    x, y = as_matrix(x, "x"), as_matrix(y, "y")
    paired = evaluation.positives_from_pairs(split.test_pairs)
    return Problem(
        Anchors(
            _unit(take(x, split.anchors[:, 0], "x")),
            _unit(take(y, split.anchors[:, 1], "y")),
        ),
        Pools(
            _unit(_pool(x, split.pool_x, pool_x, "x")),
            _unit(_pool(y, split.pool_y, pool_y, "y")),
        ),
        _unit(take(x, paired.query_rows, "x")),
        _unit(take(y, paired.gallery_rows, "y")),
        paired.positives_x2y,
        paired.positives_y2x,
    )


def shuffle_anchors(problem: Problem, *, seed: int) -> Problem:
    """Return the problem with the anchors' pairing destroyed: a control.

    No anchor keeps its partner; every method that learns from pairs must fall to
    chance.
    """
    order = np.random.default_rng(seed).permutation(len(problem.anchors.y))
    partner = np.empty_like(order)
    partner[order] = np.roll(order, 1)
    anchors = Anchors(problem.anchors.x, problem.anchors.y[partner])
    return problem._replace(anchors=anchors)


def _pool(
    array: np.ndarray, rows: np.ndarray, separate: ArrayLike | None, side: str
) -> np.ndarray:
    if separate is None:
        return take(array, rows, side)
    pool = as_matrix(separate, f"pool_{side}")
    return take(pool, np.arange(len(pool)), f"pool_{side}")


def _unit(rows: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(rows / norms, np.float32)
