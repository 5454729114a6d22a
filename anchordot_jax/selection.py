"""Choosing gamma, eta and rho by held-out anchors (Appendix D).

A tenth of the anchors is held out of the profiles and joins the pools. Each candidate
(gamma, eta) is scored by the rank of the held-out anchors' true matches in the plan,
both ways. No label beyond the anchors is used. Where rho is to be chosen too, its
candidates are compared at the gamma and eta that the balanced problem chose.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from anchordot_jax import coupling, geometry, profiles
from anchordot_jax.arrays import AnyArray
from anchordot_jax.config import Config
from anchordot_jax.selection_curve import (
    USUAL_ETA,
    USUAL_GAMMA,
    Candidate,
    Point,
    Ranks,
    choose,
    make_curve,
    softness,
)

# Candidates for rho, where it is to be chosen, beside none.
RHOS = (1.0, 0.3, 0.1)

# Below this many anchors a held-out tenth says nothing.
MIN_ANCHORS = 10
MAX_DRAWS = 10


class Selection(NamedTuple):
    """The chosen gamma and eta, and every candidate tried."""

    gamma: float
    eta: float
    curve: tuple[Candidate, ...]
    """Sorted by gamma, then eta, then rho from none down; empty where nothing had to be
    chosen."""
    n_heldout: int
    """Held-out anchors ranked for each candidate, all draws together."""
    reason: str
    """One sentence saying how the choice was made."""
    rho: float | None = None


class _Draw(NamedTuple):
    """One split of the anchors, with the pools that the held-out part joins."""

    basis_x: profiles.AnchorBasis
    basis_y: profiles.AnchorBasis
    x: Float[Array, "n dx"]
    y: Float[Array, "m dy"]
    n_heldout: int


def select(
    anchors_x: Float[AnyArray, "N dx"],
    anchors_y: Float[AnyArray, "N dy"],
    pool_x: Float[AnyArray, "n dx"],
    pool_y: Float[AnyArray, "m dy"],
    config: Config,
    *,
    key: PRNGKeyArray,
    progress: Callable[[int, int], None] | None = None,
) -> Selection:
    """Return the (gamma, eta) of smallest held-out rank, by the configured rule.

    A setting that the config fixes is not searched. rho is kept out of it unless the
    config asks for it; then it is compared at the gamma and eta found without it. With
    few anchors several disjoint draws of held-out anchors are averaged; with fewer than
    10 anchors the defaults gamma = 0.75 and eta = 0.02 are returned. Pools above
    `selection.pool_limit` rows are represented by a random subset.

    Args:
        anchors_x: paired rows of the x side; row k belongs to row k of `anchors_y`.
        anchors_y: paired rows of the y side.
        pool_x: unpaired rows of the x side.
        pool_y: unpaired rows of the y side.
        config: the candidates, and the solver's settings.
        key: fixes the held-out draws, the pool subset and the sampled medians.
        progress: called with the number of couplings solved and their total.
    """
    settled = without_pools(len(anchors_x), config)
    if settled is not None:
        return settled
    gammas, etas, rhos, rho = _candidates(config)
    draws = list(_draws(anchors_x, anchors_y, pool_x, pool_y, config=config, key=key))
    total, done = len(draws) * (len(gammas) * len(etas) + len(rhos)), 0
    ranks: Ranks = {}
    solves: dict[Point, list[coupling.Coupling]] = {}

    def visit(points: Sequence[Point]) -> None:
        nonlocal done
        for draw in draws:
            for point, solved, rank in _path(draw, points, config, key=key):
                ranks.setdefault(point, []).append(rank)
                solves.setdefault(point, []).append(solved)
                done += 1
                if progress is not None:
                    progress(done, total)

    # From the largest eta down: each solve starts where the one before ended.
    falling = sorted(etas, reverse=True)
    for gamma in gammas:
        visit([(gamma, eta, rho) for eta in falling])
    best = choose(make_curve(ranks, solves), config)
    n_heldout = sum(draw.n_heldout for draw in draws)
    reason = f"Chosen by the ranks of {n_heldout} held-out anchors."
    if rhos:
        gamma, eta = best.gamma, best.eta
        points = [(gamma, eta, rho) for rho in sorted(set(rhos), reverse=True)]
        visit(points)
        compared: Ranks = {p: ranks[p] for p in [(gamma, eta, None), *points]}
        best = choose(make_curve(compared, solves), config, lambda c: softness(c.rho))
        if best.rho is None:
            reason += " No rho was clearly better than keeping to the marginals."
    curve = make_curve(ranks, solves)
    return Selection(best.gamma, best.eta, curve, n_heldout, reason, best.rho)


def without_pools(n_anchors: int, config: Config) -> Selection | None:
    """Return what `select` does where it looks at no pool; None where it looks.

    Args:
        n_anchors: number of pairs.
        config: the candidates.
    """
    gammas, etas, rhos, rho = _candidates(config)
    if len(gammas) == 1 and len(etas) == 1 and not rhos:
        reason = "Nothing was left to choose."
        return Selection(gammas[0], etas[0], (), 0, reason, rho)
    if n_anchors < MIN_ANCHORS:
        gamma = USUAL_GAMMA if config.gamma == "auto" else config.gamma
        eta = USUAL_ETA if config.eta == "auto" else config.eta
        reason = (
            f"{n_anchors} anchors are too few to hold some out; the defaults "
            f"were taken."
        )
        return Selection(gamma, eta, (), 0, reason, rho)
    return None


_Floats = tuple[float, ...]


def _candidates(config: Config) -> tuple[_Floats, _Floats, _Floats, float | None]:
    """Return the candidates for gamma, eta and rho, and the rho before these."""
    gammas = config.selection.gammas if config.gamma == "auto" else (config.gamma,)
    etas = config.selection.etas if config.eta == "auto" else (config.eta,)
    rho = config.rho if isinstance(config.rho, float) else None
    rhos = (config.selection.rhos or RHOS) if config.rho == "auto" else ()
    return gammas, etas, rhos, rho


def _draws(
    anchors_x: AnyArray,
    anchors_y: AnyArray,
    pool_x: AnyArray,
    pool_y: AnyArray,
    *,
    config: Config,
    key: PRNGKeyArray,
) -> Iterator[_Draw]:
    """Yield disjoint draws of held-out anchors until enough anchors were held out."""
    settings = config.selection
    n_anchors = len(anchors_x)
    size = max(1, round(settings.heldout * n_anchors))
    n_draws = min(math.ceil(settings.min_heldout / size), MAX_DRAWS, n_anchors // size)
    key_anchors, _, _ = jax.random.split(key, 3)
    rows_x, rows_y = subset_rows(len(pool_x), len(pool_y), config, key=key)
    # Indexed before the move: the rest of a pool in the host's memory stays there.
    pool_x = jnp.asarray(pool_x if rows_x is None else pool_x[rows_x])
    pool_y = jnp.asarray(pool_y if rows_y is None else pool_y[rows_y])
    order = jax.random.permutation(key_anchors, n_anchors)
    for i in range(n_draws):
        held = order[i * size : (i + 1) * size]
        kept = jnp.concatenate([order[: i * size], order[(i + 1) * size :]])
        yield _Draw(
            basis_x=profiles.fit_basis(anchors_x[kept], center=config.center),
            basis_y=profiles.fit_basis(anchors_y[kept], center=config.center),
            x=jnp.concatenate([pool_x, anchors_x[held]]),
            y=jnp.concatenate([pool_y, anchors_y[held]]),
            n_heldout=size,
        )


def subset_rows(
    n: int, m: int, config: Config, *, key: PRNGKeyArray
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the rows of both pools that `select` looks at; None: all of a pool.

    Args:
        n: rows of the x pool.
        m: rows of the y pool.
        config: its `selection.pool_limit` is the most of them.
        key: that of `select`.
    """
    limit = config.selection.pool_limit
    _, key_x, key_y = jax.random.split(key, 3)

    def subset(count: int, key: PRNGKeyArray) -> np.ndarray | None:
        if limit is None or count <= limit:
            return None
        return np.asarray(jax.random.permutation(key, count)[:limit])

    return subset(n, key_x), subset(m, key_y)


def _path(
    draw: _Draw, points: Sequence[Point], config: Config, *, key: PRNGKeyArray
) -> Iterator[tuple[Point, coupling.Coupling, np.ndarray]]:
    """Yield the coupling and held-out ranks of every point of one gamma, in turn.

    Each solve starts from the potentials of the one before; a cost that fits the
    memory granted to it is computed once for all.
    """
    maps = profiles.coordinate_maps(draw.basis_x, draw.basis_y, points[0][0])
    x, y = profiles.coordinates(draw.x, draw.y, maps)
    median = geometry.sampled_median_cost(x, y, key=key)
    fits = 4 * len(x) * len(y) <= coupling.cost_memory(config.coupling)
    cost = geometry.cost_block(x, y) if fits else None
    init = None
    for point in points:
        _, eta, share = point
        epsilon, rho = eta * median, None if share is None else share * median
        settings = config.coupling
        if cost is None:
            solved = coupling.solve_coupling(
                x, y, epsilon, init=init, rho=rho, config=settings
            )
        else:
            solved = coupling.solve_cost(
                cost, epsilon, init=init, rho=rho, config=settings
            )
        init = (solved.f, solved.g)
        ranks = heldout_ranks(x, y, solved, n_heldout=draw.n_heldout)
        yield point, solved, np.asarray(ranks)


def _ranks_of_last(
    scores: Float[AnyArray, "h m"],
) -> Float[Array, " h"]:
    """Return the rank of column m - h + k in row k; ties count half."""
    h, m = scores.shape
    own = jnp.diagonal(scores[:, m - h :])[:, None]
    # Written so that a NaN, which compares with nothing, ranks last and never wins.
    above = jnp.sum(~(scores <= own), axis=1)
    equal = jnp.sum(scores == own, axis=1) - 1
    return 1 + above + equal / 2


@functools.partial(jax.jit, static_argnames=("n_heldout",))
def heldout_ranks(
    x: Float[AnyArray, "n r"],
    y: Float[AnyArray, "m r"],
    solved: coupling.Coupling,
    *,
    n_heldout: int,
) -> Float[Array, " ranks"]:
    """Return the ranks of the true matches of the last rows of both pools in the plan.

    Only the held-out rows and columns of the plan are looked at, in the log domain: a
    row's order is that of (g_j - C_ij), a column's that of (f_i - C_ij).
    """
    last_x, last_y = x[len(x) - n_heldout :], y[len(y) - n_heldout :]
    rows = solved.g[None, :] - geometry.cost_block(last_x, y)
    columns = solved.f[None, :] - geometry.cost_block(last_y, x)
    return jnp.concatenate([_ranks_of_last(rows), _ranks_of_last(columns)])
