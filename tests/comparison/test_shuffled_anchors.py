"""On real clip art, methods find the pairs, and with shuffled anchors they do not."""

import pytest

from anchordot_jax.baselines.registry import METHODS
from anchordot_jax.comparison.cell import run_cell
from anchordot_jax.comparison.problem import Problem, make_problem, shuffle_anchors
from anchordot_jax.data import load_openclipart, protocol_split
from anchordot_jax.evaluation import chance_recall

TEST = 400
# 0.025 in expectation; 400 queries a direction deviate by about 0.008.
CHANCE = chance_recall(TEST, 1, 10)
QUICK = [
    "asif",
    "csa-ridge",
    "procrustes",
    "ridge-x2y",
    "ridge-y2x",
    "cca",
    "ridge-cca",
    "profile-nearest",
    "profile-csls",
    "profile-sinkhorn",
]


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Return 300 anchors, 400 test pairs and two pools of the bundled set."""
    art = load_openclipart()
    split = protocol_split(len(art.image), seed=11, anchors=300, test=TEST)
    return make_problem(art.image, art.text, split)


def recall(name: str, problem: Problem) -> float:
    """Return the mean of both directions' recall@10."""
    result = run_cell(METHODS[name], problem, seed=0, short=True)
    assert result["status"] == "done", result.get("reason")
    return sum(result["metrics"][f"{way}/recall@10"] for way in ("x2y", "y2x")) / 2


@pytest.mark.parametrize("name", QUICK)
def test_pairs_teach_and_shuffled_pairs_do_not(name: str, problem: Problem) -> None:
    assert recall(name, problem) > 8 * CHANCE
    assert recall(name, shuffle_anchors(problem, seed=0)) < 2 * CHANCE


def test_unregularised_cca_is_near_chance(problem: Problem) -> None:
    """With 300 pairs of 1280 + 384 columns its unit correlations are overfit."""
    assert recall("csa", problem) < recall("csa-ridge", problem) / 2
