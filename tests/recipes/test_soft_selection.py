"""Choosing ridges and sharpness: against a naive loop, and what it must not see."""

import threading

import jax
import numpy as np
import pytest
import threadpoolctl
from test_soft_cca import (
    SETTINGS,
    cosines,
    dense_map,
    features,
    problem,
)

import reference
from anchordot_jax.config import CouplingConfig, SoftCcaConfig
from anchordot_jax.parallel.cores import available_cores
from anchordot_jax.recipes import (
    heldout_ranks,
    soft_cca,
    soft_selection,
    two_sides,
)

Candidate = soft_selection.Candidate
N = 24
TIGHT = CouplingConfig(tolerance=1e-5)
CONFIG = SoftCcaConfig(
    ridge=(0.3, 3.0),
    balance=(0.5, 1.0),
    power=1.0,
    sharpness=(2.0, 4.0),
    ridge_ratio=(0.1, 1.0),
    balance_ratio=1.0,
    final_power=(0.5, 1.0),
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


def naive(data, sides, settings, *, second):
    """Return the mean log rank of one candidate, everything made anew."""
    ax, ay, px, py = (features(rows) for rows in data)
    x, y = np.concatenate([ax, px]), np.concatenate([ay, py])
    mx, my = x.mean(axis=0), y.mean(axis=0)
    key_folds, key_pool = jax.random.split(KEY)
    order = np.asarray(jax.random.permutation(key_folds, N))
    few = heldout_ranks.subset(sides, None, key=key_pool)
    # The same pool items in the same order, as features.
    gx, gy = (
        np.asarray(side.pool, np.float64) @ side.axes.vectors.T + side.axes.mean
        for side in (few.x, few.y)
    )
    # A fifth of each pool is for the gallery, and no plan sees it.
    p, q = len(gx) // 5, len(gy) // 5
    (gallery_x, gx), (gallery_y, gy) = np.split(gx, [p]), np.split(gy, [q])
    logs = []
    for held in np.array_split(order, 3):
        kept = np.setdiff1d(order, held)
        kx, ky = ax[kept], ay[kept]
        u, v = kx - kx.mean(axis=0), ky - ky.mean(axis=0)
        c_xy = u.T @ v / len(kept)
        balance, ridge = settings.balance, settings.ridge
        maps = (
            kx.mean(axis=0),
            ky.mean(axis=0),
            *dense_map(
                *(u.T @ u / len(kept), v.T @ v / len(kept), c_xy),
                (ridge * balance, ridge / balance),
                settings.power,
            ),
        )
        if second:
            s0 = cosines(gx, gy, maps)
            plan = sinkhorn(1 - s0, s0.std() / settings.sharpness)
            share = len(gx) / (len(gx) + len(kept))
            c_xy = (1 - share) * (kx - mx).T @ (ky - my) / len(kept)
            c_xy = c_xy + share * (gx - mx).T @ plan @ (gy - my)
            ridge = ridge * settings.ridge_ratio
            balance = balance * settings.balance_ratio
            c_xx, c_yy = np.cov(x.T, bias=True), np.cov(y.T, bias=True)
            ridges = ridge * balance, ridge / balance
            own = dense_map(c_xx, c_yy, c_xy, ridges, settings.final_power)
            maps = (mx, my, *own)
        rows_x = np.concatenate([ax[held], gallery_x, gx[:15]])
        rows_y = np.concatenate([ay[held], gallery_y, gy[:15]])
        logs.append(bank_ranks(cosines(rows_x, rows_y, maps), len(held), p, q))
    return float(np.mean(np.concatenate(logs)))


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
    """Every candidate's mean log rank, with what was chosen before it."""
    data = problem(noise=0.8)
    sides = two_sides.prepare(*data)
    found = choose(sides)
    tried = soft_selection.candidates(CONFIG, N)
    searched = [name for name in tried if len(tried[name]) > 1]
    assert list(dict.fromkeys(own.setting for own in found.curve)) == searched
    chosen = soft_selection.USUAL_FEW._replace(
        ridge=3.0, ridge_ratio=0.1, sharpness=4.0, power=1.0
    )
    for name in searched:
        own = [point for point in found.curve if point.setting == name]
        assert [point.value for point in own] == list(tried[name])
        for point in own:
            settings = chosen._replace(**{name: point.value})
            second = name not in soft_selection.FIRST
            expected = naive(data, sides, settings, second=second)
            assert point.log_rank == pytest.approx(expected, abs=1e-3)
        chosen = chosen._replace(**{name: getattr(found, name)})
    assert found.settings == chosen
    assert found.n_heldout == N


def test_a_value_stays_unless_another_is_better_by_more_than_its_error():
    """The one-standard-error rule; the ridge alone is the best one."""
    points = [
        Candidate("power", 0.5, 1.00, 0.0),
        Candidate("power", 0.75, 1.02, 0.03),
        Candidate("power", 1.0, 1.08, 0.03),
    ]
    usual = soft_selection.USUAL
    for known, expected in ((0.75, 0.75), (1.0, 0.5), (0.5, 0.5)):
        settings = usual._replace(power=known)
        assert soft_selection.choose(points, settings) == expected
    assert soft_selection.choose(points, None) == 0.5


def test_one_eigendecomposition_a_side_serves_all_candidates(monkeypatch):
    """Only the small problem of the canonical coordinates is solved a candidate."""
    sides = two_sides.prepare(*problem())
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
    assert progress == [(i, 30) for i in range(1, 31)]


def test_folds_side_by_side_are_in_order_and_leave_the_threads_as_they_were():
    """The first fold is held up until the second is through, where two run at once."""
    limits = [lib["num_threads"] for lib in threadpoolctl.threadpool_info()]
    second = threading.Event()

    def ranked(fold):
        if fold == 0 and available_cores() > 1:
            assert second.wait(60)
        if fold == 1:
            second.set()
        with soft_selection.canonical.single_thread():
            return np.full(2, float(fold))

    ticks = []
    found = soft_selection._side_by_side(ranked, range(3), lambda: ticks.append(1))
    np.testing.assert_array_equal(found, [0, 0, 1, 1, 2, 2])
    assert len(ticks) == 3
    assert limits == [lib["num_threads"] for lib in threadpoolctl.threadpool_info()]


def test_settings_that_are_given_are_not_searched():
    """A fixed setting is the only candidate; with all fixed nothing is tried."""
    sides = two_sides.prepare(*problem())
    found = choose(sides, SoftCcaConfig(**SETTINGS._asdict()))
    assert (found.settings, found.curve) == (SETTINGS, ())
    tried = soft_selection.candidates(SoftCcaConfig(ridge=1.0), 500)
    assert tried == soft_selection.CANDIDATES | {"ridge": (1.0,)}
    tried = soft_selection.candidates(SoftCcaConfig(sharpness=(2.0, 9.0)), 100)
    assert tried["ridge"] == soft_selection.FEW_ANCHORS["ridge"]
    assert tried["sharpness"] == (2.0, 9.0)
    assert set(tried) == set(soft_cca.Settings._fields)


def test_few_anchors_take_the_usual_settings():
    """Nothing is held out of fewer than ten anchors."""
    ax, ay, px, py = problem()
    sides = two_sides.prepare(ax[:9], ay[:9], px, py)
    found = choose(sides, SoftCcaConfig(ridge=1.5))
    assert found.settings == soft_selection.USUAL_FEW._replace(ridge=1.5)
    assert found.reason.startswith("9 anchors are too few")


def test_ranks_of_a_hub_are_corrected():
    """Hand-worked: y_1 is nearest to x_0 (0.88 against 0.71), as to the whole bank."""
    x = reference.unit(np.array([[1, 0.0, 1], [0, 1, 1], [0, 0, 1], [0.1, 0, 1]]))
    y = reference.unit(np.array([[1, 0, 0], [0.3, 0.1, 1], [1, 1, 0], [0, 1, 0]]))
    assert reference.rank((x @ y.T)[0], 0) == 2
    assert heldout_ranks.bank_ranks(x, y, x[2:], y[2:], 2)[0, 0] == 1


def test_ties_count_half():
    """Equal scores of h partners are a rank in the middle."""
    same = np.ones((5, 1), np.float32)
    found = heldout_ranks.bank_ranks(same, same, same[:3], same[:3], 2)
    np.testing.assert_allclose(found, 3.0)


def test_the_pairing_is_what_is_judged():
    """With shuffled anchors the best candidate is no better than chance."""
    ax, ay, px, py = problem(noise=0.1)
    good = choose(two_sides.prepare(ax, ay, px, py))
    bad = choose(two_sides.prepare(ax, np.roll(ay, 1, axis=0), px, py))
    chance = np.log(np.arange(1, 8 + 7 + 1)).mean()
    assert min(own.log_rank for own in good.curve) < chance - 1
    assert min(own.log_rank for own in bad.curve) > chance - 0.6


def test_pools_that_teach_nothing_do_not_seem_to_help():
    """A small pool without a relation: matched at random, the second stage is worse.

    Ranked among items that its own plan had matched it would seem to be better.
    """
    ax, ay, px, _ = problem(noise=0.5)
    py = np.random.default_rng(7).normal(size=(40, ay.shape[1])).astype(np.float32)
    found = choose(two_sides.prepare(ax, ay, px, py))
    stages = ([], [])
    for own in found.curve:
        stages[own.setting not in soft_selection.FIRST].append(own.log_rank)
    first, second = stages
    assert min(second) > min(first)


def test_marginals_go_along_with_a_subset():
    """A subset's weights are those of its rows, summing to one."""
    ax, ay, px, py = problem()
    weights = np.arange(1, len(px) + 1, dtype=np.float32)
    sides = two_sides.prepare(ax, ay, px, py, a=weights)
    few = heldout_ranks.subset(sides, 10, key=KEY)
    assert few.x.pool.shape[0] == few.y.pool.shape[0] == 10
    assert few.b is None
    whole = np.asarray(sides.x.pool)
    rows = [
        int(np.abs(whole - row).sum(axis=1).argmin()) for row in np.asarray(few.x.pool)
    ]
    np.testing.assert_allclose(few.a, weights[rows] / weights[rows].sum(), rtol=1e-5)
