"""The soft-matched CCA against dense float64 references, and its laws."""

import jax
import numpy as np
import pytest

import reference
from anchordot_jax import geometry
from anchordot_jax.config import CouplingConfig
from anchordot_jax.coupling import Coupling
from anchordot_jax.errors import InputError
from anchordot_jax.matching.bank import cosine_spread
from anchordot_jax.model import AlignedModel
from anchordot_jax.recipes import soft_cca, two_sides
from anchordot_jax.recipes.plan_cross import plan_cross
from anchordot_jax.recipes.soft_cca import Settings

TIGHT = CouplingConfig(tolerance=1e-5)
SETTINGS = Settings(
    ridge=1.0,
    balance=2.0,
    power=0.75,
    sharpness=3.0,
    ridge_ratio=0.5,
    balance_ratio=0.5,
    final_power=1.5,
)
PLAIN = Settings(ridge=1.0, ridge_ratio=1.0, sharpness=3.0)
N, n, m, DX, DY = 24, 37, 41, 11, 7


def planted(seed=0, count=N + n + m, noise=0.3):
    """Return `count` unit rows of both sides that share four latent factors."""
    maps = np.random.default_rng(99)
    to_x, to_y = maps.normal(size=(4, DX)), maps.normal(size=(4, DY))
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(count, 4))
    x = z @ to_x + noise * rng.normal(size=(count, DX))
    y = z @ to_y + noise * rng.normal(size=(count, DY))
    return (reference.unit(side).astype(np.float32) for side in (x, y))


def problem(seed=0, **options):
    """Return anchors x, y and pools x, y without a common item."""
    x, y = planted(seed, **options)
    return x[:N], y[:N], x[N : N + n], y[N + n : N + n + m]


def features(rows):
    """Return the LayerNorm of unit rows, float64."""
    return reference.layer_norm(reference.unit(rows), 1.0, 0.0, 1e-5)


def dense_map(c_xx, c_yy, c_xy, ridges, power=1.0):
    """Return Wx, Wy of the regularised CCA, coordinates times powered correlations."""

    def root(c, ridge):
        d = len(c)
        values, vectors = np.linalg.eigh(c + ridge * np.trace(c) / d * np.eye(d))
        return vectors / np.sqrt(values) @ vectors.T

    root_x, root_y = root(c_xx, ridges[0]), root(c_yy, ridges[1])
    left, values, right_t = np.linalg.svd(root_x @ c_xy @ root_y, full_matrices=False)
    kept = values > 1e-6 * values[0]
    weights = np.where(kept, values, 0) ** power
    return root_x @ left * weights, root_y @ right_t.T * weights


def dense_first(ax, ay, ridges, power=1.0):
    """Return means and maps of the anchors' CCA."""
    mx, my = ax.mean(axis=0), ay.mean(axis=0)
    u, v = ax - mx, ay - my
    return mx, my, *dense_map(u.T @ u / N, v.T @ v / N, u.T @ v / N, ridges, power)


def dense_second(ax, ay, px, py, plan, ridges, power):
    """Return means and maps of the CCA of anchors and matched pools."""
    x, y = np.concatenate([ax, px]), np.concatenate([ay, py])
    mx, my = x.mean(axis=0), y.mean(axis=0)
    share = min(len(px), len(py)) / (min(len(px), len(py)) + len(ax))
    c_xy = (1 - share) * (ax - mx).T @ (ay - my) / len(ax)
    c_xy += share * (px - mx).T @ plan @ (py - my)
    c_xx = (x - mx).T @ (x - mx) / len(x)
    c_yy = (y - my).T @ (y - my) / len(y)
    return mx, my, *dense_map(c_xx, c_yy, c_xy, ridges, power)


def cosines(x, y, means_and_maps):
    """Return the cosines of mapped rows."""
    mx, my, wx, wy = means_and_maps
    return reference.unit((x - mx) @ wx) @ reference.unit((y - my) @ wy).T


def test_the_whole_closed_form_is_the_recipe():
    """Both CCAs, the plan and the students, against the formulas in float64."""
    ax, ay, px, py = (features(rows) for rows in problem())
    s0 = cosines(px, py, dense_first(ax, ay, (2.0, 0.5), SETTINGS.power))
    epsilon = s0.std() / SETTINGS.sharpness
    sides = two_sides.prepare(*problem())
    found = soft_cca.solve(sides, SETTINGS, config=TIGHT)
    assert float(found.coupling.epsilon) == pytest.approx(epsilon, rel=1e-4)
    plan = reference.plan(1 - s0, found.coupling.f, found.coupling.g, epsilon)
    np.testing.assert_allclose(plan.sum(axis=1), 1 / n, atol=1e-5)
    np.testing.assert_allclose(plan.sum(axis=0), 1 / m, atol=1e-5)

    second = dense_second(ax, ay, px, py, plan, (0.5, 0.5), SETTINGS.final_power)
    params = soft_cca.student_params(sides, found.weights, temperature=0.05)
    model = AlignedModel(params=params, info={})
    x, y = planted(1, 9)
    expected = cosines(features(x), features(y), second)
    np.testing.assert_allclose(model.scores(x, y).x2y, expected, atol=1e-4)
    assert model.logit_scale == pytest.approx(20)
    for side, d in (("x", DX), ("y", DY)):
        kernel = np.asarray(params[side]["linear"]["kernel"])
        spread = np.sqrt(2 / (d + kernel.shape[1]))
        assert np.sqrt(np.mean(kernel**2)) == pytest.approx(spread, rel=1e-5)


@pytest.mark.parametrize("widths", [(5, 3), (3, 5)])
@pytest.mark.parametrize("tile", [4, 64])
def test_the_streamed_product_is_the_dense_one(monkeypatch, widths, tile):
    """X^T P Y for tiles that divide the rows and for those that do not."""
    monkeypatch.setattr(geometry, "tile_rows", lambda columns: tile)
    jax.clear_caches()
    rng = np.random.default_rng(3)
    u, v = reference.unit_rows(13, 4, 0), reference.unit_rows(10, 4, 1)
    f, g = rng.normal(size=13) / 9, rng.normal(size=10) / 9
    f[2] = -np.inf
    x, y = rng.normal(size=(13, widths[0])), rng.normal(size=(10, widths[1]))
    solved = Coupling(
        *(np.float32(value) for value in (f, g, 0.2, 0, 0)), True, np.zeros(1)
    )
    found = plan_cross(solved, u, v, x.astype(np.float32), y.astype(np.float32))
    plan = reference.plan(reference.cost(u, v), f, g, 0.2)
    expected = x.T @ plan @ y
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_pools_that_are_the_anchors_matched_by_identity_are_a_cca():
    """With P = I / N and pools = anchors, the second stage is the first."""
    anchors_x, anchors_y, _, _ = problem()
    sides = two_sides.prepare(anchors_x, anchors_y, anchors_x, anchors_y)
    pool = np.asarray(sides.x.pool).T @ np.asarray(sides.y.pool) / N
    cross = soft_cca.matched_cross(sides, soft_cca.anchor_cross(sides), pool, N)
    second = soft_cca.canonical.canonical_weights(
        sides.x.axes, sides.y.axes, cross, ridge=0.7
    )
    first = soft_cca.anchor_axes(sides).weights(PLAIN._replace(ridge=0.7))

    def scores(weights):
        u = soft_cca.canonical.embed(
            sides.x.pool, np.float32(weights.mean_x), np.float32(weights.x)
        )
        v = soft_cca.canonical.embed(
            sides.y.pool, np.float32(weights.mean_y), np.float32(weights.y)
        )
        return np.asarray(u) @ np.asarray(v).T

    np.testing.assert_allclose(scores(second), scores(first), atol=1e-4)


def test_swapping_the_sides_transposes_the_scores():
    """Nothing depends on which side is called x."""
    x, y = planted(1, 9)
    scores = []
    swapped = SETTINGS._replace(balance=1 / SETTINGS.balance, balance_ratio=2.0)
    for settings, order in ((SETTINGS, (0, 1, 2, 3)), (swapped, (1, 0, 3, 2))):
        sides = two_sides.prepare(*(problem()[i] for i in order))
        found = soft_cca.solve(sides, settings, config=TIGHT)
        params = soft_cca.student_params(sides, found.weights, temperature=0.05)
        scores.append(AlignedModel(params=params, info={}))
    one, other = scores
    np.testing.assert_allclose(
        one.scores(x, y).x2y, other.scores(y, x).x2y.T, atol=2e-3
    )


def test_weights_of_the_pool_are_repetitions():
    """Marginals: a row of weight 2 counts as two rows."""
    ax, ay, px, py = problem()
    times = np.where(np.arange(n) % 3 == 0, 2, 1).astype(np.float32)
    weighted = two_sides.prepare(ax, ay, px, py, a=times)
    u = soft_cca.solve(weighted, SETTINGS, config=TIGHT).coupling
    plan_rows = np.exp(np.asarray(u.f) / float(u.epsilon))
    assert np.isfinite(plan_rows).all()
    np.testing.assert_allclose(weighted.a, times / times.sum())
    exact = features(np.repeat(px, times.astype(int), axis=0))
    pooled = (N * features(ax).mean(axis=0) + n * exact.mean(axis=0)) / (N + n)
    np.testing.assert_allclose(weighted.x.axes.mean, pooled, atol=1e-5)


@pytest.mark.parametrize(("dx", "dy"), [(2, 2), (2, 40), (40, 30)])
def test_any_widths_and_few_anchors(dx, dy):
    """Two columns, and more columns than rows: finite students of some width."""
    rng = np.random.default_rng(dx + dy)
    rows = [rng.normal(size=(k, d)) for k, d in ((20, dx), (20, dy), (6, dx), (9, dy))]
    sides = two_sides.prepare(*(np.float32(side) for side in rows))
    found = soft_cca.solve(sides, SETTINGS, config=CouplingConfig(tolerance=1e-2))
    params = soft_cca.student_params(sides, found.weights, temperature=0.05)
    k = params["x"]["linear"]["kernel"].shape[1]
    assert 1 <= k <= min(dx, dy)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))


def test_anchors_that_do_not_differ_are_refused():
    """One row over and over has no covariance."""
    _, ay, px, py = problem()
    sides = two_sides.prepare(np.tile(px[:1], (N, 1)), ay, px, py)
    with pytest.raises(InputError, match="All rows of side x are the same"):
        soft_cca.anchor_axes(sides)


def test_padding_changes_no_cosine():
    """Columns of zeros, for one compilation, leave the spread of cosines."""
    sides = two_sides.prepare(*problem())
    first = soft_cca.anchor_axes(sides).weights(PLAIN)
    _, u, v = soft_cca.match_pools(sides, first, 3.0, config=TIGHT)
    assert u.shape[1] == v.shape[1] >= first.x.shape[1]
    exact = cosines(
        *(features(rows) for rows in problem()[2:]),
        dense_first(*(features(rows) for rows in problem()[:2]), (1.0, 1.0)),
    )
    np.testing.assert_allclose(np.asarray(u) @ np.asarray(v).T, exact, atol=1e-4)
    assert cosine_spread(u, v) == pytest.approx(exact.std(), rel=1e-4)
