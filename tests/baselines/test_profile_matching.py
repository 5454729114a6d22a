"""Profiles with a matching rule: exact cosines, rules, folders, and bad input."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import planted
import reference
from anchordot_jax import AlignedModel, open_embeddings, profiles, protocol_split
from anchordot_jax.baselines import tuning
from anchordot_jax.baselines.closed_form import profile_matching
from anchordot_jax.baselines.closed_form.profile_matching import (
    ProfileRuleSettings,
    ProfileSettings,
    fit_profile,
    fit_profile_rule,
    profile_maps,
)
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.baselines.scorers import RuleScorer, load_scorer
from anchordot_jax.errors import InputError
from anchordot_jax.evaluation.score_matrix import evaluate_scores
from anchordot_jax.matching import rules

KEY = jax.random.key(0)
METHODS = {method.name: method for method in profile_matching.METHODS}
RULE_NAMES = [name for name in rules.RULES if name != "nearest"]


def problem(n_anchors=12, dim_x=6, dim_y=5, test=9):
    """Return anchors, empty pools and test rows of two views of one latent space."""
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(n_anchors + test, 4))
    x = reference.unit(latent @ rng.normal(size=(4, dim_x)) + 0.3).astype(np.float32)
    y = reference.unit(latent @ rng.normal(size=(4, dim_y)) - 0.2).astype(np.float32)
    x = reference.unit(x + 0.1 * rng.normal(size=x.shape)).astype(np.float32)
    y = reference.unit(y + 0.1 * rng.normal(size=y.shape)).astype(np.float32)
    anchors = Anchors(x[:n_anchors], y[:n_anchors])
    return anchors, Pools(x[:0], y[:0]), x[n_anchors:], y[n_anchors:]


def fit(name, **changes):
    """Return the scorer of the default problem."""
    anchors, pools, _, _ = problem()
    chosen = dataclasses.replace(METHODS[name].settings, **changes)
    return METHODS[name].fit(anchors, pools, settings=chosen, key=KEY)


@pytest.mark.parametrize("gamma", [0.0, 0.75, 1.0])
@pytest.mark.parametrize(
    ("n_anchors", "dim_x", "dim_y"), [(12, 6, 5), (12, 5, 6), (7, 9, 5), (4, 6, 5)]
)
def test_inner_products_are_profile_cosines(gamma, n_anchors, dim_x, dim_y):
    """Exactly the N-dimensional cosines, whichever side has the larger rank."""
    anchors, pools, x, y = problem(n_anchors, dim_x, dim_y)
    settings = ProfileSettings(gamma=gamma)
    model = fit_profile(anchors, pools, settings=settings, key=KEY)
    found = model.scores(x, y)
    expected = reference.profile_cosine(x, anchors.x, y, anchors.y, gamma)
    np.testing.assert_allclose(found.x2y, expected, atol=5e-6)
    np.testing.assert_array_equal(found.y2x, found.x2y.T)
    assert np.ptp(expected) > 0.5


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(("dim_x", "dim_y"), [(6, 5), (5, 6)])
def test_maps_are_the_coordinates(center, dim_x, dim_y):
    """The linear maps have the inner products of `profiles.coordinates`, centred too.

    The side that the bridge is not multiplied into keeps its norms there; here both
    sides share the overlaps, so only products across the sides are the same.
    """
    anchors, _, x, y = problem(12, dim_x, dim_y)
    bases = [profiles.fit_basis(side, center=center) for side in anchors]
    maps = profiles.coordinate_maps(*bases, 0.75)
    z_x, z_y = profiles.coordinates(x, y, maps)
    model = AlignedModel(params=profile_maps(maps), info={"map": {"kind": "linear"}})
    expected = np.asarray(z_x) @ np.asarray(z_y).T
    np.testing.assert_allclose(model.scores(x, y).x2y, expected, atol=3e-6)
    assert (model.dim_x, model.dim_y, model.dim) == (dim_x, dim_y, 6)


def test_the_shared_coordinates_are_weighted_by_the_overlaps():
    """Both sides carry the root of the bridge's singular values, then zeros."""
    anchors, _, _, _ = problem()
    bases = [profiles.fit_basis(side) for side in anchors]
    params = profile_maps(profiles.coordinate_maps(*bases, 0.75))
    overlaps = np.linalg.svd(bases[0].left.T @ bases[1].left, compute_uv=False)
    for side in ("x", "y"):
        weights = params[side]["weights"]
        np.testing.assert_allclose(weights[:5] ** 2, overlaps, atol=1e-6)
        np.testing.assert_array_equal(weights[5:], [0.0])


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_scores_are_the_rule_on_the_profile_cosines(rule):
    """Each method is its rule, with its settings, on the nearest method's scores."""
    changes = {"eta": 0.3, "csls_k": 2, "qb_beta": 5.0, "gallery_bank_beta": 2.0}
    anchors, _, x, y = problem()
    scorer = fit(f"profile-{rule}", gamma=0.5, **changes)
    model = fit("profile-nearest", gamma=0.5)
    embedded = [reference.unit(model.embed_x(x)), reference.unit(model.embed_y(y))]
    within = rules.Within(*(side @ side.T for side in embedded))
    cosines = reference.profile_cosine(x, anchors.x, y, anchors.y, 0.5)
    found = scorer.scores(x, y)
    expected = rules.RULES[rule](cosines, rules.RuleSettings(**changes), within)
    np.testing.assert_allclose(found.x2y, expected.x2y, atol=2e-3, rtol=1e-3)
    np.testing.assert_allclose(found.y2x, expected.y2x, atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("name", METHODS)
def test_methods_say_what_they_are(name):
    """Names, needs, the grid of gamma, and facts that are JSON."""
    method = METHODS[name]
    assert method.needs.transductive == (name != "profile-nearest")
    assert not method.needs.pools
    if name == "profile-nearest":
        assert method.grid == {"gamma": (0.75, 0.0, 0.25, 0.5, 1.0)}
    else:
        assert method.tuned == ("gamma",)
    assert method.settings.gamma == 0.75
    info = json.loads(json.dumps(dict(fit(name, gamma=0.25).info)))
    assert info["method"] == name
    assert info["settings"]["gamma"] == info["gamma"] == 0.25
    assert info.get("rule", "nearest") == name.removeprefix("profile-")


def test_all_rules_take_the_gamma_of_nearest_neighbours():
    """One cost for all rules: the gamma that `tuning` chooses for the first method."""
    anchors, pools, _, _ = problem()
    nearest = METHODS["profile-nearest"]
    expected = tuning.choose(
        nearest, anchors, pools, settings=nearest.settings, key=KEY
    )
    rule = METHODS["profile-csls"]
    settings = dataclasses.replace(rule.settings, csls_k=3)
    chosen, n_heldout = rule.choose(anchors, pools, settings=settings, key=KEY)
    assert chosen.gamma == expected.settings.gamma
    assert chosen.csls_k == 3
    assert n_heldout == expected.n_heldout > 0


@pytest.mark.parametrize("name", ["profile-nearest"])
def test_candidates_share_one_factorisation(name, monkeypatch):
    """All candidates of the grid are those fitted one by one; two SVDs of anchors."""
    anchors, pools, x, y = problem()
    method = METHODS[name]
    candidates = method.candidates(method.settings)
    alone = [
        method.fit(anchors, pools, settings=settings, key=KEY).scores(x, y).x2y
        for settings in candidates
    ]
    calls, original = [], profiles.fit_basis

    def spy(rows):
        calls.append(len(rows))
        return original(rows)

    monkeypatch.setattr(profiles, "fit_basis", spy)
    many = list(method.fit_candidates(anchors, pools, candidates, key=KEY))
    assert len(calls) == 2
    for scorer, expected in zip(many, alone, strict=True):
        np.testing.assert_array_equal(scorer.scores(x, y).x2y, expected)
    assert [scorer.info["gamma"] for scorer in many] == [0.75, 0.0, 0.25, 0.5, 1.0]


@pytest.mark.parametrize("rule", ["csls", "inverted-softmax"])
def test_a_saved_scorer_scores_alike(rule, tmp_path):
    """The folder is the model's, with the rule and its settings in config.json."""
    _, _, x, y = problem()
    scorer = fit(f"profile-{rule}", eta=0.1, csls_k=3)
    scorer.save(tmp_path / "scorer")
    loaded = load_scorer(tmp_path / "scorer")
    assert isinstance(loaded, RuleScorer)
    assert loaded.rule == rule
    assert dict(loaded.info) == dict(scorer.info)
    assert "rule" not in loaded.model.info
    np.testing.assert_array_equal(loaded.scores(x, y).x2y, scorer.scores(x, y).x2y)
    config = json.loads((tmp_path / "scorer" / "config.json").read_text())
    assert (config["rule"], config["rule_settings"]["csls_k"]) == (rule, 3)
    loaded.save(tmp_path / "again")
    assert planted.tree(tmp_path / "again") == planted.tree(tmp_path / "scorer")


def test_a_model_without_a_rule_loads_as_itself(tmp_path):
    """A folder without a rule is an ordinary model."""
    model = fit("profile-nearest")
    model.save(tmp_path / "model")
    loaded = load_scorer(tmp_path / "model")
    assert isinstance(loaded, AlignedModel)
    assert planted.same_model(loaded, model)


def test_a_damaged_rule_is_refused(tmp_path):
    """A rule or a setting that this version does not know is named."""
    fit("profile-csls").save(tmp_path / "scorer")
    path = tmp_path / "scorer" / "config.json"
    config = json.loads(path.read_text())
    del config["sha256"]  # As another program might write it.
    path.write_text(json.dumps(config | {"rule": "csl"}))
    with pytest.raises(InputError, match="no matching rule 'csl'"):
        load_scorer(tmp_path / "scorer")
    path.write_text(json.dumps(config | {"rule_settings": {"k": 3}}))
    with pytest.raises(InputError, match="No matching rule has a setting 'k'"):
        load_scorer(tmp_path / "scorer")


def test_loading_needs_no_solver(tmp_path):
    """A scorer is loaded and used without importing OTT, unless its rule is it."""
    fit("profile-csls").save(tmp_path / "scorer")
    code = (
        "import sys, numpy as np\n"
        "from anchordot_jax.baselines.scorers import load_scorer\n"
        f"scorer = load_scorer({str(tmp_path / 'scorer')!r})\n"
        "scorer.scores(np.eye(6), np.eye(5))\n"
        "print(scorer.rule, 'ott' in sys.modules)"
    )
    done = planted.python("-c", code)
    assert done.stdout.split() == ["csls", "False"], done.stderr


def test_settings_are_checked():
    """Gamma, the rules' settings and the rule's name."""
    anchors, pools, _, _ = problem()
    for settings in (ProfileSettings, ProfileRuleSettings):
        with pytest.raises(InputError, match="gamma must be a number in"):
            settings(gamma=-1.0)
    with pytest.raises(InputError, match="csls_k must be a whole number >= 1"):
        ProfileRuleSettings(csls_k=0)
    with pytest.raises(InputError, match="no matching rule 'nearst'"):
        fit_profile_rule(
            anchors, pools, settings=ProfileRuleSettings(), key=KEY, rule="nearst"
        )


@pytest.mark.realdata
def test_sinkhorn_on_the_profile_cost_of_real_data(real_data):
    """ChEBI-20 at gamma 1: transport between the test items triples recall@1."""
    sides = [
        reference.unit(open_embeddings(f"{real_data / 'chebi20.h5'}::{name}").read())
        for name in ("molecule", "text")
    ]
    x, y = (side.astype(np.float32) for side in sides)
    split = protocol_split(len(x), seed=0, anchors=500, test=400)
    anchors = Anchors(x[split.anchors[:, 0]], y[split.anchors[:, 1]])
    test = (x[split.test_pairs[:, 0]], y[split.test_pairs[:, 1]])
    results = {}
    for name in ("profile-nearest", "profile-sinkhorn"):
        chosen = dataclasses.replace(METHODS[name].settings, gamma=1.0)
        pools = Pools(x[:0], y[:0])
        scorer = METHODS[name].fit(anchors, pools, settings=chosen, key=KEY)
        own = np.arange(400)
        results[name] = evaluate_scores(*scorer.scores(*test), own, own)
    assert 0.08 < results["profile-nearest"]["x2y/recall@1"] < 0.15
    assert 0.14 < results["profile-nearest"]["y2x/recall@1"] < 0.23
    for way in ("x2y", "y2x"):
        assert 0.28 < results["profile-sinkhorn"][f"{way}/recall@1"] < 0.38
        assert results["profile-sinkhorn"][f"{way}/hubness_skewness@10"] < 0.5
