"""What all methods are given, and the control that destroys the pairing."""

import numpy as np
import pytest

import reference
from anchordot_jax.comparison.problem import make_problem, shuffle_anchors
from anchordot_jax.data import protocol_split
from anchordot_jax.data.splits import Split
from anchordot_jax.errors import InputError

X, Y = 3 * reference.unit_rows(40, 6, 0), 0.2 * reference.unit_rows(40, 5, 1)
SPLIT = protocol_split(40, seed=0, anchors=10, test=12)


def test_rows_are_those_of_the_split_with_unit_norm() -> None:
    made = make_problem(X, Y, SPLIT)
    np.testing.assert_allclose(made.anchors.x, X[SPLIT.anchors[:, 0]] / 3, atol=1e-6)
    np.testing.assert_allclose(made.pools.y, 5 * Y[SPLIT.pool_y], atol=1e-6)
    np.testing.assert_allclose(made.test_x, X[SPLIT.test_pairs[:, 0]] / 3, atol=1e-6)
    assert len(made.pools.x) == len(SPLIT.pool_x)
    np.testing.assert_array_equal(made.positives_x2y[:, 0], np.arange(12))


def test_an_item_of_several_pairs_is_one_item() -> None:
    split = SPLIT._replace(test_pairs=np.array([[1, 2], [1, 3]]))
    made = make_problem(X, Y, split)
    assert made.test_x.shape == (1, 6)
    np.testing.assert_array_equal(made.positives_x2y, [[0, 1]])
    np.testing.assert_array_equal(made.positives_y2x, [[0], [0]])


def test_pools_of_their_own() -> None:
    made = make_problem(X, Y, SPLIT, pool_x=X[:4])
    np.testing.assert_allclose(made.pools.x, X[:4] / 3, atol=1e-6)
    assert len(made.pools.y) == len(SPLIT.pool_y)


@pytest.mark.parametrize("field", ["anchors", "test_pairs", "pool_x", "pool_y"])
def test_the_digest_sees_every_part(field: str) -> None:
    made = make_problem(X, Y, SPLIT)
    changed = SPLIT._replace(**{field: getattr(SPLIT, field)[::-1]})
    assert make_problem(X, Y, SPLIT).digest() == made.digest()
    assert make_problem(X, Y, changed).digest() != made.digest()


def test_no_shuffled_anchor_keeps_its_partner() -> None:
    made = make_problem(X, Y, SPLIT)
    for seed in range(5):
        mixed = shuffle_anchors(made, seed=seed)
        assert not (mixed.anchors.y == made.anchors.y).all(axis=1).any()
        assert {r.tobytes() for r in mixed.anchors.y} == {
            r.tobytes() for r in made.anchors.y
        }
        np.testing.assert_array_equal(mixed.test_y, made.test_y)
    assert mixed.digest() != made.digest()


def test_bad_rows_and_no_test_pairs_are_refused() -> None:
    bad = X.copy()
    bad[SPLIT.pool_x[0]] = np.nan
    with pytest.raises(InputError, match=f"row {SPLIT.pool_x[0]}"):
        make_problem(bad, Y, SPLIT)
    none = Split(SPLIT.anchors, np.zeros((0, 2), np.int64), SPLIT.pool_x, SPLIT.pool_y)
    with pytest.raises(InputError, match="A comparison needs test pairs"):
        make_problem(X, Y, none)
