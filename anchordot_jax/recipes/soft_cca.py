"""A CCA of the anchors and of the softly matched pools, in closed form.

1. A CCA of the anchors alone gives cosines between the pools.
2. One entropic transport problem on those cosines matches the pools: the plan P.
3. A CCA of everything: covariances of anchors and pools, and the cross-covariance

       Cxy = (1 - a) (1/N) sum_anchors x y^T + a X^T P Y,   a = n / (n + N),

   n being the smaller pool: one step of expectation maximisation in which every row
   weighs the same, and a row whose match is uncertain pulls towards the mean.

The ridges of a stage are ridge * balance of x and ridge / balance of y, since one side
may be noisier than the other, and coordinates are weighted by a power of their
correlations.

The result is exactly a pair of students. All is done in the coordinates of `two_sides`.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from anchordot_jax import coupling
from anchordot_jax.arrays import AnyArray
from anchordot_jax.config import CouplingConfig
from anchordot_jax.matching.bank import LEAST_SPREAD, cosine_spread
from anchordot_jax.recipes import canonical, two_sides
from anchordot_jax.recipes.plan_cross import plan_cross
from anchordot_jax.students import Params


class Settings(NamedTuple):
    """What held-out anchors choose."""

    ridge: float
    """Of the first stage, in units of the mean variance: sqrt(ridge_x ridge_y)."""
    ridge_ratio: float
    """Of the second stage's ridge to the first's."""
    sharpness: float
    """Standard deviation of the cosines in units of epsilon."""
    balance: float = 1.0
    """sqrt(ridge_x / ridge_y) of the first stage."""
    power: float = 1.0
    """Of the correlations that weigh the first stage's coordinates."""
    balance_ratio: float = 1.0
    """Of the second stage's balance to the first's."""
    final_power: float = 1.0
    """Of the correlations that weigh the second stage's coordinates."""


class SoftCca(NamedTuple):
    """The closed form's maps, and the plan between the pools that they came from."""

    weights: canonical.Weights
    """In coordinates of the sides' axes."""
    coupling: coupling.Coupling


class AnchorAxes(NamedTuple):
    """What the first stage's ridges share."""

    x: canonical.Axes
    y: canonical.Axes
    cross: np.ndarray
    """In coordinates of these axes."""

    def weights(self, settings: Settings) -> canonical.Weights:
        """Return the CCA of the anchors, in coordinates of the sides' axes."""
        own = canonical.canonical_weights(
            self.x,
            self.y,
            self.cross,
            ridge=settings.ridge,
            balance=settings.balance,
            power=settings.power,
        )
        with canonical.single_thread():
            return canonical.Weights(
                self.x.vectors @ own.x,
                self.y.vectors @ own.y,
                own.correlations,
                self.x.mean,
                self.y.mean,
            )


def anchor_axes(sides: two_sides.Sides, kept: np.ndarray | None = None) -> AnchorAxes:
    """Return the principal axes of the anchors alone, or of some of them.

    Args:
        sides: both sides.
        kept: row numbers of the anchors to take; all by default.

    Raises:
        InputError: all anchors of a side are the same.
    """
    rows = slice(None) if kept is None else kept
    # A ridge is in units of the mean variance over all columns of the embedding.
    x, y = sides.x.anchors[rows], sides.y.anchors[rows]
    axes_x = canonical.axes_of_rows(x, len(sides.x.axes.vectors), "x")
    axes_y = canonical.axes_of_rows(y, len(sides.y.axes.vectors), "y")
    with canonical.single_thread():
        u = (x - axes_x.mean[None, :]) @ axes_x.vectors
        v = (y - axes_y.mean[None, :]) @ axes_y.vectors
        return AnchorAxes(axes_x, axes_y, u.T @ v / len(u))


def match_pools(
    sides: two_sides.Sides,
    weights: canonical.Weights,
    sharpness: float,
    *,
    config: CouplingConfig,
    init: tuple[Array, Array] | None = None,
    progress: coupling.Progress | None = None,
) -> tuple[coupling.Coupling, Array, Array]:
    """Return the plan between the pools, and the unit coordinates it is a plan of.

    The cost is 1 - cos, and epsilon = std(cos) / sharpness.

    Args:
        sides: both sides.
        weights: of the coordinates.
        sharpness: standard deviation of the cosines in units of epsilon.
        config: tolerance, iterations and memory of the transport.
        init: potentials to start from.
        progress: see `coupling.solve_coupling`.
    """
    u = canonical.embed(sides.x.pool, *_padded(sides, weights.x, weights.mean_x))
    v = canonical.embed(sides.y.pool, *_padded(sides, weights.y, weights.mean_y))
    solved = coupling.solve_coupling(
        u,
        v,
        max(cosine_spread(u, v), LEAST_SPREAD) / sharpness,
        a=sides.a,
        b=sides.b,
        init=init,
        config=config,
        progress=progress,
    )
    return solved, u, v


def _padded(
    sides: two_sides.Sides, weights: np.ndarray, mean: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean, and weights with columns of zeros up to a width of no chance.

    The number of correlations above rounding differs from fold to fold, and each
    width would be compiled anew.
    """
    r_x, r_y = len(sides.x.axes.variances), len(sides.y.axes.variances)
    width = max(weights.shape[1], min(r_x, r_y, len(sides.x.anchors)))
    padding = ((0, 0), (0, width - weights.shape[1]))
    return np.asarray(mean, np.float32), np.pad(
        np.asarray(weights, np.float32), padding
    )


def anchor_cross(sides: two_sides.Sides, kept: np.ndarray | None = None) -> np.ndarray:
    """Return (1/N) sum x y^T of the anchors, `[rx, ry]`, centred by the sides' means.

    Args:
        sides: both sides.
        kept: row numbers of the anchors to take; all by default.
    """
    rows = slice(None) if kept is None else kept
    x = np.asarray(sides.x.anchors[rows], np.float64)
    y = np.asarray(sides.y.anchors[rows], np.float64)
    with canonical.single_thread():
        cross: np.ndarray = x.T @ y / len(x)
    return cross


def matched_cross(
    sides: two_sides.Sides, anchor: np.ndarray, pool: AnyArray, n_anchors: int
) -> np.ndarray:
    """Return (1 - a) times the anchors' cross-covariance, plus a times X^T P Y.

    Args:
        sides: both sides.
        anchor: see `anchor_cross`.
        pool: X^T P Y, `[rx, ry]`.
        n_anchors: anchors whose pairs are in `anchor`.
    """
    n = min(len(sides.x.pool), len(sides.y.pool))
    share = n / (n + n_anchors)
    cross: np.ndarray = (1 - share) * anchor + share * np.asarray(pool, np.float64)
    return cross


def second_weights(
    sides: two_sides.Sides, cross: np.ndarray, settings: Settings
) -> canonical.Weights:
    """Return the CCA of anchors and matched pools, in coordinates of the sides' axes.

    Args:
        sides: both sides.
        cross: see `matched_cross`.
        settings: ridges and power.
    """
    return canonical.canonical_weights(
        sides.x.axes,
        sides.y.axes,
        cross,
        ridge=settings.ridge * settings.ridge_ratio,
        balance=settings.balance * settings.balance_ratio,
        power=settings.final_power,
    )


def solve(
    sides: two_sides.Sides,
    settings: Settings,
    *,
    config: CouplingConfig,
    progress: coupling.Progress | None = None,
) -> SoftCca:
    """Return the closed form: CCA of the anchors, plan, CCA of everything.

    Args:
        sides: both sides, see `prepare`.
        settings: of both stages.
        config: of the transport.
        progress: see `coupling.solve_coupling`.

    Raises:
        InputError: all anchors of a side are the same.
    """
    first = anchor_axes(sides)
    solved, u, v = match_pools(
        sides,
        first.weights(settings),
        settings.sharpness,
        config=config,
        progress=progress,
    )
    cross = matched_cross(
        sides,
        anchor_cross(sides),
        plan_cross(solved, u, v, sides.x.pool, sides.y.pool),
        len(sides.x.anchors),
    )
    return SoftCca(second_weights(sides, cross, settings), solved)


def student_params(
    sides: two_sides.Sides, weights: canonical.Weights, *, temperature: float
) -> Params:
    """Return the students whose cosines are those of the closed form.

    LayerNorm gain 1 and bias 0; kernel V W and bias -mean V W. A factor, which no
    cosine sees, gives the kernel the Xavier standard deviation sqrt(2 / (d + k)).

    Args:
        sides: both sides.
        weights: W, in coordinates of the axes.
        temperature: the logit scale is its inverse.
    """
    params: Params = {
        "x": _student(sides.x.axes, weights.x),
        "y": _student(sides.y.axes, weights.y),
        "log_scale": jnp.asarray(-math.log(temperature), jnp.float32),
    }
    return params


def _student(axes: canonical.Axes, weights: np.ndarray) -> Params:
    with canonical.single_thread():
        kernel = axes.vectors @ weights
    d, k = kernel.shape
    kernel *= math.sqrt(2 / (d + k)) / np.sqrt(np.mean(kernel**2))
    return {
        "norm": {"scale": jnp.ones(d, jnp.float32), "bias": jnp.zeros(d, jnp.float32)},
        "linear": {
            "kernel": jnp.asarray(kernel, jnp.float32),
            "bias": jnp.asarray(-axes.mean @ kernel, jnp.float32),
        },
    }
