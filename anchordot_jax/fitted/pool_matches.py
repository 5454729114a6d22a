"""The pools' most certain pairs, with how often such pairs are right.

The precision is learned from anchors that were held out and put back among the pools: a
fold's plan is solved anew, and the mutual best pairs that involve a held-out item are
right where both belong together. So the figure holds for items whose partner is in the
other pool; a pool that lacks many partners has fewer right pairs.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax
import numpy as np

from anchordot_jax import alignment
from anchordot_jax.config import Config
from anchordot_jax.fit_inputs import FitData
from anchordot_jax.listeners import Listener, Silent
from anchordot_jax.matching.calibration import Calibration, calibrate
from anchordot_jax.matching.confident import Matches, best_matches
from anchordot_jax.recipes.soft_selection import SoftSelection
from anchordot_jax.runs.run_folder import RunFolder
from anchordot_jax.selection import Selection

FOLDS = 5
MIN_ANCHORS = 20
"""With fewer anchors nothing is held out, and there is no calibration."""


class PoolMatches(NamedTuple):
    """Every x pool item's best match, most confident first."""

    matches: Matches
    calibration: Calibration | None

    @property
    def precision(self) -> np.ndarray | None:
        """Expected precision of each match `[n]`; only mutual ones are calibrated."""
        if self.calibration is None:
            return None
        known = self.calibration(self.matches.confidence)
        return np.where(self.matches.mutual, known, np.nan)


def find_matches(
    data: FitData,
    config: Config,
    chosen: Selection | SoftSelection,
    *,
    run: RunFolder | None = None,
    calibrated: bool = True,
    listener: Listener | None = None,
) -> PoolMatches:
    """Return the best match of every x pool item in the plan, with its precision.

    Args:
        data: anchors and pools.
        config: every setting.
        chosen: what the fit chose.
        run: the finished run of the same data.
        calibrated: whether to learn the precision from held-out anchors, which solves
            the transport `FOLDS` times more.
        listener: told of the progress.

    Raises:
        InputError: data that cannot be used.
    """
    found = _best(data, config, chosen, run=run, listener=listener)
    if not calibrated or len(data.anchors_x) < MIN_ANCHORS:
        return PoolMatches(found, None)
    known = [
        heldout_matches(fold, held, config, chosen)
        for fold, held in heldout_folds(data, seed=config.seed)
    ]
    confidence, right = (np.concatenate(parts) for parts in zip(*known, strict=True))
    if not len(right):
        return PoolMatches(found, None)
    return PoolMatches(found, calibrate(confidence, right))


TOPS = (50, 100, 200, 500)
"""Lengths of a list at which its expected precision is told."""


def expected_precisions(found: PoolMatches, tops: Iterable[int]) -> dict[int, float]:
    """Return the expected precision of the first so many mutual matches.

    Numbers beyond those there are left out; empty without a calibration.
    """
    precision = found.precision
    if precision is None:
        return {}
    known = precision[found.matches.mutual]
    return {
        top: float(known[:top].mean())
        for top in sorted(set(tops))
        if 0 < top <= len(known)
    }


def heldout_folds(data: FitData, *, seed: int) -> Iterator[tuple[FitData, int]]:
    """Yield the data with each fold of anchors moved to the ends of both pools.

    And the number of anchors moved. The pools' weights, where given, are continued
    with their mean.
    """
    n = len(data.anchors_x)
    order = np.asarray(jax.random.permutation(jax.random.key(seed), n))
    pool_x, pool_y = data.whole_pools("Learning the matches' precision")
    for held in np.array_split(order, FOLDS):
        kept = np.setdiff1d(order, held)
        yield (
            FitData(
                anchors_x=data.anchors_x[kept],
                anchors_y=data.anchors_y[kept],
                pool_x=np.concatenate([pool_x, data.anchors_x[held]]),
                pool_y=np.concatenate([pool_y, data.anchors_y[held]]),
                a=_continued(data.a, len(held)),
                b=_continued(data.b, len(held)),
            ),
            len(held),
        )


def heldout_matches(
    data: FitData,
    n_held: int,
    config: Config,
    chosen: Selection | SoftSelection,
) -> tuple[np.ndarray, np.ndarray]:
    """Return confidence and truth of the held-out items' mutual matches.

    Each held-out item of either side counts once, so that a right pair, which is two
    of them, counts twice. Counted by pairs, the wrong ones would weigh double: each
    touches two anchors, any of which may be the one held out.

    Args:
        data: a fold, the held-out anchors last in both pools, in one order.
        n_held: their number.
        config: every setting.
        chosen: what the fit chose.
    """
    found = _best(data, config, chosen, run=None, listener=_Quiet())
    x = found.x - (len(data.pool_x) - n_held)
    y = found.y - (len(data.pool_y) - n_held)
    counted = [found.mutual & (rows >= 0) for rows in (x, y)]
    confidence = np.concatenate([found.confidence[own] for own in counted])
    right = np.concatenate([(x == y)[own] for own in counted])
    return confidence, right


def _best(
    data: FitData,
    config: Config,
    chosen: Selection | SoftSelection,
    *,
    run: RunFolder | None,
    listener: Listener | None,
) -> Matches:
    pools = alignment.match_pools(data, config, chosen, run=run, listener=listener)
    return best_matches(
        pools.coordinates_x, pools.coordinates_y, pools.f, pools.g, pools.epsilon
    )


def _continued(weights: np.ndarray | None, count: int) -> np.ndarray | None:
    if weights is None:
        return None
    return np.concatenate([weights, np.full(count, weights.mean(), weights.dtype)])


class _Quiet(Silent):
    """A listener that leaves out the warnings of a fold's solve.

    The full solve has given its own.
    """

    def warn(self, message: str) -> None:
        """Do nothing."""
