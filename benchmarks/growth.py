"""Growth exponents: the slope of the logarithm of a cost against that of a size."""

from collections.abc import Iterable

import numpy as np


def exponent(points: Iterable[tuple[float, float]]) -> float | None:
    """Return p of the law value ~ size^p that fits best, by least squares of the logs.

    None of fewer than two sizes. Values that are not above 0 are left out.

    Args:
        points: (size, value) pairs.
    """
    known = [(size, value) for size, value in points if size > 0 and value > 0]
    if len({size for size, _ in known}) < 2:
        return None
    sizes, values = np.log(np.array(known, np.float64)).T
    return float(np.polyfit(sizes, values, 1)[0])
