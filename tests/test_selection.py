"""Selection of gamma and eta: ranks by a full plan, draws, choices, warm starts."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from anchordot_jax import coupling, geometry, profiles, selection, selection_curve
from anchordot_jax.config import Config, SelectionConfig
from anchordot_jax.selection import heldout_ranks, select

DIM_X, DIM_Y, LATENT = 12, 10, 6
GRID = SelectionConfig(gammas=(0.0, 0.75), etas=(0.05, 10.0), min_heldout=6)
CONFIG = Config(recipe="paper", selection=GRID)


def two_views(n, seed, *, noise=0.02):
    """Return n pairs of rows that see common latent rows through two linear maps."""
    maps = np.random.default_rng(99)
    view_x = maps.normal(size=(LATENT, DIM_X))
    view_y = maps.normal(size=(LATENT, DIM_Y))
    random = np.random.default_rng(seed)
    # Unequal spread: some latent directions matter far more than others.
    latent = random.normal(size=(n, LATENT)) * [3, 2, 1, 1, 0.5, 0.5]
    x = latent @ view_x + noise * random.normal(size=(n, DIM_X))
    y = latent @ view_y + noise * random.normal(size=(n, DIM_Y))
    return jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)


def problem(n_anchors=30, n=40, m=30):
    """Return anchors, and pools that were drawn independently of each other."""
    x, _ = two_views(n, 1)
    _, y = two_views(m, 2)
    return (*two_views(n_anchors, 0), x, y)


@functools.cache
def selected():
    return select(*problem(), CONFIG, key=jax.random.key(3))


def solved_pools(n_heldout=5):
    """Return coordinates whose last rows are pairs, and the coupling between them."""
    x, y = reference.unit_rows(30, 4, 0), reference.unit_rows(20, 4, 1)
    y[-n_heldout:] = reference.unit(x[-n_heldout:] + 0.5 * y[-n_heldout:])
    return x, y, coupling.solve_coupling(x, y, 0.05)


def test_ranks_are_those_of_the_whole_plan():
    """Ranks in rows and columns equal those by the full plan in float64."""
    x, y, solved = solved_pools()
    found = np.asarray(heldout_ranks(x, y, solved, n_heldout=5))
    plan = reference.plan(reference.cost(x, y), solved.f, solved.g, 0.05)
    rows = [reference.rank(plan[25 + k], 15 + k) for k in range(5)]
    columns = [reference.rank(plan[:, 15 + k], 25 + k) for k in range(5)]
    np.testing.assert_array_equal(found, rows + columns)
    assert max(rows + columns) > 1


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([0.1, 1.0, 40.0]))
def test_ranks_see_both_potentials(seed, scale):
    """For any potentials, even where the plan underflows, the order is the plan's."""
    x, y, solved = solved_pools()
    random = np.random.default_rng(seed)
    f = (scale * random.normal(size=30)).astype(np.float32)
    g = (scale * random.normal(size=20)).astype(np.float32)
    found = heldout_ranks(x, y, solved._replace(f=f, g=g), n_heldout=5)
    log_plan = f.astype(np.float64)[:, None] + g - reference.cost(x, y)
    rows = [reference.rank(log_plan[25 + k], 15 + k) for k in range(5)]
    columns = [reference.rank(log_plan[:, 15 + k], 25 + k) for k in range(5)]
    np.testing.assert_array_equal(found, rows + columns)


def test_ties_count_half():
    """A match that equals two others ranks 2, one that equals all of five ranks 3."""
    x = jnp.ones((1, 1))
    y = jnp.asarray([[0.5], [0.9], [0.5], [0.1], [0.5]])
    solved = coupling.Coupling(*(jnp.zeros(1),), jnp.zeros(5), *([jnp.ones(())] * 5))
    ranks = heldout_ranks(x, y, solved, n_heldout=1)
    # Row: 0.9 is above, two others are equal. Column: one item only.
    np.testing.assert_array_equal(ranks, [1 + 1 + 2 / 2, 1])
    ranks = heldout_ranks(x, jnp.ones((5, 1)), solved, n_heldout=1)
    np.testing.assert_array_equal(ranks, [3, 1])


def test_the_paper_rule_takes_the_smallest_mean_rank():
    """With rule="paper" the choice is the curve's minimum, and the coarse eta loses."""
    grid = dataclasses.replace(GRID, rule="paper")
    config = dataclasses.replace(CONFIG, selection=grid)
    found = select(*problem(), config, key=jax.random.key(3))
    best = min(found.curve, key=lambda candidate: candidate.mean_rank)
    assert (found.gamma, found.eta) == (best.gamma, best.eta)
    assert found.curve == selected().curve
    assert best.mean_rank < 3
    worst = max(candidate.mean_rank for candidate in found.curve)
    assert worst > best.mean_rank + 1


def test_the_default_rule_needs_evidence():
    """The choice is within a standard error of the best, and near the usual one."""
    found = selected()
    least = min(candidate.log_rank for candidate in found.curve)
    tied = [c for c in found.curve if c.log_rank - least <= c.standard_error]
    assert (found.gamma, found.eta) in {(c.gamma, c.eta) for c in tied}
    assert found.eta == 0.05
    assert str(found.n_heldout) in found.reason


def candidate(gamma, eta, log_rank, standard_error, mean_rank=1.0):
    return selection_curve.Candidate(
        gamma, eta, mean_rank, log_rank, standard_error, 0.0, 0.0, 0.01, 10, True
    )


@pytest.mark.parametrize(
    ("rule", "curve", "chosen"),
    [
        # The best is 0.05 ahead of the usual choice, which is its standard error.
        (
            "one_standard_error",
            [candidate(0.5, 0.02, 3.0, 0.0), candidate(0.75, 0.02, 3.05, 0.051)],
            (0.75, 0.02),
        ),
        # By more than a standard error, the best replaces it.
        (
            "one_standard_error",
            [candidate(0.5, 0.02, 3.0, 0.0), candidate(0.75, 0.02, 3.05, 0.049)],
            (0.5, 0.02),
        ),
        # Of tied ones the nearest: one doubling of eta, or two quarters of gamma.
        (
            "one_standard_error",
            [
                candidate(0.25, 0.02, 3.0, 0.0),
                candidate(0.75, 0.04, 3.01, 0.1),
                candidate(0.75, 0.02, 4.0, 0.1),
            ],
            (0.75, 0.04),
        ),
        (
            "paper",
            [candidate(0.5, 0.02, 3.0, 0.0, 7.0), candidate(1.0, 0.1, 9.0, 0.1, 6.9)],
            (1.0, 0.1),
        ),
    ],
)
def test_rules_by_hand(rule, curve, chosen):
    """Which candidate each rule picks from a small curve."""
    config = Config(recipe="paper", selection=SelectionConfig(rule=rule))
    found = selection_curve.choose(tuple(curve), config)
    assert (found.gamma, found.eta) == chosen


def test_rho_rules_by_hand():
    """No rho, or the largest, that is within a standard error; or the paper's rule."""

    def choose_rho(curve, config):
        return selection_curve.choose(
            curve, config, lambda point: selection_curve.softness(point.rho)
        )

    curve = [
        candidate(0.75, 0.02, 3.2, 0.15, 9.0),
        candidate(0.75, 0.02, 3.1, 0.12, 8.0)._replace(rho=1.0),
        candidate(0.75, 0.02, 3.0, 0.0, 8.5)._replace(rho=0.3),
    ]
    assert choose_rho(tuple(curve), Config(recipe="paper")).rho == 1.0
    curve[0] = curve[0]._replace(standard_error=0.21)
    assert choose_rho(tuple(curve), Config(recipe="paper")).rho is None
    curve[2] = curve[2]._replace(mean_rank=7.5)
    config = Config(recipe="paper", selection=SelectionConfig(rule="paper"))
    assert choose_rho(tuple(curve), config).rho == 0.3


RHO_ALONE = Config(
    recipe="paper",
    gamma=0.75,
    eta=0.05,
    rho="auto",
    selection=dataclasses.replace(GRID, min_heldout=30),
)


def test_pools_of_the_same_items_need_no_rho():
    """Every item has its match, so that keeping to the marginals is right."""
    x, y = two_views(40, 1)
    found = select(*two_views(30, 0), x, y[::-1], RHO_ALONE, key=jax.random.key(0))
    assert found.rho is None
    assert (found.gamma, found.eta, found.n_heldout) == (0.75, 0.05, 30)
    assert "No rho was clearly better" in found.reason
    assert [c.rho for c in found.curve] == [None, 1.0, 0.3, 0.1]
    assert all(candidate.converged for candidate in found.curve)
    ranks = [candidate.log_rank for candidate in found.curve]
    assert ranks[0] < 0.05 < ranks[-1]


def test_pools_of_other_items_gain_by_a_rho():
    """40 items and 30 others have marginals that do not fit; the ranks show it."""
    told = []
    found = select(
        *problem(), RHO_ALONE, key=jax.random.key(0), progress=lambda *p: told.append(p)
    )
    assert found.rho == 0.3
    assert found.reason == "Chosen by the ranks of 30 held-out anchors."
    assert told == [(i, 40) for i in range(1, 41)]
    alone = dataclasses.replace(RHO_ALONE, rho=None, eta="auto", gamma=0.75)
    balanced = select(*problem(), alone, key=jax.random.key(0)).curve[0]
    assert found.curve[0].log_rank == balanced.log_rank
    assert found.curve[2].log_rank < balanced.log_rank - 0.05


def test_a_rho_given_is_that_of_every_candidate():
    """The other settings are then chosen with it; alone there is nothing to choose."""
    told = []
    config = dataclasses.replace(CONFIG, rho=0.3, eta=0.05)
    found = select(
        *problem(), config, key=jax.random.key(3), progress=lambda *p: told.append(p)
    )
    assert found.rho == 0.3
    assert {c.rho for c in found.curve} == {0.3}
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    given = select(
        *problem(), Config(recipe="paper", gamma=1, eta=1, rho=2), key=jax.random.key(3)
    )
    assert (given.rho, given.curve) == (2.0, ())
    few = select(
        *problem(n_anchors=9), Config(recipe="paper", rho="auto"), key=jax.random.key(3)
    )
    assert few.rho is None


def test_standard_error_is_that_of_paired_anchors():
    """Two directions of an anchor are averaged before the error is taken."""
    ranks = {
        (0.5, 0.02, None): [np.array([1.0, 2.0, 4.0, 8.0])],
        (0.75, 0.02, None): [np.array([2.0, 2.0, 4.0, 32.0])],
    }
    _, _, solved = solved_pools()
    best, other = selection_curve.make_curve(
        ranks, {point: [solved] for point in ranks}
    )
    logs = np.log([[1, 2, 4, 8], [2, 2, 4, 32]]).reshape(2, 2, 2).mean(axis=1)
    difference = logs[1] - logs[0]
    assert best.standard_error == 0
    assert best.log_rank == pytest.approx(logs[0].mean())
    expected = difference.std(ddof=1) / np.sqrt(2)
    assert other.standard_error == pytest.approx(expected)
    assert other.log_rank - best.log_rank == pytest.approx(difference.mean())
    assert (best.mean_rank, best.recall_at_1) == (15 / 4, 1 / 4)


def test_a_candidate_without_ranks_never_wins():
    """Scores that are NaN rank last."""
    ranks = selection._ranks_of_last(jnp.full((2, 5), jnp.nan))
    assert (np.asarray(ranks) >= 5).all()


def test_curve_holds_every_candidate():
    """Every (gamma, eta) is kept with its evidence, in the order of the grid."""
    found = selected()
    pairs = [(candidate.gamma, candidate.eta) for candidate in found.curve]
    assert pairs == [(0.0, 0.05), (0.0, 10.0), (0.75, 0.05), (0.75, 10.0)]
    for candidate in found.curve:
        assert 1 <= candidate.mean_rank <= 43
        assert 0 <= candidate.recall_at_1 <= candidate.recall_at_10 <= 1
        assert candidate.epsilon > 0
        assert candidate.n_iterations >= 20
        assert candidate.converged
    assert found.n_heldout == 6


def test_planted_gamma_is_found():
    """Of a right and a hopeless gamma and eta, the right ones are chosen."""
    # Noise in many weak directions: whitening to the square drowns the signal.
    anchors_x, anchors_y = two_views(30, 0, noise=0.3)
    (x, _), (_, y) = two_views(40, 1, noise=0.3), two_views(30, 2, noise=0.3)
    grid = SelectionConfig(gammas=(2.0, 0.5), etas=(10.0, 0.05), min_heldout=6)
    found = select(
        anchors_x,
        anchors_y,
        x,
        y,
        Config(recipe="paper", selection=grid),
        key=jax.random.key(3),
    )
    assert (found.gamma, found.eta) == (0.5, 0.05)


def test_a_given_setting_is_not_searched():
    """A gamma or eta that the config fixes is the only one tried."""
    for fixed, other in (({"gamma": 0.5}, "eta"), ({"eta": 0.03}, "gamma")):
        config = dataclasses.replace(CONFIG, **fixed)
        found = select(*problem(), config, key=jax.random.key(3))
        ((name, value),) = fixed.items()
        assert {getattr(candidate, name) for candidate in found.curve} == {value}
        assert getattr(found, name) == value
        tried = {getattr(candidate, other) for candidate in found.curve}
        assert tried == set(getattr(GRID, f"{other}s"))


def test_nothing_to_choose():
    """With both given nothing is solved and no anchor is held out."""
    config = Config(recipe="paper", gamma=0.3, eta=0.04)
    found = select(*problem(), config, key=jax.random.key(3))
    assert found[:4] == (0.3, 0.04, (), 0)
    assert found.reason == "Nothing was left to choose."


@pytest.mark.parametrize(
    ("fixed", "gamma", "eta"),
    [({}, 0.75, 0.02), ({"gamma": 0.25}, 0.25, 0.02), ({"eta": 0.1}, 0.75, 0.1)],
)
def test_too_few_anchors_take_the_defaults(fixed, gamma, eta):
    """Nine anchors: the defaults for what is auto, and a sentence saying why."""
    config = dataclasses.replace(CONFIG, **fixed)
    found = select(*problem(n_anchors=9), config, key=jax.random.key(3))
    assert found[:4] == (gamma, eta, (), 0)
    assert "9 anchors are too few" in found.reason


def draws(n_anchors, *, n=40, m=30, seed=3, **settings):
    """Return the draws that select makes, and the problem they come from."""
    arrays = problem(n_anchors, n, m)
    config = Config(recipe="paper", selection=SelectionConfig(**settings))
    found = selection._draws(*arrays, config=config, key=jax.random.key(seed))
    return list(found), arrays


def row_numbers(rows, among):
    """Return the position of each row in `among`."""
    return [int(np.flatnonzero((among == row).all(axis=1))[0]) for row in rows]


def test_few_anchors_are_held_out_in_several_draws():
    """N = 50: six disjoint draws of five, each with a basis of the other 45."""
    found, (anchors_x, anchors_y, pool_x, pool_y) = draws(50, min_heldout=30)
    assert len(found) == 6
    seen = []
    for draw in found:
        assert draw.n_heldout == 5
        held = row_numbers(np.asarray(draw.x)[-5:], np.asarray(anchors_x))
        assert held == row_numbers(np.asarray(draw.y)[-5:], np.asarray(anchors_y))
        seen += held
        np.testing.assert_array_equal(draw.x[:-5], pool_x)
        np.testing.assert_array_equal(draw.y[:-5], pool_y)
        kept = reference.unit(np.delete(np.asarray(anchors_x), held, axis=0))
        basis = draw.basis_x
        assert basis.left.shape[0] == draw.basis_y.left.shape[0] == 45
        moment = basis.right * basis.singular_values**2 @ basis.right.T
        np.testing.assert_allclose(moment, kept.T @ kept, atol=1e-5)
    assert len(set(seen)) == 30


def test_kept_anchors_stay_paired():
    """The two bases of a draw have their rows in one order."""
    (draw, *_), (anchors_x, anchors_y, *_) = draws(50)
    bases = (draw.basis_x, draw.basis_y)
    kept_x, kept_y = (
        basis.left * basis.singular_values @ basis.right.T for basis in bases
    )
    similar_x = kept_x @ reference.unit(anchors_x).T
    similar_y = kept_y @ reference.unit(anchors_y).T
    np.testing.assert_array_equal(similar_x.argmax(axis=1), similar_y.argmax(axis=1))
    assert len(set(similar_x.argmax(axis=1))) == 45


@pytest.mark.parametrize(
    ("n_anchors", "settings", "n_draws", "size"),
    [
        (400, {}, 4, 40),
        (1500, {}, 1, 150),
        (200, {}, 8, 20),
        (10, {}, 10, 1),
        (30, {"heldout": 0.5}, 2, 15),
        (30, {"min_heldout": 1}, 1, 3),
    ],
)
def test_number_of_draws(n_anchors, settings, n_draws, size):
    """Draws are added until enough anchors were held out; at most ten."""
    found, _ = draws(n_anchors, **settings)
    assert len(found) == n_draws
    assert {draw.n_heldout for draw in found} == {size}


def test_pool_limit_takes_a_random_subset():
    """Pools beyond the limit are represented by distinct random rows of them."""
    settings = {"m": 20, "pool_limit": 25, "min_heldout": 1}
    (draw,), (_, _, pool_x, pool_y) = draws(30, **settings)
    assert len(draw.x) == 25 + 3
    rows = row_numbers(np.asarray(draw.x)[:-3], np.asarray(pool_x))
    assert len(set(rows)) == 25
    assert rows != sorted(rows)
    np.testing.assert_array_equal(draw.y[:-3], pool_y)
    (other,), _ = draws(30, **settings, seed=4)
    assert rows != row_numbers(np.asarray(other.x)[:-3], np.asarray(pool_x))


def test_selection_is_fixed_by_the_key():
    """The same key gives the same curve to the last digit, another key another."""
    again = select(*problem(), CONFIG, key=jax.random.key(3))
    assert again == selected()
    other = select(*problem(), CONFIG, key=jax.random.key(4))
    assert other.curve != again.curve


def test_warm_starts_change_no_rank():
    """Along eta each solve starts from the one before; cold solves rank the same."""
    arrays = problem()
    config = dataclasses.replace(
        CONFIG, coupling=dataclasses.replace(CONFIG.coupling, tolerance=1e-5)
    )
    key = jax.random.key(3)
    draw = next(selection._draws(*arrays, config=config, key=key))
    points = [(0.5, eta, None) for eta in (0.2, 0.1, 0.05)]
    path = list(selection._path(draw, points, config, key=key))
    assert [point for point, _, _ in path] == points
    maps = profiles.coordinate_maps(draw.basis_x, draw.basis_y, 0.5)
    x, y = profiles.coordinates(draw.x, draw.y, maps)
    median = geometry.sampled_median_cost(x, y, key=key)
    for (_, eta, _), warm, ranks in path:
        np.testing.assert_allclose(warm.epsilon, eta * median, rtol=1e-6)
        cold = coupling.solve_coupling(x, y, eta * median, config=config.coupling)
        expected = heldout_ranks(x, y, cold, n_heldout=draw.n_heldout)
        assert bool(warm.converged & cold.converged)
        np.testing.assert_allclose(ranks.mean(), expected.mean(), atol=0.1)


def test_progress_counts_the_couplings():
    """Progress is called once a coupling, up to the total."""
    calls = []
    select(
        *problem(),
        CONFIG,
        key=jax.random.key(3),
        progress=lambda done, total: calls.append((done, total)),
    )
    # Two draws of three anchors, two gammas, two etas.
    assert calls == [(done, 8) for done in range(1, 9)]
