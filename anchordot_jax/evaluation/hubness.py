"""Hubness: how unevenly gallery items appear among the neighbours of queries.

The k-occurrence N_k(j) of a gallery item is the number of queries that have it among
their k nearest. Its skewness over the gallery measures hubness (Radovanović et al.,
2010): zero when all items are equally popular, large when a few are hubs.
"""

import numpy as np

from anchordot_jax.errors import InputError


def k_occurrence(indices: np.ndarray, n_gallery: int) -> np.ndarray:
    """Return the number of times each gallery item occurs in `indices` [m].

    Items that never occur count as zero; leaving them out would hide the anti-hubs.

    Args:
        indices: Every query's k nearest gallery items [q, k], as of `top_k`.
        n_gallery: Size m of the gallery.

    Raises:
        InputError: If the indices are not whole numbers below n_gallery.
    """
    flat = np.asarray(indices).ravel()
    whole = flat.size > 0 and np.issubdtype(flat.dtype, np.integer)
    if not whole or flat.min() < 0 or flat.max() >= n_gallery:
        raise InputError(
            "indices must be whole numbers from 0 to n_gallery - 1 = "
            f"{n_gallery - 1}; pass the neighbours found in this gallery."
        )
    return np.bincount(flat, minlength=n_gallery)


def skewness(counts: np.ndarray) -> float:
    """Return the third standardised moment E[(N - mean)^3] / E[(N - mean)^2]^(3/2).

    Population moments, without correction for bias, over all gallery items; 0.0 when
    all counts are equal.

    Args:
        counts: k-occurrence of every gallery item [m].

    Raises:
        InputError: If there are no counts.
    """
    values = np.asarray(counts, np.float64)
    if values.ndim != 1 or values.size == 0:
        raise InputError(
            "counts must be a vector with one count per gallery item, "
            f"got shape {values.shape}."
        )
    if (values == values[0]).all():
        return 0.0
    deviation = values - values.mean()
    return float(np.mean(deviation**3) / np.mean(deviation**2) ** 1.5)
