"""Iterative closest point: matches, the loop, its end, and planted rotations."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
import scipy.linalg
import scipy.stats

import reference
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.baselines.unpaired import closest_point as cp
from anchordot_jax.errors import InputError
from planted import same_model

SETTINGS = cp.ClosestPointSettings(rotations=2)


def planted(n: int = 150, d: int = 8, seed: int = 0) -> tuple[Pools, np.ndarray]:
    """Return a cloud and its rotated, shuffled copy; y[order[i]] belongs to x[i]."""
    rng = np.random.default_rng(seed)
    x = reference.unit(rng.gamma(2.0, size=(n, d)) * np.linspace(1, 3, d))
    order = rng.permutation(n)
    y = np.empty_like(x)
    y[order] = x @ scipy.stats.ortho_group.rvs(d, random_state=seed)
    return Pools(x.astype(np.float32), y.astype(np.float32)), order


def fit(pools: Pools, anchors: Anchors | None = None, **changes: Any) -> Any:
    """Return the model of these settings."""
    return cp.fit_closest_point(
        anchors or Anchors(pools.x[:5], pools.y[:5]),
        pools,
        settings=dataclasses.replace(SETTINGS, **changes),
        key=jax.random.key(0),
    )


def small_turn(d: int, angle: float) -> np.ndarray:
    """Return a rotation near the identity."""
    skew = np.random.default_rng(0).normal(size=(d, d))
    turn: np.ndarray = scipy.linalg.expm(angle * (skew - skew.T) / np.sqrt(d))
    return turn


def test_mutual_matches_by_hand() -> None:
    """x_1 and x_2 both prefer y_0; only one of them is preferred in turn."""
    x = np.array([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    y = np.array([[0.8, 0.6], [-1.0, 0.0], [1.0, 0.0]])
    mutual = cp.match(x, y)
    np.testing.assert_array_equal(mutual.x, [0, 2])
    np.testing.assert_array_equal(mutual.y, [2, 0])
    # Of x: 1, 0.96, 1. Of y: 1, -0.6, 1.
    assert mutual.objective == pytest.approx((2.96 / 3 + 1.4 / 3) / 2, abs=1e-6)
    one_way = cp.match(x, y, mutual=False)
    np.testing.assert_array_equal(one_way.y, [2, 0, 0])
    assert one_way.objective == pytest.approx(2.96 / 3, abs=1e-6)


def test_csls_matches() -> None:
    """They are the largest of 2 S - r_x - r_y, with cosines as the objective."""
    x, y = reference.unit_rows(20, 4, 0), reference.unit_rows(25, 4, 1)
    cosines = x.astype(np.float64) @ y.T
    r_x = np.sort(cosines, axis=1)[:, -3:].mean(axis=1)
    r_y = np.sort(cosines, axis=0)[-3:].mean(axis=0)
    best = (2 * cosines - r_x[:, None] - r_y[None, :]).argmax(axis=1)
    found = cp.match(x, y, mutual=False, csls_neighbors=3)
    np.testing.assert_array_equal(found.y, best)
    assert found.objective == pytest.approx(cosines[np.arange(20), best].mean())
    assert (best != cosines.argmax(axis=1)).any()


def test_identical_clouds_need_one_step() -> None:
    """From the identity, the identity, confirmed by the second matching."""
    x = reference.unit_rows(40, 5, 0)
    found = cp.closest_point(x, x, np.eye(5))
    np.testing.assert_allclose(found.rotation, np.eye(5), atol=1e-6)
    assert (found.iterations, found.converged) == (2, True)
    assert found.objective == pytest.approx(1, abs=1e-6)


def test_a_turn_near_the_start_is_found() -> None:
    """A shuffled, slightly rotated copy comes to lie on the cloud."""
    x = reference.unit_rows(200, 5, 0).astype(np.float64)
    turn = small_turn(5, 0.1)
    y = (x @ turn)[np.random.default_rng(1).permutation(200)]
    found = cp.closest_point(x, y, np.eye(5))
    np.testing.assert_allclose(found.rotation, turn, atol=1e-6)
    assert found.converged


@pytest.mark.parametrize("seed", range(3))
def test_one_way_the_objective_never_falls(seed: int) -> None:
    """Matching and Procrustes both maximise the mean cosine of the matches."""
    x, y = reference.unit_rows(60, 5, seed), reference.unit_rows(50, 5, seed + 100)
    start = scipy.stats.ortho_group.rvs(5, random_state=seed)
    ends = [
        cp.closest_point(x, y, start, iterations=steps, mutual=False)
        for steps in range(1, 12)
    ]
    objectives = [end.objective for end in ends]
    assert np.diff(objectives).min() >= -1e-6
    assert objectives[-1] > objectives[0] + 1e-5
    rotation = ends[-1].rotation
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(5), atol=1e-10)


def test_no_matches_end_cleanly(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing matched the start is returned, not an error."""
    none = cp.Matches(np.zeros(0, int), np.zeros(0, int), -0.5)
    monkeypatch.setattr(cp, "match", lambda *_, **__: none)
    start = small_turn(3, 1.0)
    x = reference.unit_rows(4, 3, 0)
    found = cp.closest_point(x, x, start)
    np.testing.assert_array_equal(found.rotation, start)
    assert (found.iterations, found.converged) == (1, False)


def test_iterations_are_limited() -> None:
    """An unfinished loop says so."""
    x, y = reference.unit_rows(60, 5, 0), reference.unit_rows(50, 5, 1)
    found = cp.closest_point(x, y, np.eye(5), iterations=1)
    assert (found.iterations, found.converged) == (1, False)


@pytest.mark.parametrize("csls_neighbors", [None, 10])
@pytest.mark.parametrize("seed", range(3))
def test_a_planted_rotation_is_found(seed: int, csls_neighbors: int | None) -> None:
    """Any rotation: the principal axes and their signs undo it."""
    pools, order = planted(seed=seed)
    model = fit(pools, csls_neighbors=csls_neighbors)
    found = model.scores(pools.x, pools.y).x2y.argmax(axis=1)
    assert (found == order).mean() > 0.9
    assert model.info["start"] == "principal axes"
    assert model.info["mean_cosine"] > 0.99


def test_a_random_start_can_win() -> None:
    """Between unlike clouds the best of many starts is not the principal axes."""
    pools = Pools(reference.unit_rows(60, 4, 2), reference.unit_rows(60, 4, 12))
    model, alone = fit(pools, rotations=6), fit(pools, rotations=0)
    assert model.info["mean_cosine"] > alone.info["mean_cosine"]
    assert str(model.info["start"]).startswith("random rotation")


def test_one_dimension_has_two_rotations() -> None:
    """Plus and minus one."""
    rng = np.random.default_rng(0)
    drawn = {float(cp.random_rotation(1, rng)[0, 0]) for _ in range(30)}
    assert drawn == {-1.0, 1.0}
    square = cp.random_rotation(3, rng)
    np.testing.assert_allclose(square.T @ square, np.eye(3), atol=1e-12)


def test_the_pairing_is_not_looked_at() -> None:
    """Shuffled anchors give the same model bit by bit."""
    pools, _ = planted()
    shuffled = Anchors(pools.x[:5], pools.y[4::-1])
    assert same_model(fit(pools, shuffled), fit(pools))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 0}, "dim must be a whole number >= 1"),
        ({"mutual": 1}, "mutual must be True or False"),
        ({"csls_neighbors": 0}, "csls_neighbors must be a whole number >= 1"),
    ],
)
def test_settings_are_checked(changes: dict[str, Any], message: str) -> None:
    """Values out of range are refused by name."""
    with pytest.raises(InputError, match=message):
        dataclasses.replace(SETTINGS, **changes)


def test_the_method_says_what_it_needs() -> None:
    """Pools and no pairs; the short schedule is a valid one."""
    (method,) = cp.METHODS
    assert (method.needs.pairs, method.needs.pools) == (False, True)
    short = dataclasses.replace(method.settings, **method.short)
    assert short.rotations < method.settings.rotations
