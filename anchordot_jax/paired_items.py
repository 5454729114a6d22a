"""The items of some pairs in the shared space, and how well they find each other."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from anchordot_jax import evaluation
from anchordot_jax.side_map import Rows, SideMap


class PairedItems(NamedTuple):
    """The embeddings of some pairs' rows, once each, and which belong together."""

    x: np.ndarray
    y: np.ndarray
    positives_x2y: np.ndarray
    positives_y2x: np.ndarray

    @classmethod
    def of(
        cls, map_x: SideMap, map_y: SideMap, x: Rows, y: Rows, pairs: ArrayLike
    ) -> "PairedItems":
        """Return the embeddings of the rows that pairs `[T, 2]` name.

        Raises:
            InputError: wrong shapes, row numbers out of range, or bad rows.
        """
        paired = evaluation.positives_from_pairs(np.asarray(pairs))
        return cls(
            map_x.some(x, paired.query_rows),
            map_y.some(y, paired.gallery_rows),
            paired.positives_x2y,
            paired.positives_y2x,
        )

    def metrics(
        self, scale: float, x2y: np.ndarray | None, y2x: np.ndarray | None
    ) -> dict[str, float]:
        """Return the metrics of both directions, with a term a gallery item each."""
        return evaluation.evaluate(*self, offsets_x2y=x2y, offsets_y2x=y2x, scale=scale)

    def metrics_beside(
        self, scale: float, x2y: np.ndarray | None, y2x: np.ndarray | None
    ) -> dict[str, float]:
        """Return the cosine's metrics, and with `bank/` before them the corrected ones.

        A direction without terms has none of the latter.
        """
        there = {"x2y": x2y is not None, "y2x": y2x is not None}
        metrics = self.metrics(scale, None, None)
        if not any(there.values()):
            return metrics
        beside = self.metrics(scale, x2y, y2x)
        return metrics | {
            f"bank/{name}": value
            for name, value in beside.items()
            if there.get(name.split("/")[0])
        }
