"""Mutual nearest neighbours: hand values, a brute-force reference, and bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from anchordot_jax.errors import InputError
from anchordot_jax.evaluation.mutual_knn import mutual_knn_alignment


def circle(degrees):
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def brute_force(x, y, k):
    """Return the measure from whole similarity matrices and sets, in float64."""
    shares = []
    neighbours = []
    for rows in (x, y):
        cosines = reference.unit(rows) @ reference.unit(rows).T
        np.fill_diagonal(cosines, -np.inf)
        neighbours.append(np.argsort(-cosines, axis=1, kind="stable")[:, :k])
    for of_x, of_y in zip(*neighbours, strict=True):
        shares.append(len(set(of_x) & set(of_y)) / k)
    return np.mean(shares)


def test_hand_values():
    """x: 0-1 and 2-3 are close; y: 0-1 are, 2 is nearest 1 and 3 nearest 2."""
    x = circle([0, 10, 90, 105])
    y = circle([0, 20, 50, 100])
    assert mutual_knn_alignment(x, y, 1) == pytest.approx(3 / 4)
    # Of two neighbours, x: 12, 02, 31, 21; y: 12, 02, 10, 21.
    assert mutual_knn_alignment(x, y, 2) == pytest.approx(7 / 8)
    assert mutual_knn_alignment(x, y, 3) == 1.0


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), k=st.sampled_from([1, 3, 10]))
def test_is_the_brute_force_measure(seed, k):
    """Any k; rows of any length count by direction alone."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(23, 4))
    y = np.hstack([x, rng.normal(size=(23, 3))])
    lengths = np.exp(rng.normal(size=(23, 1)))
    found = mutual_knn_alignment(lengths * x, y, k)
    assert found == pytest.approx(brute_force(x, y, k), abs=1e-12)


def test_spaces_alike_but_for_rotation_agree_fully():
    """A rotation and a scale of one side change no neighbour."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 5))
    turn, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    assert mutual_knn_alignment(x, 1e-30 * x @ turn) == 1.0


def test_unrelated_spaces_agree_by_chance():
    """Their share is k / (n - 1) on average."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 8)), rng.normal(size=(400, 8))
    assert mutual_knn_alignment(x, y, 20) == pytest.approx(20 / 399, abs=0.01)


def test_copies_do_not_stand_for_the_item_itself():
    """Six copies of one row: an item is never its own neighbour."""
    x = np.vstack([np.tile([[1.0, 0.0]], (6, 1)), [[0.0, 1.0]]])
    y = np.vstack([circle([0, 0, 0, 0, 0, 0]), [[0.0, 1.0]]])
    # Neighbours of 0 are 1, 2, of 1 0, 2, of 2 and all others 0, 1, on both sides.
    assert mutual_knn_alignment(x, y, 2) == 1.0
    # In z, item 0 is by itself and near item 6; x's copies 1 to 5 all name it.
    z = circle([90, 0, 1, 2.5, 5, 9, 91])
    # Nearest in z: 6, 2, 1, 2, 3, 4, 0; in x: 1, 0, 0, 0, 0, 0, 0.
    assert mutual_knn_alignment(x, z, 1) == pytest.approx(1 / 7)


def test_rows_must_be_paired():
    """Other numbers of rows are refused."""
    with pytest.raises(InputError, match="as many rows in x as in y, got 4 and 3"):
        mutual_knn_alignment(np.eye(4), np.eye(3), 1)


def test_k_is_below_the_number_of_items():
    """An item has n - 1 others."""
    with pytest.raises(InputError, match="less than the 4 items"):
        mutual_knn_alignment(np.eye(4), np.eye(4), 4)
    with pytest.raises(InputError, match="k must be a whole number >= 1"):
        mutual_knn_alignment(np.eye(4), np.eye(4), 0)


def test_zero_rows_have_no_cosine():
    """The side and the row are named."""
    y = np.eye(4)
    y[2] = 0
    with pytest.raises(InputError, match="y is zero in row 2"):
        mutual_knn_alignment(np.eye(4), y, 1)


def test_values_must_be_finite():
    """NaN is refused."""
    x = np.eye(4)
    x[1, 1] = np.nan
    with pytest.raises(InputError, match="x has a value that is not finite"):
        mutual_knn_alignment(x, np.eye(4), 1)
