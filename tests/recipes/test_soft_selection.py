"""Choosing ridges and sharpness: against a naive loop, and what it must not see."""

import jax
import numpy as np
import pytest
from test_soft_cca import (
    SETTINGS,
    cosines,
    dense_map,
    features,
    problem,
)

import reference
from anchordot_jax.config import CouplingConfig, SoftCcaConfig
from anchordot_jax.recipes import soft_cca, soft_selection

N = 24
TIGHT = CouplingConfig(tolerance=1e-5)
CONFIG = SoftCcaConfig(
    ridges=(0.3, 3.0),
    ridge_ratios=(0.1, 1.0),
    sharpnesses=(4.0, 2.0),
    folds=3,
    gallery=15,
    pool_limit=None,
)
KEY = jax.random.key(5)


def choose(sides, config=CONFIG, **options):
    return soft_selection.select(sides, config, coupling=TIGHT, key=KEY, **options)


def bank_ranks(scores, h, p, q):
    """Return the log ranks of the first h queries, hubs corrected by the banks.

    The gallery is the first h + p rows and h + q columns, the banks are the others.
    """
    beta = 1.5 / scores[h + p :, h + q :].std()
    found = []
    for own, rows, columns in ((scores, h + p, h + q), (scores.T, h + q, h + p)):
        offsets = np.log(np.exp(beta * own[rows:, :columns]).sum(axis=0))
        table = beta * own[:h, :columns] - offsets[None, :]
        found.append([np.log(reference.rank(table[i], i)) for i in range(h)])
    return np.mean(found, axis=0)


def naive(data, sides):
    """Return the mean log rank of every candidate: everything anew each time."""
    ax, ay, px, py = (features(rows) for rows in data)
    x, y = np.concatenate([ax, px]), np.concatenate([ay, py])
    mx, my = x.mean(axis=0), y.mean(axis=0)
    c_xx, c_yy = np.cov(x.T, bias=True), np.cov(y.T, bias=True)
    key_folds, key_pool = jax.random.split(KEY)
    order = np.asarray(jax.random.permutation(key_folds, N))
    few = soft_selection.subset(sides, None, key=key_pool)
    # The same pool items in the same order, as features.
    gx, gy = (
        np.asarray(side.pool, np.float64) @ side.axes.vectors.T + side.axes.mean
        for side in (few.x, few.y)
    )

    # A fifth of each pool is for the gallery, and no plan sees it.
    p, q = len(gx) // 5, len(gy) // 5
    (gallery_x, gx), (gallery_y, gy) = np.split(gx, [p]), np.split(gy, [q])

    def judged(held, maps):
        rows_x = np.concatenate([ax[held], gallery_x, gx[:15]])
        rows_y = np.concatenate([ay[held], gallery_y, gy[:15]])
        return bank_ranks(cosines(rows_x, rows_y, maps), len(held), p, q)

    logs = {}
    folds = np.array_split(order, 3)
    for held in folds:
        kept = np.setdiff1d(order, held)
        for ridge in (0.3, 3.0):
            kx, ky = ax[kept], ay[kept]
            u, v = kx - kx.mean(axis=0), ky - ky.mean(axis=0)
            size = len(kept)
            maps = (
                kx.mean(axis=0),
                ky.mean(axis=0),
                *dense_map(u.T @ u / size, v.T @ v / size, u.T @ v / size, ridge),
            )
            logs.setdefault((ridge, None, None), []).append(judged(held, maps))
            s0 = cosines(gx, gy, maps)
            for sharpness in (2.0, 4.0):
                plan = sinkhorn(1 - s0, s0.std() / sharpness)
                share = len(gx) / (len(gx) + size)
                c_xy = (1 - share) * (kx - mx).T @ (ky - my) / size
                c_xy = c_xy + share * (gx - mx).T @ plan @ (gy - my)
                for ratio in (0.1, 1.0):
                    second = (mx, my, *dense_map(c_xx, c_yy, c_xy, ridge * ratio))
                    logs.setdefault((ridge, ratio, sharpness), []).append(
                        judged(held, second)
                    )
    return {point: float(np.mean(np.concatenate(own))) for point, own in logs.items()}


def sinkhorn(cost, epsilon):
    """Return the entropic plan of uniform marginals, float64."""
    kernel = np.exp(-cost / epsilon)
    a, b = np.full(len(cost), 1 / len(cost)), np.full(cost.shape[1], 1 / cost.shape[1])
    v = np.ones_like(b)
    for _ in range(2000):
        u = a / (kernel @ v)
        v = b / (u @ kernel)
    return u[:, None] * kernel * v[None, :]


def test_shared_factors_choose_what_the_naive_loop_chooses():
    """Every candidate's mean log rank, and the smallest of each stage."""
    data = problem(noise=0.8)
    sides = soft_cca.prepare(*data)
    found = choose(sides)
    expected = naive(data, sides)
    assert len(found.curve) == 2 + 4
    for own in found.curve:
        point = (own.ridge, own.ridge_ratio, own.sharpness)
        assert own.log_rank == pytest.approx(expected[point], abs=1e-3)
    first, second = found.curve[:2], found.curve[2:]
    assert found.ridge == min(first, key=lambda own: own.log_rank).ridge
    best = min(second, key=lambda own: own.log_rank)
    assert found.settings == (best.ridge, best.ridge_ratio, best.sharpness)
    assert {own.ridge for own in second} == {found.ridge}
    assert found.n_heldout == N


def test_one_eigendecomposition_a_side_serves_all_candidates(monkeypatch):
    """Only the small problem of the canonical coordinates is solved a candidate."""
    sides = soft_cca.prepare(*problem())
    calls = []
    original = soft_cca.canonical.axes_of_moments
    monkeypatch.setattr(
        soft_cca.canonical,
        "axes_of_moments",
        lambda *a: calls.append(a) or original(*a),
    )
    plans = []
    solve = soft_cca.coupling.solve_coupling
    monkeypatch.setattr(
        soft_cca.coupling,
        "solve_coupling",
        lambda *a, **k: plans.append(a) or solve(*a, **k),
    )
    progress = []
    choose(sides, progress=lambda *done: progress.append(done))
    assert calls == []
    assert len(plans) == 3 * 2
    assert progress == [(i, 18) for i in range(1, 19)]


def test_settings_that_are_given_are_not_searched():
    """A fixed setting is the only candidate; with all fixed nothing is tried."""
    sides = soft_cca.prepare(*problem())
    given = SoftCcaConfig(ridge=1.0, ridge_ratio=0.5, sharpness=3.0)
    found = choose(sides, given)
    assert (found.settings, found.curve) == (SETTINGS, ())
    ridges, pairs = soft_selection.candidates(SoftCcaConfig(ridge=1.0), 500)
    assert ridges == (1.0,)
    assert {ratio for ratio, _ in pairs} == set(soft_selection.RATIOS)
    ridges, pairs = soft_selection.candidates(SoftCcaConfig(sharpness=2.0), 100)
    assert ridges == soft_selection.RIDGES_FEW
    assert {sharpness for _, sharpness in pairs} == {2.0}


def test_few_anchors_take_the_usual_settings():
    """Nothing is held out of fewer than ten anchors."""
    ax, ay, px, py = problem()
    sides = soft_cca.prepare(ax[:9], ay[:9], px, py)
    found = choose(sides, SoftCcaConfig(ridge=1.5))
    assert found.settings == soft_selection.USUAL._replace(ridge=1.5)
    assert found.reason.startswith("9 anchors are too few")


def test_ranks_of_a_hub_are_corrected():
    """Hand-worked: y_1 is nearest to x_0 (0.88 against 0.71), as to the whole bank."""
    x = reference.unit(np.array([[1, 0.0, 1], [0, 1, 1], [0, 0, 1], [0.1, 0, 1]]))
    y = reference.unit(np.array([[1, 0, 0], [0.3, 0.1, 1], [1, 1, 0], [0, 1, 0]]))
    assert reference.rank((x @ y.T)[0], 0) == 2
    assert soft_selection.bank_ranks(x, y, x[2:], y[2:], 2)[0, 0] == 1


def test_ties_count_half():
    """Equal scores of h partners are a rank in the middle."""
    same = np.ones((5, 1), np.float32)
    found = soft_selection.bank_ranks(same, same, same[:3], same[:3], 2)
    np.testing.assert_allclose(found, 3.0)


def test_the_pairing_is_what_is_judged():
    """With shuffled anchors the best candidate is no better than chance."""
    ax, ay, px, py = problem(noise=0.1)
    good = choose(soft_cca.prepare(ax, ay, px, py))
    bad = choose(soft_cca.prepare(ax, np.roll(ay, 1, axis=0), px, py))
    chance = np.log(np.arange(1, 8 + 7 + 1)).mean()
    assert min(own.log_rank for own in good.curve) < chance - 1
    assert min(own.log_rank for own in bad.curve) > chance - 0.6


def test_pools_that_teach_nothing_do_not_seem_to_help():
    """A small pool without a relation: matched at random, the second stage is worse.

    Ranked among items that its own plan had matched it would seem to be better.
    """
    ax, ay, px, _ = problem(noise=0.5)
    py = np.random.default_rng(7).normal(size=(40, ay.shape[1])).astype(np.float32)
    found = choose(soft_cca.prepare(ax, ay, px, py))
    first = [own.log_rank for own in found.curve if own.ridge_ratio is None]
    second = [own.log_rank for own in found.curve if own.ridge_ratio is not None]
    assert min(second) > min(first)


def test_marginals_go_along_with_a_subset():
    """A subset's weights are those of its rows, summing to one."""
    ax, ay, px, py = problem()
    weights = np.arange(1, len(px) + 1, dtype=np.float32)
    sides = soft_cca.prepare(ax, ay, px, py, a=weights)
    few = soft_selection.subset(sides, 10, key=KEY)
    assert few.x.pool.shape[0] == few.y.pool.shape[0] == 10
    assert few.b is None
    whole = np.asarray(sides.x.pool)
    rows = [
        int(np.abs(whole - row).sum(axis=1).argmin()) for row in np.asarray(few.x.pool)
    ]
    np.testing.assert_allclose(few.a, weights[rows] / weights[rows].sum(), rtol=1e-5)
