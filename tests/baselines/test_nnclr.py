"""NNCLR: the index against scikit-learn, the draws, the objective, the fit."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

import reference
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.baselines.trained import nnclr
from anchordot_jax.baselines.trained.nnclr import (
    Indexed,
    NnclrSettings,
    drawn_neighbours,
    neighbour_index,
)
from anchordot_jax.errors import InputError
from anchordot_jax.students import init_params
from anchordot_jax.training import affinity

ANCHORS = Anchors(reference.unit_rows(10, 7, 0), reference.unit_rows(10, 5, 1))
POOLS = Pools(reference.unit_rows(18, 7, 2), reference.unit_rows(19, 5, 3))
FEW = Anchors(ANCHORS.x[:5], ANCHORS.y[:5])
(METHOD,) = nnclr.METHODS

# Compiled whole: operation by operation takes longer.
objective = jax.jit(nnclr.nnclr_objective, static_argnames="static")
standardized_sides = jax.jit(affinity.standardized_sides)


def test_the_index_is_scikit_learns() -> None:
    found = neighbour_index(ANCHORS.x, POOLS.x, 6)
    trained = NearestNeighbors(n_neighbors=6, metric="cosine").fit(POOLS.x)
    np.testing.assert_array_equal(found, trained.kneighbors(ANCHORS.x)[1])


def test_the_index_without_self_is_scikit_learns() -> None:
    """scikit-learn leaves each row out of its own neighbours if it is given none."""
    found = neighbour_index(POOLS.x, POOLS.x, 4, exclude_self=True)
    trained = NearestNeighbors(n_neighbors=4, metric="cosine").fit(POOLS.x)
    np.testing.assert_array_equal(found, trained.kneighbors()[1])


def test_copies_are_neighbours_and_self_is_not() -> None:
    rows = np.repeat(reference.unit_rows(2, 4, 0), [4, 3], axis=0)
    found = neighbour_index(rows, rows, 2, exclude_self=True)
    assert found.shape == (7, 2)
    assert not (found == np.arange(7)[:, None]).any()
    assert (found[:4] < 4).all()
    assert (found[4:] >= 4).all()


def test_no_more_neighbours_than_keys() -> None:
    assert neighbour_index(ANCHORS.x, POOLS.x, 64).shape == (10, 18)
    assert neighbour_index(POOLS.x, POOLS.x, 64, exclude_self=True).shape == (18, 17)


@pytest.mark.parametrize(("n", "m"), [(3, 4), (1, 1)])
def test_self_can_only_be_left_out_of_the_same_rows(n: int, m: int) -> None:
    queries, keys = reference.unit_rows(n, 4, 0), reference.unit_rows(m, 4, 1)
    with pytest.raises(InputError, match=f"got {n} queries and {m} keys"):
        neighbour_index(queries, keys, 1, exclude_self=True)


def test_draws_are_uniform_over_the_neighbours() -> None:
    pool = np.arange(20.0, dtype=np.float32)[:, None]
    index = np.tile(np.array([[3, 8, 11, 17]]), (4000, 1))
    drawn = np.asarray(drawn_neighbours(pool, index, key=jax.random.key(0)))[:, 0]
    counts = np.array([(drawn == row).sum() for row in (3, 8, 11, 17)])
    assert counts.sum() == 4000
    assert np.abs(counts - 1000).max() < 150


@pytest.mark.parametrize("weight", [0.0, 2.0])
def test_the_objective(weight: float) -> None:
    """With one neighbour each nothing is left to chance."""
    params = init_params(7, 5, 6, key=jax.random.key(3))
    index_x = neighbour_index(ANCHORS.x, POOLS.x, 1)
    index_y = neighbour_index(ANCHORS.y, POOLS.y, 1)
    data = Indexed(
        Anchors(*standardized_sides(*ANCHORS)),
        Pools(*standardized_sides(*POOLS)),
        index_x,
        index_y,
    )
    settings = NnclrSettings(neighbour_weight=weight)
    value, _ = objective(params, (), data, jax.random.key(0), settings)
    x, y = (reference.student(r, params[s]) for r, s in zip(ANCHORS, "xy", strict=True))
    near_x = reference.student(POOLS.x[index_x[:, 0]], params["x"])
    near_y = reference.student(POOLS.y[index_y[:, 0]], params["y"])
    terms = [
        reference.soft_loss(10 * a @ b.T, np.eye(10), np.eye(10))
        for a, b in ((x, y), (near_x, y), (x, near_y))
    ]
    expected = np.average(terms, weights=[1, weight, weight])
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_a_fit_learns_its_pairs() -> None:
    given = dataclasses.replace(
        METHOD.settings, steps=150, learning_rate=3e-3, dim=16, neighbours=2
    )
    model = METHOD.fit(FEW, POOLS, settings=given, key=jax.random.key(0))
    pairs = np.repeat(np.arange(5)[:, None], 2, axis=1)
    found = model.evaluate(*FEW, pairs)
    assert min(found["x2y/recall@1"], found["y2x/recall@1"]) >= 0.9
    assert model.info["method"] == "nnclr"
    assert model.info["n_pool_y"] == 19
    assert model.logit_scale == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"neighbours": 0}, "neighbours must be a whole number >= 1, got 0"),
        ({"neighbour_weight": float("inf")}, "neighbour_weight must be a number >= 0"),
        ({"batch": 0}, "batch must be a whole number >= 1"),
    ],
)
def test_bad_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        NnclrSettings(**changes)
