"""Matches of the pools with a known partner each, and what precision is expected."""

import numpy as np
import pytest

from anchordot_jax.config import Config
from anchordot_jax.fit_inputs import FitData
from anchordot_jax.fitted import pool_matches
from anchordot_jax.selection import Selection

N_ANCHORS, N_POOL = 40, 60
CONFIG = Config(recipe="paper", gamma=1.0, eta=0.1, center=True)
CHOSEN = Selection(1.0, 0.1, (), 0, "given")


def views(*, noise: float, shuffled: bool = False, seed: int = 0) -> FitData:
    """Return two noisy linear views of one latent space; pool row i pairs with i."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(N_ANCHORS + N_POOL, 5))
    x = latent @ rng.normal(size=(5, 8))
    y = latent @ rng.normal(size=(5, 7))
    x, y = (rows + noise * rng.normal(size=rows.shape) for rows in (x, y))
    x, y = x.astype(np.float32), y.astype(np.float32)
    partners = y[:N_ANCHORS]
    if shuffled:
        partners = np.roll(partners, 1, axis=0)
    return FitData(x[:N_ANCHORS], partners, x[N_ANCHORS:], y[N_ANCHORS:])


def test_easy_pools_are_matched_and_expected_to_be() -> None:
    found = pool_matches.find_matches(views(noise=0.05), CONFIG, CHOSEN)
    matches, precision = found.matches, found.precision
    assert precision is not None
    right = (matches.x == matches.y)[matches.mutual]
    assert right.mean() > 0.8
    assert precision[matches.mutual].mean() == pytest.approx(right.mean(), abs=0.15)
    assert np.isnan(precision[~matches.mutual]).all()
    tops = pool_matches.expected_precisions(found, (10, 20, 10**6))
    assert list(tops) == [10, 20]
    assert tops[10] >= tops[20]


def test_anchors_paired_at_random_promise_little() -> None:
    found = pool_matches.find_matches(views(noise=0.05, shuffled=True), CONFIG, CHOSEN)
    assert found.precision is not None
    assert np.nanmax(found.precision) < 0.3


def test_a_fold_moves_each_anchor_once_and_keeps_the_pairing() -> None:
    data = views(noise=0.0)._replace(a=np.full(N_POOL, 0.5, np.float32))
    seen = []
    for fold, held in pool_matches.heldout_folds(data, seed=0):
        assert len(fold.anchors_x) == N_ANCHORS - held
        assert fold.a is not None
        assert len(fold.a) == len(fold.pool_x) == N_POOL + held
        assert (fold.a == 0.5).all()
        assert fold.b is None
        for x, y in zip(fold.pool_x[-held:], fold.pool_y[-held:], strict=True):
            row = int(np.flatnonzero((data.anchors_x == x).all(axis=1))[0])
            assert (data.anchors_y[row] == y).all()
            seen.append(row)
    assert sorted(seen) == list(range(N_ANCHORS))


def test_few_anchors_are_not_held_out() -> None:
    data = views(noise=0.05)
    few = data._replace(anchors_x=data.anchors_x[:19], anchors_y=data.anchors_y[:19])
    found = pool_matches.find_matches(few, CONFIG, CHOSEN)
    assert found.calibration is None
    assert found.precision is None
    assert pool_matches.expected_precisions(found, (5,)) == {}
