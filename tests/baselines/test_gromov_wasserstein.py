"""Gromov-Wasserstein without pairs: structures, known plans, distillation."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import reference
from anchordot_jax.baselines.plans import gromov_wasserstein as gromov
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.config import CouplingConfig, DistillationConfig
from anchordot_jax.costs import fused_gromov_wasserstein as gw
from anchordot_jax.errors import InputError
from planted import same_model

SETTINGS = gromov.GromovWassersteinSettings(
    points=60,
    epsilon=5e-3,
    iterations=30,
    coupling=CouplingConfig(max_iterations=300),
    distillation=DistillationConfig(
        dim=32, epochs=150, chunk_size=30, learning_rate=0.01, warmup_steps=10
    ),
)
LINE = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])


def planted(n: int = 60, d: int = 5, seed: int = 0) -> tuple[Pools, np.ndarray]:
    """Return a cloud and its rotated, shuffled copy; y[order[i]] belongs to x[i]."""
    rng = np.random.default_rng(seed)
    x = reference.unit(rng.gamma(1.0, size=(n, d)) * np.linspace(1, 3, d))
    order = rng.permutation(n)
    y = np.empty_like(x)
    y[order] = x @ scipy.stats.ortho_group.rvs(d, random_state=seed)
    return Pools(x.astype(np.float32), y.astype(np.float32)), order


def fit(pools: Pools, anchors: Anchors | None = None, **changes: Any) -> Any:
    """Return the model of these settings."""
    return gromov.fit_gromov_wasserstein(
        anchors or Anchors(pools.x[:5], pools.y[:5]),
        pools,
        settings=dataclasses.replace(SETTINGS, **changes),
        key=jax.random.key(0),
    )


def plan_of(cost_x: np.ndarray, cost_y: np.ndarray, epsilon: float) -> np.ndarray:
    """Return the plan without a linear cost."""
    log_plan = gw.fused_gromov_wasserstein(
        np.float32(cost_x), np.float32(cost_y), None, alpha=0.0, epsilon=epsilon
    )
    return np.exp(np.asarray(log_plan, np.float64))


def objective(cost_x: np.ndarray, cost_y: np.ndarray, plan: np.ndarray) -> float:
    """Return sum_ijkl (Cx_ik - Cy_jl)^2 P_ij P_kl, term by term."""
    difference = cost_x[:, None, :, None] - cost_y[None, :, None, :]
    return float(np.einsum("ijkl,ij,kl->", difference**2, plan, plan))


def test_structure_costs() -> None:
    """Cosine distances of centred unit rows, with a mean of one, zero to itself."""
    rows = reference.unit_rows(30, 4, 0) + np.float32(0.5)
    unit = reference.unit(rows)
    centred = reference.unit(unit - unit.mean(axis=0))
    distances = 1 - centred @ centred.T
    cost = gromov.structure_cost(rows)
    np.testing.assert_allclose(cost, distances / distances.mean(), atol=1e-5)
    assert cost.mean() == pytest.approx(1, abs=1e-5)
    np.testing.assert_array_equal(np.diag(cost), np.zeros(30))
    assert cost.dtype == np.float32


def test_structure_costs_do_not_see_a_rotation() -> None:
    """A rotated cloud has the same structure, a shuffled one the shuffled one."""
    pools, order = planted()
    cost_x, cost_y = (gromov.structure_cost(rows) for rows in pools)
    np.testing.assert_allclose(cost_x, cost_y[np.ix_(order, order)], atol=1e-4)


def test_three_points() -> None:
    """The objective is 0 at the permutation, 8/3 at the product; the plan finds it."""
    order = np.array([1, 2, 0])
    shuffled = LINE[np.ix_(order, order)]
    right = np.eye(3)[[2, 0, 1]] / 3
    product = np.full((3, 3), 1 / 9)
    assert objective(LINE, shuffled, product) == pytest.approx(8 / 3)
    assert objective(LINE, shuffled, np.eye(3) / 3) == pytest.approx(4 / 3)
    assert objective(LINE, shuffled, right) == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(plan_of(LINE, shuffled, 0.05), right, atol=1e-3)


def test_no_structure_gives_the_product() -> None:
    """Where all distances are zero the entropy alone decides."""
    plan = plan_of(np.zeros((4, 4)), np.zeros((3, 3)), 0.1)
    np.testing.assert_allclose(plan, np.full((4, 3), 1 / 12), atol=1e-6)


def test_the_scale_of_the_structures_is_epsilons() -> None:
    """Structures times c and epsilon times c^2 give the same plan."""
    pools, _ = planted(20)
    cost_x, cost_y = (gromov.structure_cost(rows) for rows in pools)
    plan = plan_of(cost_x, cost_y, 0.02)
    np.testing.assert_allclose(
        plan_of(3 * cost_x, 3 * cost_y, 0.18), plan, atol=1e-2 * plan.max()
    )


@pytest.fixture(scope="module")
def model() -> Any:
    """Return the model of a planted rotation."""
    with jax.numpy_rank_promotion("raise"):
        return fit(planted()[0])


def test_a_planted_rotation_is_found_and_distilled(model: Any) -> None:
    """Every row's own is the first in the plan, and among the students' best three.

    LayerNorm takes one of the five dimensions from the students.
    """
    pools, order = planted()
    solved = gw.solve(
        *map(gromov.structure_cost, pools),
        None,
        alpha=0.0,
        epsilon=SETTINGS.epsilon,
        max_iterations=SETTINGS.iterations,
        threshold=SETTINGS.threshold,
        config=SETTINGS.coupling,
    )
    np.testing.assert_array_equal(np.asarray(solved.log_plan).argmax(axis=1), order)
    best = np.argsort(-model.scores(pools.x, pools.y).x2y, axis=1)[:, :3]
    assert (best == order[:, None]).any(axis=1).mean() > 0.9
    assert model.kind == "students"
    assert model.info["pairs_used"] == 0


def test_the_pairing_is_not_looked_at(model: Any) -> None:
    """Shuffled anchors, or others, give the same model bit by bit."""
    pools, _ = planted()
    shuffled = Anchors(pools.x[:5], pools.y[4::-1])
    assert same_model(fit(pools, shuffled), model)
    noise = Anchors(reference.unit_rows(3, 5, 0), reference.unit_rows(3, 5, 1))
    assert same_model(fit(pools, noise), model)


def test_only_some_rows_are_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of larger pools a random part is used for the plan and for the students."""
    pools, _ = planted()
    given: dict[str, Any] = {}

    def solve(cost_x: np.ndarray, cost_y: np.ndarray, *_: Any, **__: Any) -> Any:
        given["shapes"] = cost_x.shape, cost_y.shape
        return gw.FusedPlan(jnp.zeros((40, 40)), jnp.asarray(3), jnp.asarray(True))

    def distil(
        method: str, anchors: Anchors, pools: Pools, log_plan: Any, **options: Any
    ) -> None:
        given.update(options, pools=pools)

    monkeypatch.setattr(gw, "solve", solve)
    monkeypatch.setattr(gromov, "distil_plan", distil)
    fit(pools, points=40)
    assert given["shapes"] == ((40, 40), (40, 40))
    kept_x, kept_y = given["pools"]
    assert len(kept_x) == len(kept_y) == 40
    rows = {tuple(row) for row in pools.x.tolist()}
    assert all(tuple(row) in rows for row in kept_x.tolist())
    assert given["use_anchors"] is False
    assert (given["iterations"], given["converged"]) == (3, True)


def test_a_plan_that_is_not_finite_is_not_distilled() -> None:
    """The error names epsilon instead of a model of NaN."""
    pools, _ = planted()
    with pytest.raises(FloatingPointError, match="not finite at epsilon 1e-38"):
        fit(pools, epsilon=1e-38)


def test_one_row_is_refused() -> None:
    """A pool of one row has no structure."""
    pools, _ = planted()
    with pytest.raises(InputError, match="at least 2 rows"):
        fit(Pools(pools.x[:1], pools.y))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"points": 1}, "points must be a whole number >= 2"),
        ({"iterations": True}, "iterations must be a whole number >= 2"),
        ({"epsilon": float("nan")}, "epsilon must be a number > 0"),
    ],
)
def test_settings_are_checked(changes: dict[str, Any], message: str) -> None:
    """Values out of range are refused by name."""
    with pytest.raises(InputError, match=message):
        dataclasses.replace(SETTINGS, **changes)


def test_the_method_says_what_it_needs() -> None:
    """Pools and no pairs; the short schedule is a valid one."""
    (method,) = gromov.METHODS
    assert (method.needs.pairs, method.needs.pools) == (False, True)
    short = dataclasses.replace(method.settings, **method.short)
    assert short.points < method.settings.points
