"""Students of other couplings: what they learn, tau, epsilon, facts, and bad input."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import planted
import reference
from anchordot_jax import AlignedModel, CouplingConfig, DistillationConfig
from anchordot_jax.baselines.plans import couplings
from anchordot_jax.baselines.plans.couplings import (
    TAUS,
    choose_tau,
    fused_plan,
    keypoint_plan,
    limit_pools,
    median_cost,
    solve_plan,
)
from anchordot_jax.baselines.plans.settings import (
    BridgeSettings,
    FusedSettings,
    KeypointSettings,
)
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.errors import InputError

KEY = jax.random.key(0)
METHODS = {method.name: method for method in couplings.METHODS}
STUDENTS = planted.CONFIG.distillation
SETTINGS = {
    "bridge": BridgeSettings(eta=0.1, distillation=STUDENTS),
    "keypoint": KeypointSettings(eta=0.1, tau=0.05, distillation=STUDENTS),
    "fused-gw": FusedSettings(eta=0.1, distillation=STUDENTS),
}


def problem():
    """Return anchors, pools and the rows of the planted problem."""
    given = planted.problem()
    x, y = (reference.unit(rows).astype(np.float32) for rows in given[:2])
    i, j = given.pairs.T
    others = [np.setdiff1d(np.arange(len(rows)), own) for rows, own in ((x, i), (y, j))]
    pools = Pools(x[others[0]], y[others[1]])
    return Anchors(x[i], y[j]), pools, x, y, given.test_pairs


def fit(name, **changes):
    anchors, pools, *_ = problem()
    settings = dataclasses.replace(SETTINGS[name], **changes)
    return METHODS[name].fit(anchors, pools, settings=settings, key=KEY)


@pytest.mark.parametrize("name", list(METHODS))
def test_students_find_what_was_planted(name, tmp_path):
    """Far better than chance; the folder holds the settings and how it was solved."""
    _, _, x, y, test_pairs = problem()
    model = fit(name)
    found = model.evaluate(x, y, test_pairs)
    assert found["x2y/recall@1"] + found["y2x/recall@1"] > 0.6
    assert model.info["method"] == name
    assert model.info["epsilon"] > 0
    assert model.info["n_anchors"] == 14
    assert (model.info["n_pool_x"], model.info["n_pool_y"]) == (26, 32)
    model.save(tmp_path / "model")
    loaded = AlignedModel.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.embed_x(x), model.embed_x(x))
    assert loaded.info["settings"] == json.loads(
        json.dumps(dataclasses.asdict(SETTINGS[name]))
    )


def test_the_plan_is_learned():
    """Other etas, another plan, other students; the same key, the same students."""
    one, again, other = fit("bridge"), fit("bridge"), fit("bridge", eta=1.0)
    assert planted.same_model(one, again)
    assert not planted.same_model(one, other)


def test_few_pool_rows_are_used():
    model = fit("bridge", pool_limit=20)
    assert (model.info["n_pool_x"], model.info["n_pool_y"]) == (20, 20)


def test_plan_has_uniform_marginals_and_the_stated_epsilon():
    cost = np.random.default_rng(0).random((12, 9)).astype(np.float32)
    exact = CouplingConfig(tolerance=1e-6)
    plan = solve_plan(cost, BridgeSettings(eta=0.3, coupling=exact))
    mass = np.exp(np.asarray(plan.log_plan, np.float64))
    np.testing.assert_allclose(mass.sum(axis=1), np.full(12, 1 / 12), atol=2e-6)
    np.testing.assert_allclose(mass.sum(axis=0), np.full(9, 1 / 9), atol=2e-6)
    assert plan.facts["epsilon"] == pytest.approx(0.3 * np.median(cost))
    assert plan.facts["converged"] is True
    # What distinguishes entropic plans of one cost: ratios are exp(-dC / epsilon).
    logs = np.asarray(plan.log_plan, np.float64)
    ratio = logs[0, 0] + logs[1, 1] - logs[0, 1] - logs[1, 0]
    difference = cost[0, 0] + cost[1, 1] - cost[0, 1] - cost[1, 0]
    assert ratio == pytest.approx(-difference / plan.facts["epsilon"], rel=1e-3)


def test_a_cost_of_zeros_has_no_median():
    with pytest.raises(InputError, match="times its median regularises nothing"):
        solve_plan(np.zeros((4, 4), np.float32), BridgeSettings())


def test_median_of_a_large_cost_visits_all_columns():
    """Evenly spaced entries of a cost with a trend in both directions."""
    cost = np.arange(1600)[:, None] / 1600 + 2.0 * np.arange(1600)[None, :] / 1600
    assert cost.size > 2 * couplings.MEDIAN_SAMPLE
    assert median_cost(cost) == pytest.approx(np.median(cost), abs=3e-3)
    small = np.random.default_rng(0).random((30, 20))
    assert median_cost(small) == np.median(small)


def test_fused_plan_without_structure_is_that_of_the_profiles():
    """With alpha = 1 the plan is the profile cost's own, at eta times its median."""
    anchors, pools, *_ = problem()
    settings = FusedSettings(alpha=1.0, eta=0.1, gamma=0.5)
    cost = 1 - reference.profile_cosine(
        pools.x, anchors.x, pools.y, anchors.y, settings.gamma
    )
    expected = solve_plan((cost / cost.mean()).astype(np.float32), settings)
    found = fused_plan(anchors, pools, settings)
    assert found.facts["epsilon"] == pytest.approx(expected.facts["epsilon"], rel=1e-4)
    np.testing.assert_allclose(
        np.exp(found.log_plan), np.exp(expected.log_plan), atol=1e-4
    )


def test_fused_plan_without_pairs_ignores_them():
    """With alpha = 0 only the distances within a side count."""
    anchors, pools, *_ = problem()
    settings = FusedSettings(alpha=0.0, eta=0.1)
    shuffled = Anchors(anchors.x, anchors.y[::-1])
    one, other = (fused_plan(a, pools, settings) for a in (anchors, shuffled))
    factor = one.facts["epsilon"] / other.facts["epsilon"]
    assert 0.8 < factor < 1.25
    mixed = fused_plan(anchors, pools, dataclasses.replace(settings, alpha=0.5))
    near = np.abs(np.exp(one.log_plan) - np.exp(other.log_plan)).sum()
    far = np.abs(np.exp(one.log_plan) - np.exp(mixed.log_plan)).sum()
    assert near < 0.3 * far


def test_tau_is_chosen_by_held_out_anchors():
    """One of the candidates, the same for the same key, and used by the fit."""
    anchors, pools, *_ = problem()
    settings = KeypointSettings(eta=0.1, distillation=STUDENTS)
    chosen, n_heldout = choose_tau(anchors, pools, settings=settings, key=KEY)
    assert chosen.tau in TAUS
    assert chosen == dataclasses.replace(settings, tau=chosen.tau)
    assert 3 <= n_heldout <= len(anchors.x)
    model = fit("keypoint", tau="auto")
    assert model.info["settings"]["tau"] in TAUS
    assert model.info["tau_chosen_by"] == n_heldout


def test_a_bad_tau_loses(monkeypatch):
    """Relations that are all uniform rank the held-out anchors by chance."""
    anchors, pools, *_ = problem()
    trial = dataclasses.replace(couplings._PLANS, grid={"tau": (1e4, 0.05)})
    monkeypatch.setattr(couplings, "_PLANS", trial)
    settings = KeypointSettings(eta=0.1)
    chosen, _ = choose_tau(anchors, pools, settings=settings, key=KEY)
    assert chosen.tau == 0.05


def test_auto_is_no_temperature():
    anchors, pools, *_ = problem()
    with pytest.raises(InputError, match="tau must be a number here"):
        keypoint_plan(anchors, pools, KeypointSettings())


def test_limit_pools():
    """Different rows of the pool, in order; a pool within the limit is left alone."""
    pools = Pools(np.arange(50.0)[:, None], np.arange(5.0)[:, None])
    some = limit_pools(pools, 20, key=KEY)
    rows = some.x[:, 0]
    assert len(rows) == 20
    assert np.all(np.diff(rows) > 0)
    assert rows.max() > 25 > rows.min()
    assert some.y is pools.y
    assert limit_pools(pools, None, key=KEY).x is pools.x


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: BridgeSettings(eta=0.0), "eta must be a number in"),
        (lambda: BridgeSettings(pool_limit=0), "pool_limit must be a whole number"),
        (lambda: KeypointSettings(tau=-1.0), "tau must be 'auto' or a number > 0"),
        (lambda: KeypointSettings(tau="none"), "tau must be 'auto'"),
        (lambda: FusedSettings(alpha=1.1), r"alpha must be a number in \[0, 1\]"),
        (lambda: FusedSettings(gamma=3.0), "gamma must be a number in"),
        (lambda: FusedSettings(max_iterations=1), "max_iterations must be at least 2"),
        (lambda: FusedSettings(threshold=0.0), "threshold must be > 0"),
    ],
)
def test_bad_settings(build, message):
    with pytest.raises(InputError, match=message):
        build()


@pytest.mark.parametrize("name", list(METHODS))
def test_short_schedules_are_valid(name):
    """A shorter schedule changes the students' epochs."""
    method = METHODS[name]
    short = dataclasses.replace(method.settings, **method.short)
    assert short.distillation.epochs < DistillationConfig().epochs
