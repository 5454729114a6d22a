"""The one procedure that chooses every method's settings."""

import dataclasses
from typing import Any, ClassVar

import jax
import numpy as np
import pytest

import reference
from anchordot_jax.baselines import tuning
from anchordot_jax.baselines.protocol import Anchors, Method, Pools, make_model
from anchordot_jax.maps.linear import linear_side
from anchordot_jax.model import AlignedModel, Scores


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """How much noise a planted method adds to the true map."""

    noise: float = 1.0
    unused: str = "kept"


def fit(anchors: Anchors, pools: Pools, *, settings: Noise, key: Any) -> AlignedModel:
    """Return the identity on both sides, x spoilt by noise."""
    d = anchors.x.shape[1]
    spoil = np.random.default_rng(0).normal(size=(d, d))
    params = {
        "x": linear_side(np.eye(d) + settings.noise * spoil),
        "y": linear_side(np.eye(d)),
    }
    return make_model(
        "noise", params, anchors=anchors, settings=settings, kind="linear"
    )


def method(*noises: float, **changes: Any) -> Method:
    """Return a method whose grid is these noises."""
    options = {
        "name": "noise",
        "title": "Noise",
        "source": "here",
        "trust": "ours",
        "settings": Noise(),
        "grid": {"noise": noises},
        "fit": fit,
    }
    return Method(**(options | changes))


@pytest.fixture
def problem() -> tuple[Anchors, Pools]:
    """Return 60 anchors and pools of 80 and 90 whose sides are nearly the same."""
    rows = reference.unit_rows(60, 16, 0)
    other = reference.unit(rows + 0.05 * reference.unit_rows(60, 16, 1))
    pools = Pools(reference.unit_rows(80, 16, 2), reference.unit_rows(90, 16, 3))
    return Anchors(rows, other.astype(np.float32)), pools


def choose(method: Method, problem: tuple[Anchors, Pools]) -> tuning.Choice:
    """Choose with a fixed key."""
    return tuning.choose(
        method, *problem, settings=method.settings, key=jax.random.key(0)
    )


def test_the_better_candidate_wins(problem: tuple[Anchors, Pools]) -> None:
    choice = choose(method(2.0, 0.0, 0.5), problem)
    assert choice.settings == Noise(noise=0.0)
    assert [c.settings.noise for c in choice.curve] == [2.0, 0.0, 0.5]
    assert (
        choice.curve[1].log_rank < choice.curve[2].log_rank < choice.curve[0].log_rank
    )
    assert choice.curve[1].standard_error == 0
    assert choice.n_heldout == 60


def test_a_tie_keeps_the_preferred(problem: tuple[Anchors, Pools]) -> None:
    """A candidate that is no better than a standard error does not replace it."""
    choice = choose(method(1e-4, 0.0), problem)
    assert choice.settings == Noise(noise=1e-4)


def test_nothing_to_choose(problem: tuple[Anchors, Pools]) -> None:
    assert choose(method(grid={}), problem) == tuning.Choice(Noise(), (), 0)


def test_few_anchors_keep_the_preferred(problem: tuple[Anchors, Pools]) -> None:
    anchors, pools = problem
    few = Anchors(anchors.x[:9], anchors.y[:9])
    choice = choose(method(2.0, 0.0), (few, pools))
    assert choice == tuning.Choice(Noise(noise=2.0), (), 0)


def test_draws_are_disjoint_and_never_fitted(problem: tuple[Anchors, Pools]) -> None:
    anchors, _ = problem
    seen: list[bytes] = []
    for kept, held in tuning.heldout_draws(anchors, key=jax.random.key(3)):
        held_rows = {row.tobytes() for row in held.x}
        assert not held_rows & {row.tobytes() for row in kept.x}
        assert len(kept.x) + len(held.x) == 60
        # The pairing is kept.
        order = [int(np.flatnonzero((anchors.x == row).all(1))[0]) for row in held.x]
        np.testing.assert_array_equal(anchors.y[order], held.y)
        seen += held_rows
    assert len(seen) == len(set(seen)) == 60


def test_draws_stop_when_enough_were_held_out() -> None:
    rows = reference.unit_rows(500, 4, 0)
    draws = list(tuning.heldout_draws(Anchors(rows, rows), key=jax.random.key(0)))
    assert [len(held.x) for _, held in draws] == [100]


def test_ranks_are_among_heldout_and_pool() -> None:
    """Rank of the partner, counted by hand on three held-out and two pool items."""
    held = Anchors(np.eye(5, dtype=np.float32)[:3], np.eye(5, dtype=np.float32)[:3])
    pools = Pools(np.eye(5, dtype=np.float32)[3:], np.eye(5, dtype=np.float32)[3:])

    class Fixed:
        info: ClassVar[dict[str, Any]] = {}

        def scores(self, x: Any, y: Any) -> Scores:
            x2y = np.zeros((5, 5), np.float32)
            x2y[0] = [3, 2, 1, 0, 0]
            x2y[1] = [5, 4, 1, 6, 0]
            x2y[2] = [1, 0, 1, 1, 0]
            y2x = np.full((5, 5), np.nan, np.float32)
            y2x[1] = [0, 1, 0, 0, 0]
            y2x[2] = [2, 2, 1, 2, 2]
            return Scores(x2y, y2x)

        def save(self, folder: Any) -> None:
            raise NotImplementedError

    ranks = tuning.heldout_ranks(Fixed(), held, pools)
    np.testing.assert_array_equal(ranks[0], [1, 3, 2])
    # NaN compares with nothing and ranks last.
    np.testing.assert_array_equal(ranks[1], [6, 1, 5])


def test_a_model_is_ranked_by_its_inner_products() -> None:
    x, y = reference.unit_rows(20, 6, 4), reference.unit_rows(20, 6, 5)
    held, pools = Anchors(x[:8], y[:8]), Pools(x[8:], y[8:15])
    model = fit(held, pools, settings=Noise(noise=0.0), key=None)
    ranks = tuning.heldout_ranks(model, held, pools)
    scores = reference.unit(x[:8]) @ reference.unit(y[:15]).T
    expected = 1 + (scores > np.diagonal(scores)[:, None]).sum(1)
    np.testing.assert_array_equal(ranks[0], expected)


def test_candidates_are_a_product_with_the_preferred_first() -> None:
    both = method(grid={"noise": (1.0, 2.0), "unused": ("a", "b")})
    candidates = both.candidates(Noise(noise=9.0))
    assert candidates == [
        Noise(noise=1.0, unused="a"),
        Noise(noise=1.0, unused="b"),
        Noise(noise=2.0, unused="a"),
        Noise(noise=2.0, unused="b"),
    ]


def test_shared_fits_are_used(problem: tuple[Anchors, Pools]) -> None:
    calls = []

    def fit_many(anchors: Any, pools: Any, *, candidates: Any, key: Any) -> Any:
        calls.append(len(candidates))
        return [fit(anchors, pools, settings=c, key=key) for c in candidates]

    choice = choose(method(2.0, 0.0, fit_many=fit_many), problem)
    assert choice.settings == Noise(noise=0.0)
    assert calls == [2] * 5
