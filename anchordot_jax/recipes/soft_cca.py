"""A CCA of the anchors and of the softly matched pools, in closed form.

1. A CCA of the anchors alone gives cosines between the pools.
2. One entropic transport problem on those cosines matches the pools: the plan P.
3. A CCA of everything: covariances of anchors and pools, and the cross-covariance

       Cxy = (1 - a) (1/N) sum_anchors x y^T + a X^T P Y,   a = n / (n + N),

   n being the smaller pool: one step of expectation maximisation in which every row
   weighs the same, and a row whose match is uncertain pulls towards the mean.

Both sides are seen through a LayerNorm without gain and bias, so the result is exactly
a pair of students. All is done in coordinates of each side's principal axes, which
neither a ridge nor a pairing changes.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from anchordot_jax import affinity, coupling, geometry, row_masses
from anchordot_jax.arrays import AnyArray
from anchordot_jax.config import CouplingConfig
from anchordot_jax.matching.bank import LEAST_SPREAD, cosine_spread
from anchordot_jax.recipes import canonical
from anchordot_jax.students import Params

HIGHEST = canonical.HIGHEST


class Side(NamedTuple):
    """One side's rows in coordinates of their principal axes, float32."""

    axes: canonical.Axes
    """Of anchors and pool together."""
    anchors: np.ndarray
    """`[N, r]`."""
    pool: Float[Array, "n r"]


class Sides(NamedTuple):
    """Both sides, and the marginals of the transport between their pools."""

    x: Side
    y: Side
    a: Float[AnyArray, " n"] | None = None
    b: Float[AnyArray, " m"] | None = None


class Settings(NamedTuple):
    """What held-out anchors choose."""

    ridge: float
    """Of the first stage, in units of the mean variance."""
    ridge_ratio: float
    """Of the second stage's ridge to the first's."""
    sharpness: float
    """Standard deviation of the cosines in units of epsilon."""


class SoftCca(NamedTuple):
    """The closed form's maps, and the plan between the pools that they came from."""

    weights: canonical.Weights
    """In coordinates of the sides' axes."""
    coupling: coupling.Coupling


def prepare(
    anchors_x: AnyArray,
    anchors_y: AnyArray,
    pool_x: AnyArray,
    pool_y: AnyArray,
    *,
    a: np.ndarray | None = None,
    b: np.ndarray | None = None,
) -> Sides:
    """Return both sides in their principal axes: one eigendecomposition a side.

    Args:
        anchors_x: `[N, dx]`; row k belongs to row k of `anchors_y`.
        anchors_y: `[N, dy]`.
        pool_x: unpaired rows `[n, dx]`.
        pool_y: unpaired rows `[m, dy]`.
        a: weights of the x pool, `[n]`; uniform by default.
        b: weights of the y pool, `[m]`.

    Raises:
        InputError: all rows of a side are the same.
    """
    return Sides(
        _side(anchors_x, pool_x, a, "x"),
        _side(anchors_y, pool_y, b, "y"),
        None if a is None else row_masses.marginal(a, len(pool_x)),
        None if b is None else row_masses.marginal(b, len(pool_y)),
    )


def _side(
    anchors: AnyArray, pool: AnyArray, weights: np.ndarray | None, name: str
) -> Side:
    rows, unpaired = features(anchors), features(pool)
    known = canonical.pooled(
        canonical.moments(rows), canonical.moments(unpaired, weights)
    )
    axes = canonical.axes_of_moments(known, name)
    return Side(axes, np.asarray(project(rows, axes)), project(unpaired, axes))


@jax.jit
def features(rows: Float[AnyArray, "n d"]) -> Float[Array, "n d"]:
    """Return LN(x / |x|), the LayerNorm without gain and bias."""
    return affinity.standardized(jnp.asarray(rows))[:, :-1]


def project(rows: AnyArray, axes: canonical.Axes) -> Float[Array, "n r"]:
    """Return rows of features in coordinates of the axes."""
    vectors = jnp.asarray(axes.vectors, jnp.float32)
    mean = jnp.asarray(axes.mean, jnp.float32)
    projected: Array = _project(jnp.asarray(rows), mean, vectors)
    return projected


@jax.jit
def _project(rows: Array, mean: Array, vectors: Array) -> Array:
    return jnp.matmul(rows - mean[None, :], vectors, precision=HIGHEST)


class AnchorAxes(NamedTuple):
    """What the first stage's ridges share."""

    x: canonical.Axes
    y: canonical.Axes
    cross: np.ndarray
    """In coordinates of these axes."""

    def weights(self, ridge: float) -> canonical.Weights:
        """Return the CCA of the anchors, in coordinates of the sides' axes."""
        own = canonical.canonical_weights(self.x, self.y, self.cross, ridge=ridge)
        with canonical.single_thread():
            return canonical.Weights(
                self.x.vectors @ own.x,
                self.y.vectors @ own.y,
                own.correlations,
                self.x.mean,
                self.y.mean,
            )


def anchor_axes(sides: Sides, kept: np.ndarray | None = None) -> AnchorAxes:
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
    sides: Sides,
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
    sides: Sides, weights: np.ndarray, mean: np.ndarray
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


def plan_cross(
    solved: coupling.Coupling,
    u: Float[AnyArray, "n k"],
    v: Float[AnyArray, "m k"],
    x: Float[AnyArray, "n rx"],
    y: Float[AnyArray, "m ry"],
) -> Float[Array, "rx ry"]:
    """Return X^T P Y, the plan P being made in tiles of some rows and dropped.

    Args:
        solved: the potentials of P.
        u: coordinates that the cost is made of.
        v: the same of the y side.
        x: rows of X.
        y: rows of Y.
    """
    one, other = (solved.f, u, x), (solved.g, v, y)
    # P Y is contracted over the narrower side's columns.
    if x.shape[1] < y.shape[1]:
        transposed: Array = _plan_cross(*other, *one, solved.epsilon)
        return transposed.T
    cross: Array = _plan_cross(*one, *other, solved.epsilon)
    return cross


@jax.jit
def _plan_cross(
    f: Array, u: Array, x: Array, g: Array, v: Array, y: Array, epsilon: Array
) -> Array:
    n = len(u)
    tile = min(n, geometry.tile_rows(len(v)))
    padding = -n % tile

    def blocks(rows: Array, fill: float) -> Array:
        widths = ((0, padding),) + ((0, 0),) * (rows.ndim - 1)
        padded = jnp.pad(rows, widths, constant_values=fill)
        return padded.reshape(-1, tile, *rows.shape[1:])

    def add(total: Array, part: tuple[Array, Array, Array]) -> tuple[Array, None]:
        f, u, x = part
        matched = jnp.matmul(
            coupling.plan_block(u, v, f, g, epsilon), y, precision=HIGHEST
        )
        return total + jnp.matmul(x.T, matched, precision=HIGHEST), None

    parts = (blocks(f, -jnp.inf), blocks(u, 0.0), blocks(x, 0.0))
    start = jnp.zeros((x.shape[1], y.shape[1]), jnp.float32)
    total: Array = jax.lax.scan(add, start, parts)[0]
    return total


def anchor_cross(sides: Sides, kept: np.ndarray | None = None) -> np.ndarray:
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
    sides: Sides, anchor: np.ndarray, pool: AnyArray, n_anchors: int
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


def solve(
    sides: Sides,
    settings: Settings,
    *,
    config: CouplingConfig,
    progress: coupling.Progress | None = None,
) -> SoftCca:
    """Return the closed form: CCA of the anchors, plan, CCA of everything.

    Args:
        sides: both sides, see `prepare`.
        settings: ridges and sharpness.
        config: of the transport.
        progress: see `coupling.solve_coupling`.

    Raises:
        InputError: all anchors of a side are the same.
    """
    first = anchor_axes(sides)
    solved, u, v = match_pools(
        sides,
        first.weights(settings.ridge),
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
    ridge = settings.ridge * settings.ridge_ratio
    weights = canonical.canonical_weights(
        sides.x.axes, sides.y.axes, cross, ridge=ridge
    )
    return SoftCca(weights, solved)


def student_params(
    sides: Sides, weights: canonical.Weights, *, temperature: float
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
