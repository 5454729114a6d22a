"""Soft-matched CCA as a method: on real embeddings, and how it is chosen."""

import dataclasses

import jax
import numpy as np
import pytest

from anchordot_jax import load_openclipart, protocol_split
from anchordot_jax.baselines.anchordot import choose_refined
from anchordot_jax.baselines.closed_form.soft_cca import (
    METHODS,
    choose_soft_cca,
    fit_soft_cca,
)
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.comparison.cell import score
from anchordot_jax.comparison.problem import make_problem, shuffle_anchors
from anchordot_jax.config import Config, SoftCcaConfig
from anchordot_jax.evaluation.retrieval import recall_at_k

KEY = jax.random.key(0)
PLAIN = {"balance": 1.0, "power": 1.0, "balance_ratio": 1.0, "final_power": 1.0}
GIVEN = SoftCcaConfig(ridge=8.0, ridge_ratio=0.06, sharpness=6.0, **PLAIN)


def mean_recall(problem, settings=GIVEN):
    """Return the mean of the six recalls, in %."""
    model = fit_soft_cca(problem.anchors, problem.pools, settings=settings, key=KEY)
    found = score(model, problem).values()
    return 100 * np.mean([recall_at_k(way, k) for way in found for k in (1, 5, 10)])


def test_clip_art_is_found_and_shuffled_anchors_are_at_chance():
    """300 pairs of real embeddings; without their pairing nothing is learned."""
    art = load_openclipart()
    split = protocol_split(len(art.image), seed=3, anchors=300, test=400)
    split = split._replace(pool_x=split.pool_x[:400], pool_y=split.pool_y[:400])
    problem = make_problem(art.image, art.text, split)
    chance = 100 * np.mean([1, 5, 10]) / 400
    assert mean_recall(problem) > 18
    assert mean_recall(shuffle_anchors(problem, seed=3)) < chance + 1.5


def test_both_methods_choose_the_same_way():
    """What is auto is chosen, what is given stays; the choice is that of the fit."""
    rng = np.random.default_rng(1)
    latent = rng.normal(size=(60, 3))
    x, y = (
        np.float32(latent @ rng.normal(size=(3, d)) + 0.2 * rng.normal(size=(60, d)))
        for d in (6, 5)
    )
    anchors, pools = Anchors(x[:20], y[:20]), Pools(x[20:40], y[40:])
    few = SoftCcaConfig(ridge=(0.5, 8.0), ridge_ratio=(0.2,), sharpness=2.0, **PLAIN)
    chosen, n_heldout = choose_soft_cca(anchors, pools, settings=few, key=KEY)
    assert n_heldout == 20
    assert (chosen.ridge_ratio, chosen.sharpness) == (0.2, 2.0)
    assert chosen == dataclasses.replace(few, ridge=chosen.ridge, ridge_ratio=0.2)
    model = fit_soft_cca(anchors, pools, settings=few, key=KEY)
    assert {name: model.info[name] for name in METHODS[0].tuned} == {
        "ridge": chosen.ridge,
        "ridge_ratio": 0.2,
        "sharpness": 2.0,
        **PLAIN,
    }
    given = fit_soft_cca(anchors, pools, settings=chosen, key=KEY)
    np.testing.assert_array_equal(given.scores(x, y).x2y, model.scores(x, y).x2y)

    config, n_heldout = choose_refined(
        anchors, pools, settings=Config(recipe="refined", soft_cca=few), key=KEY
    )
    assert n_heldout == 20
    assert (config.recipe, config.soft_cca.sharpness) == ("refined", 2.0)
    assert isinstance(config.soft_cca.ridge, float)


@pytest.mark.slow
@pytest.mark.realdata
def test_molecules_reach_the_prototypes_level(real_data):
    """500 pairs of chebi20: 52.7 by an independent prototype's five seeds."""
    from anchordot_jax import open_embeddings

    x = open_embeddings(real_data / "chebi20.h5::molecule").read()
    y = open_embeddings(real_data / "chebi20.h5::text").read()
    split = protocol_split(len(x), seed=0, anchors=500, test=400)
    settings = SoftCcaConfig(ridge=2.0, ridge_ratio=0.06, sharpness=6.0, **PLAIN)
    assert mean_recall(make_problem(x, y, split), settings) > 50
