"""What the pairs agree on: the canonical directions of two spectral embeddings."""

import warnings
from typing import NamedTuple

import numpy as np
import threadpoolctl
from sklearn.cross_decomposition import CCA
from sklearn.exceptions import ConvergenceWarning

from anchordot_jax.errors import InputError

ROUNDING = 1e-5


class Projection(NamedTuple):
    """E -> E P + b for one side."""

    kernel: np.ndarray
    """P, `[k, c]`, float64."""
    shift: np.ndarray
    """b, `[c]`, float64."""


def canonical_projections(
    x: np.ndarray, y: np.ndarray, *, components: int, centered: bool
) -> tuple[Projection, Projection]:
    """Return both sides' canonical projections, fitted on paired coordinates.

    scikit-learn's CCA (NIPALS, columns centred and scaled to unit deviation). SUE's
    code applies its rotations to the coordinates as they are, P = rotations and b = 0;
    the canonical scores proper centre and scale them first. For those, coordinates that
    are constant but for rounding, as a graph's first mode is, are left out: scaled to
    unit deviation they would be rounding alone.

    Args:
        x: `[N, kx]`; row i belongs to row i of `y`.
        y: `[N, ky]`.
        components: c.
        centered: whether to give the canonical scores proper.

    Raises:
        InputError: more components than pairs or coordinates allow.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    kept_x, kept_y = (_varying(rows) if centered else slice(None) for rows in (x, y))
    all_x, all_y = x.shape[1], y.shape[1]
    x, y = x[:, kept_x], y[:, kept_y]
    most = min(len(x), x.shape[1], y.shape[1])
    if components > most:
        raise InputError(
            f"{len(x)} pairs of {x.shape[1]} and {y.shape[1]} spectral coordinates "
            f"allow {most} canonical directions, and {components} were asked for; "
            "lower components."
        )
    with threadpoolctl.threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
        # The last directions hardly correlate and converge slowly; they are used as
        # they stand, as in SUE's code.
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = CCA(n_components=components).fit(x, y)
    rotations = (fitted.x_rotations_, fitted.y_rotations_)
    return (
        _spread(_projection(x, rotations[0], centered), kept_x, all_x),
        _spread(_projection(y, rotations[1], centered), kept_y, all_y),
    )


def _varying(rows: np.ndarray) -> np.ndarray:
    """Return which columns vary by more than float32's rounding, booleans."""
    varying: np.ndarray = rows.std(axis=0) > ROUNDING * np.abs(rows).max(axis=0)
    return varying


def _spread(projection: Projection, kept: np.ndarray | slice, width: int) -> Projection:
    """Return the projection of all columns, zero for those that were left out."""
    kernel = np.zeros((width, projection.kernel.shape[1]))
    kernel[kept] = projection.kernel
    return Projection(kernel, projection.shift)


def _projection(rows: np.ndarray, rotations: np.ndarray, centered: bool) -> Projection:
    if not centered:
        return Projection(rotations, np.zeros(rotations.shape[1]))
    kernel = rotations / rows.std(axis=0, ddof=1)[:, None]
    return Projection(kernel, -rows.mean(axis=0) @ kernel)
