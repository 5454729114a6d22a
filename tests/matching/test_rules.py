"""The registry of matching rules: directions, settings, hubs, imports."""

import numpy as np
import pytest

import planted
import reference
from anchordot_jax.errors import InputError
from anchordot_jax.evaluation.hubness import k_occurrence, skewness
from anchordot_jax.matching import csls as local_scaling
from anchordot_jax.matching import query_bank
from anchordot_jax.matching.rules import (
    RULES,
    RuleSettings,
    Within,
    epsilon_of,
    find_rule,
)
from anchordot_jax.matching.sinkhorn import sinkhorn

SCORES = np.array([[0.9, 0.8, 0.1], [0.7, 0.6, 0.2], [0.3, 0.65, 0.4]], np.float32)
WIDE = np.random.default_rng(0).uniform(-1, 1, (9, 7)).astype(np.float32)
DEFAULT = RuleSettings()


def within_of(similarity, seed=0):
    """Return some similarities within each side."""
    q, m = np.shape(similarity)
    x, y = reference.unit_rows(q, 4, seed), reference.unit_rows(m, 4, seed + 1)
    return Within(x @ x.T, y @ y.T)


def apply(name, similarity, settings=DEFAULT):
    return RULES[name](similarity, settings, within_of(similarity))


def occurrences(scores, k):
    nearest = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return k_occurrence(nearest, scores.shape[1])


@pytest.mark.parametrize("name", RULES)
def test_both_directions_are_finite_scores_of_all_pairs(name):
    """Every rule scores [q, m] and [m, q], float32 and finite, and is found."""
    found = apply(name, WIDE)
    assert (found.x2y.shape, found.y2x.shape) == ((9, 7), (7, 9))
    assert found.x2y.dtype == found.y2x.dtype == np.float32
    assert np.isfinite(found.x2y).all()
    assert np.isfinite(found.y2x).all()
    assert find_rule(name) is RULES[name]


@pytest.mark.parametrize("name", RULES)
def test_exchanging_the_sides_exchanges_the_directions(name):
    """The rule of S transposed gives the same two matrices in the other order."""
    # Square for the one rule that is compiled anew for every shape.
    s = WIDE[:3, :3] if name == "sinkhorn" else WIDE
    within, exact = within_of(s), RuleSettings(beta=5.0, tolerance=1e-6)
    found = RULES[name](s, exact, within)
    swapped = RULES[name](s.T, exact, Within(within.y, within.x))
    np.testing.assert_allclose(swapped.x2y, found.y2x, atol=5e-5)
    np.testing.assert_allclose(swapped.y2x, found.x2y, atol=5e-5)


@pytest.mark.parametrize("name", ["nearest", "csls", "sinkhorn"])
def test_one_matrix_serves_both_directions(name):
    """These rules read rows and columns of one matrix."""
    found = apply(name, WIDE)
    np.testing.assert_array_equal(found.y2x, found.x2y.T)


@pytest.mark.parametrize("name", ["inverted-softmax", "qb-norm", "dual-bank"])
def test_directions_have_their_own_matrix(name):
    """These rules normalise over the queries, which differ between directions."""
    found = apply(name, WIDE)
    assert np.abs(found.y2x - found.x2y.T).max() > 0.1


def test_hand_values():
    """The worked 3 x 3 example, rule by rule; beta = 1/epsilon = 10."""
    ten = RuleSettings(beta=10.0, csls_k=1, tolerance=1e-6)
    best = {name: np.argmax(apply(name, SCORES, ten).x2y, axis=1) for name in RULES}
    np.testing.assert_array_equal(best["nearest"], [0, 0, 1])
    np.testing.assert_array_equal(best["inverted-softmax"], [0, 0, 2])
    inverted = np.exp(apply("inverted-softmax", SCORES, ten).x2y[0])
    np.testing.assert_allclose(inverted, [0.878878, 0.736125, 0.042010], atol=2e-6)
    scaled = apply("csls", SCORES, ten).x2y[0]
    np.testing.assert_allclose(scaled, [0.0, -0.1, -1.1], atol=1e-6)
    plan = np.exp(apply("sinkhorn", SCORES, ten).x2y)
    np.testing.assert_allclose(plan[0], [0.186545, 0.141878, 0.004910], atol=2e-6)
    np.testing.assert_allclose(plan[2], [0.001179, 0.080712, 0.251443], atol=2e-6)


def test_hand_counts():
    """N_1 and N_2 of the worked example, as nearest neighbours."""
    scores = apply("nearest", SCORES).x2y
    np.testing.assert_array_equal(occurrences(scores, 1), [2, 1, 0])
    np.testing.assert_array_equal(occurrences(scores, 2), [2, 3, 1])


def test_every_setting_reaches_its_rule():
    """The rules are the functions of their own modules at the given settings."""
    own = RuleSettings(
        beta=7.0, csls_k=2, qb_beta=5.0, query_bank_beta=2.0, gallery_bank_beta=4.0
    )
    within = within_of(WIDE)
    expected = {
        "inverted-softmax": query_bank.inverted_softmax(WIDE, 7.0),
        "csls": local_scaling.csls(WIDE, 2),
        "qb-norm": query_bank.qb_norm(WIDE, beta=5.0),
        "dual-bank": query_bank.dual_bank(
            WIDE, gallery_bank=within.y, query_beta=2.0, gallery_beta=4.0
        ),
        "sinkhorn": sinkhorn(WIDE, 1 / 7),
    }
    for name, scores in expected.items():
        found = RULES[name](WIDE, own, within).x2y
        np.testing.assert_allclose(found, scores, atol=1e-6, err_msg=name)


def test_the_solver_gets_its_settings(monkeypatch):
    """Sinkhorn is solved with the rule's epsilon, tolerance and iterations."""
    seen = []

    def spy(similarity, epsilon, *, config):
        seen.append((epsilon, config.tolerance, config.max_iterations))
        return np.asarray(similarity)

    monkeypatch.setattr("anchordot_jax.matching.sinkhorn.sinkhorn", spy)
    apply("sinkhorn", SCORES, RuleSettings(beta=4.0, tolerance=0.3, max_iterations=7))
    assert seen == [(0.25, 0.3, 7)]


def test_epsilon_is_a_share_of_the_median_cost():
    """Eta * median(1 - S), the median of SCORES being 0.4; beta goes before it."""
    assert epsilon_of(SCORES, RuleSettings(eta=0.1)) == pytest.approx(0.04, rel=1e-6)
    assert epsilon_of(SCORES, RuleSettings(eta=0.1, beta=4.0)) == 0.25
    by_eta = apply("inverted-softmax", SCORES, RuleSettings(eta=0.1)).x2y
    by_beta = apply("inverted-softmax", SCORES, RuleSettings(beta=25.0)).x2y
    np.testing.assert_allclose(by_eta, by_beta, atol=1e-4)


def test_hubs_are_corrected():
    """With planted hubs the skewness falls from nearest by CSLS and IS to Sinkhorn."""
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(80, 12))
    x = latent + 0.5 * rng.normal(size=latent.shape) + 1.0
    y = latent + 0.5 * rng.normal(size=latent.shape)
    y[:8] += 0.7
    s = reference.unit(x) @ reference.unit(y).T
    skew = {
        name: skewness(occurrences(apply(name, s, RuleSettings(eta=0.1)).x2y, 5))
        for name in ("nearest", "inverted-softmax", "csls", "sinkhorn")
    }
    assert skew["nearest"] > 2
    assert skew["csls"] < 0.8 * skew["nearest"]
    assert skew["inverted-softmax"] < 0.5 * skew["csls"]
    assert abs(skew["sinkhorn"]) < 0.6 * skew["inverted-softmax"]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (1, 1), (3, 3)])
def test_small_sizes(name, shape):
    """One query, one gallery item, and fewer items than neighbours all score."""
    s = WIDE[: shape[0], : shape[1]]
    found = apply(name, s)
    assert found.x2y.shape == shape
    assert found.y2x.shape == shape[::-1]
    assert np.isfinite(found.x2y).all()
    assert np.isfinite(found.y2x).all()


def test_dual_bank_asks_for_its_gallery_banks():
    """Without similarities within the sides it is refused with a way out."""
    with pytest.raises(InputError, match="dual-bank needs the similarities within"):
        RULES["dual-bank"](SCORES, DEFAULT)


def test_unknown_rules_are_refused():
    """The error lists the rules there are."""
    with pytest.raises(InputError, match=r"no matching rule 'csl'; known are: nearest"):
        find_rule("csl")


@pytest.mark.parametrize("name", ["inverted-softmax", "sinkhorn"])
def test_a_median_cost_of_zero_gives_no_epsilon(name):
    """Items that all agree leave nothing to take a share of."""
    with pytest.raises(InputError, match="median of 1 - similarity is 0"):
        apply(name, np.ones((3, 3)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eta": 0.0}, "eta must be a number"),
        ({"beta": 0.0}, "beta must be a finite number > 0"),
        ({"tolerance": 0.0}, "tolerance must be between 0 and 2"),
        ({"max_iterations": 0}, "max_iterations must be a whole number"),
        ({"csls_k": 0}, "csls_k must be a whole number >= 1"),
        ({"qb_k": 0}, "qb_k must be a whole number >= 1"),
        ({"qb_beta": -1.0}, "qb_beta must be a finite number > 0"),
        ({"query_bank_beta": 0.0}, "query_bank_beta must be a finite number > 0"),
        ({"gallery_bank_beta": float("nan")}, "gallery_bank_beta must be a finite"),
    ],
)
def test_settings_are_checked(change, message):
    """A value out of range is refused when the settings are made."""
    with pytest.raises(InputError, match=message):
        RuleSettings(**change)


def test_the_rules_load_without_the_solver():
    """Only the use of `sinkhorn` imports OTT, and the package itself no rules."""
    code = (
        "import sys, anchordot_jax.matching as m\n"
        "assert 'anchordot_jax.matching.rules' not in sys.modules\n"
        "from anchordot_jax.matching import rules\n"
        "print('ott' in sys.modules, len(rules.RULES))"
    )
    done = planted.python("-c", code)
    assert done.stdout.split() == ["False", "6"], done.stderr
