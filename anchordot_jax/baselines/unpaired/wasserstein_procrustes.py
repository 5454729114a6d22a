"""Wasserstein Procrustes: a rotation and a matching sought in turns, without pairs.

Grave, Joulin and Berthet (2019), arXiv:1805.11222, minimise |X R - P Y|_F over
orthogonal R and matchings P. Everything follows the authors' script, fastText's
`alignment/unsup_align.py`: a convex relaxation on some rows gives the first R, random
batches refine it. Matchings are entropic and have rows and columns that sum to one,
not to 1/n: a batch of b rows has total mass b.
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import threadpoolctl
from jaxtyping import Array, Float, PRNGKeyArray

from anchordot_jax.arrays import AnyArray
from anchordot_jax.baselines.protocol import Anchors, Method, Needs, Pools, numpy_rng
from anchordot_jax.baselines.unpaired.clouds import (
    procrustes,
    rotated_model,
    same_dimension,
)
from anchordot_jax.config import check_setting
from anchordot_jax.model import AlignedModel

HIGHEST = jax.lax.Precision.HIGHEST

NAME = "wasserstein-procrustes"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WassersteinProcrustesSettings:
    """Settings of Wasserstein Procrustes, with the authors' defaults."""

    dim: int | None = None
    """Principal components kept a side. None: all columns if both sides have as many,
    else as many as the smaller side has."""
    init_points: int = 2500
    """Rows of each pool in the convex relaxation."""
    init_iterations: int = 100
    """Frank-Wolfe steps of the convex relaxation."""
    epochs: int = 5
    """Each epoch doubles the batch and takes a quarter of the steps."""
    iterations: int = 5000
    """Steps of the first epoch."""
    batch_size: int = 500
    """Rows of each pool in a step of the first epoch; at most a whole pool."""
    learning_rate: float = 500.0
    """Step length, divided by the batch size since a batch's mass is its size."""
    max_points: int = 20000
    """Rows of each pool that batches are drawn from."""
    epsilon: float = 0.05
    """Entropic regularisation of every matching."""
    tolerance: float = 1e-3
    """Sinkhorn stops when the Euclidean error of the column sums falls below it."""
    sinkhorn_iterations: int = 1000
    """Sinkhorn iterations at most."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        least = {
            "init_points": 2,
            "init_iterations": 0,
            "epochs": 0,
            "iterations": 0,
            "batch_size": 2,
            "max_points": 2,
            "sinkhorn_iterations": 1,
        } | ({} if self.dim is None else {"dim": 1})
        for name, low in least.items():
            value = getattr(self, name)
            ok = isinstance(value, int) and not isinstance(value, bool) and value >= low
            check_setting(ok, name, f"a whole number >= {low}", value)
        for name in ("learning_rate", "epsilon", "tolerance"):
            value = getattr(self, name)
            check_setting(0 < value < math.inf, name, "a number > 0", value)


def _dot(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision=HIGHEST)


Carry = tuple[Array, Array, Array, Array]
"""The scalings u and v, the iterations made and the error of the column sums."""


class Sinkhorn(NamedTuple):
    """How matchings are computed; hashable."""

    epsilon: float
    tolerance: float
    max_iterations: int


def matching(scores: Float[AnyArray, "n n"], sinkhorn: Sinkhorn) -> Float[Array, "n n"]:
    """Return the entropic matching of large scores, rows and columns of sum one.

    argmax_P <P, S> + eps H(P) by Sinkhorn and Knopp's scalings of exp(S/eps), as in
    POT's `sinkhorn`; it is n times the plan with weights 1/n.
    """
    logits = jnp.asarray(scores) / sinkhorn.epsilon
    # Every row and every column keeps an entry of 1, whatever underflows.
    logits = logits - logits.max(axis=1, keepdims=True)
    kernel = jnp.exp(logits - logits.max(axis=0, keepdims=True))
    ones = jnp.ones(len(kernel), kernel.dtype)

    def iterate(carry: Carry) -> Carry:
        _, v, step, _ = carry
        u = 1 / (kernel @ v)
        before = u @ kernel
        error = jnp.linalg.norm(v * before - 1)
        return u, 1 / before, step + 1, error

    def unfinished(carry: Carry) -> Array:
        _, _, step, error = carry
        return (step < sinkhorn.max_iterations) & (error > sinkhorn.tolerance)

    start = (ones, ones, jnp.asarray(0), jnp.asarray(jnp.inf, kernel.dtype))
    u, v, _, _ = jax.lax.while_loop(unfinished, iterate, start)
    return u[:, None] * kernel * v[None, :]


def with_root_gram(rows: np.ndarray) -> np.ndarray:
    """Return U sqrt(S) V^T for rows U S V^T, `[n, k]`: their Gram matrix's root."""
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        left, values, right = np.linalg.svd(rows, full_matrices=False)
    root: np.ndarray = (left * np.sqrt(values)) @ right
    return root


def convex_init(
    x: np.ndarray, y: np.ndarray, *, iterations: int, sinkhorn: Sinkhorn
) -> np.ndarray:
    """Return the rotation that the convex relaxation suggests, `[k, k]`, float64.

    |P K_x - K_y P|_F over doubly stochastic P, with K the Gram matrices of the rows
    whose singular values are replaced by their roots, K_y scaled to the norm of K_x.
    Frank-Wolfe steps of length 2/(2 + t) towards entropic matchings, from the uniform
    P; then the Procrustes solution of P X and Y.

    Args:
        x: `[n, k]`, as many rows as y.
        y: `[n, k]`.
        iterations: Frank-Wolfe steps.
        sinkhorn: how matchings are computed.
    """
    x, y = with_root_gram(x), with_root_gram(y)
    # |K|_F^2 = |X^T X|_F^2 without the matrix of n x n.
    norm_x, norm_y = (np.linalg.norm(rows.T @ rows) for rows in (x, y))
    scaled = y * math.sqrt(norm_x / norm_y)
    plan = _relax(
        jnp.asarray(x, jnp.float32),
        jnp.asarray(scaled, jnp.float32),
        iterations=iterations,
        sinkhorn=sinkhorn,
    )
    matched = np.asarray(plan, np.float64) @ x
    return procrustes(matched, y)


@functools.partial(jax.jit, static_argnames=("iterations", "sinkhorn"))
def _relax(
    x: Float[Array, "n k"],
    y: Float[Array, "n k"],
    *,
    iterations: int,
    sinkhorn: Sinkhorn,
) -> Float[Array, "n n"]:
    """Return the matching P, rows of y by rows of x."""
    second_x, second_y = _dot(x.T, x), _dot(y.T, y)

    def step(index: Array, plan: Array) -> Array:
        # P K_x^2 + K_y^2 P - 2 K_y P K_x with K = X X^T never formed.
        plan_x, y_plan = _dot(plan, x), _dot(y.T, plan)
        left = _dot(plan_x, second_x) - 2 * _dot(y, _dot(y.T, plan_x))
        gradient = _dot(left, x.T) + _dot(y, _dot(second_y, y_plan))
        rate = 2 / (3 + index)
        return (1 - rate) * plan + rate * matching(-gradient, sinkhorn)

    n = len(x)
    plan: Array = jax.lax.fori_loop(0, iterations, step, jnp.full((n, n), 1 / n))
    return plan


def cross_moment(
    x: Float[AnyArray, "b k"],
    y: Float[AnyArray, "b k"],
    rotation: Float[AnyArray, "k k"],
    sinkhorn: Sinkhorn,
) -> Float[Array, "k k"]:
    """Return x^T P y with P the matching of x R and y: minus the gradient in R."""
    x, y = jnp.asarray(x), jnp.asarray(y)
    plan = matching(_dot(_dot(x, jnp.asarray(rotation)), y.T), sinkhorn)
    return _dot(x.T, _dot(plan, y))


def nearest_orthogonal(matrix: Float[AnyArray, "k k"]) -> Float[Array, "k k"]:
    """Return U V^T for a matrix U S V^T."""
    left, _, right = jnp.linalg.svd(jnp.asarray(matrix), full_matrices=False)
    return _dot(left, right)


@functools.partial(
    jax.jit, static_argnames=("iterations", "batch_size", "step_length", "sinkhorn")
)
def refine(
    x: Float[AnyArray, "n k"],
    y: Float[AnyArray, "m k"],
    rotation: Float[AnyArray, "k k"],
    key: PRNGKeyArray,
    *,
    iterations: int,
    batch_size: int,
    step_length: float,
    sinkhorn: Sinkhorn,
) -> Float[Array, "k k"]:
    """Return the rotation after steps R <- U V^T of R + l x^T P y on random batches.

    Args:
        x: `[n, k]`.
        y: `[m, k]`.
        rotation: the first R, `[k, k]`.
        key: fixes the batches.
        iterations: steps.
        batch_size: rows of each side in a step, at most n and m.
        step_length: l, for matchings of mass b; with weights 1/n it is b times that.
        sinkhorn: how matchings are computed.
    """
    x, y = jnp.asarray(x), jnp.asarray(y)

    def step(index: Array, rotation: Array) -> Array:
        key_x, key_y = jax.random.split(jax.random.fold_in(key, index))
        batch_x = x[jax.random.permutation(key_x, len(x))[:batch_size]]
        batch_y = y[jax.random.permutation(key_y, len(y))[:batch_size]]
        moment = cross_moment(batch_x, batch_y, rotation, sinkhorn)
        return nearest_orthogonal(rotation + step_length * moment)

    refined: Array = jax.lax.fori_loop(0, iterations, step, jnp.asarray(rotation))
    return refined


def fit_wasserstein_procrustes(
    anchors: Anchors,
    pools: Pools,
    *,
    settings: WassersteinProcrustesSettings,
    key: jax.Array,
) -> AlignedModel:
    """Return a rotation of x's pool onto y's, found without any pair.

    The script reads the most frequent words first. Pools have no such order: their
    rows are shuffled first.

    Raises:
        InputError: a pool has fewer than two rows.
    """
    key_order, key_batches = jax.random.split(key)
    rng = numpy_rng(key_order)
    clouds = same_dimension(pools, settings.dim)
    x, y = (rng.permutation(cloud.rows) for cloud in clouds)
    sinkhorn = Sinkhorn(
        settings.epsilon, settings.tolerance, settings.sinkhorn_iterations
    )
    n_init = min(settings.init_points, len(x), len(y))
    # The singular value decompositions of the steps run in threads of their own, which
    # wait for each other hundreds of times as long as they compute.
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        rotation = convex_init(
            x[:n_init],
            y[:n_init],
            iterations=settings.init_iterations,
            sinkhorn=sinkhorn,
        )
        x, y = (rows[: settings.max_points].astype(np.float32) for rows in (x, y))
        for epoch in range(settings.epochs):
            rotation = _refine_epoch(
                x, y, rotation, epoch, settings, sinkhorn, key_batches
            )
    # Orthogonal to float64's rounding, whatever float32 left.
    rotation = procrustes(np.eye(len(rotation)), rotation)
    return rotated_model(
        NAME, clouds, rotation, anchors=anchors, pools=pools, settings=settings
    )


def _refine_epoch(
    x: np.ndarray,
    y: np.ndarray,
    rotation: np.ndarray,
    epoch: int,
    settings: WassersteinProcrustesSettings,
    sinkhorn: Sinkhorn,
    key: jax.Array,
) -> np.ndarray:
    """Return the rotation after one epoch's steps."""
    size = min(settings.batch_size * 2**epoch, len(x), len(y))
    refined = refine(
        x,
        y,
        np.float32(rotation),
        jax.random.fold_in(key, epoch),
        iterations=settings.iterations // 4**epoch,
        batch_size=size,
        step_length=settings.learning_rate / size,
        sinkhorn=sinkhorn,
    )
    return np.asarray(refined)


METHODS = (
    Method(
        name=NAME,
        title="Wasserstein Procrustes",
        source="Grave, Joulin, Berthet (2019), arXiv:1805.11222",
        trust="code",
        notes=(
            "Zero pairs: the anchors are not looked at. The script needs equal "
            "dimensions and the order of word frequencies; here sides that differ are "
            "reduced to their principal components and rows are shuffled (our "
            "reading). Batches are at most a whole pool, with the step length divided "
            "by the actual size. Near chance where the two clouds are not isometric."
        ),
        needs=Needs(pairs=False, pools=True),
        settings=WassersteinProcrustesSettings(),
        short={
            "init_points": 1000,
            "init_iterations": 20,
            "iterations": 60,
            "sinkhorn_iterations": 100,
        },
        fit=fit_wasserstein_procrustes,
    ),
)
