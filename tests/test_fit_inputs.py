"""What a fit accepts: arrays, pairs, weights; everything else is refused by name."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchordot_jax.errors import InputError
from anchordot_jax.fit_inputs import (
    FitData,
    as_float32,
    as_matrix,
    as_pairs,
    check_data,
    pool_weights,
    take,
)

RNG = np.random.default_rng(0)
DATA = FitData(
    anchors_x=RNG.normal(size=(3, 4)).astype(np.float32),
    anchors_y=RNG.normal(size=(3, 2)).astype(np.float32),
    pool_x=RNG.normal(size=(5, 4)).astype(np.float32),
    pool_y=RNG.normal(size=(6, 2)).astype(np.float32),
    a=np.ones(5, np.float32),
    b=np.ones(6, np.float32),
)


def with_value(array: np.ndarray, row: int, value: float) -> np.ndarray:
    """Return a copy with one row set to a value."""
    changed = array.copy()
    changed[row] = value
    return changed


def test_good_data_pass() -> None:
    """Nothing is raised, with and without weights, one of which may be 0."""
    check_data(DATA)
    check_data(DATA._replace(a=None, b=with_value(DATA.pool_y[:, 0] ** 2, 2, 0)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"anchors_x": DATA.anchors_x[:2]}, r"got 2 of x and 3 of y\."),
        (
            {"anchors_x": DATA.anchors_x[:1], "anchors_y": DATA.anchors_y[:1]},
            r"^At least 2 pairs are needed, got 1\.$",
        ),
        ({"pool_x": DATA.pool_x[:0]}, r"^The x pool is empty; give unpaired x rows\.$"),
        ({"pool_y": DATA.pool_y[:0]}, r"^The y pool is empty"),
        ({"pool_x": DATA.pool_x[:, :3]}, r"x pool must have the anchors' 4 columns, "),
        ({"pool_y": DATA.pool_x}, r"y pool must have the anchors' 2 columns, got 4\.$"),
        (
            {"anchors_y": with_value(DATA.anchors_y, 1, np.nan)},
            r"^The array of y anchors has 1 row with NaN .*\(row 1\)",
        ),
        (
            {"pool_x": with_value(DATA.pool_x, 4, np.inf)},
            r"^The x pool has 1 row with NaN or infinite values \(row 4\)",
        ),
        (
            {"pool_y": with_value(DATA.pool_y, 0, 0)},
            r"^The y pool has 1 row with only zeros.* \(row 0\)",
        ),
        ({"a": np.ones(4, np.float32)}, r"a must have one weight a pool row, 5, got"),
        ({"b": np.ones((6, 1), np.float32)}, r"b must have .* got shape \(6, 1\)"),
        ({"a": with_value(np.ones(5), 2, -1)}, r"The marginal a must hold finite"),
        ({"b": with_value(np.ones(6), 2, np.nan)}, r"The marginal b must hold finite"),
        ({"b": np.zeros(6)}, r"not all zero\.$"),
    ],
)
def test_data_that_cannot_be_fitted(changes: dict[str, Any], message: str) -> None:
    """Each fault is said with the side and the numbers."""
    with pytest.raises(InputError, match=message):
        check_data(DATA._replace(**changes))


@given(st.data())
@settings(deadline=None, max_examples=25)
def test_the_digest_changes_with_every_number(data: st.DataObject) -> None:
    """Two data sets that differ in one entry have different digests."""
    name = data.draw(st.sampled_from(FitData._fields))
    array = getattr(DATA, name).copy()
    index = data.draw(st.integers(0, array.size - 1))
    array.flat[index] += 1
    assert DATA._replace(**{name: array}).digest() != DATA.digest()


def test_the_digest_is_that_of_the_values() -> None:
    """Equal arrays give equal digests; dropped or exchanged ones do not."""
    copies = FitData(*(np.asfortranarray(array) for array in DATA))
    assert copies.digest() == DATA.digest()
    assert len(DATA.digest()) == 16
    assert DATA._replace(a=None).digest() != DATA.digest()
    flat = DATA._replace(a=None, b=None)
    swapped = flat._replace(anchors_x=flat.anchors_y, anchors_y=flat.anchors_x)
    assert swapped.digest() != flat.digest()
    assert flat._replace(pool_x=flat.pool_x.reshape(4, 5)).digest() != flat.digest()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_matrix_of_any_float_type(dtype: type) -> None:
    """The values come back as a contiguous float32 matrix."""
    rows: np.ndarray = np.asarray(RNG.normal(size=(4, 6)), dtype)[:, ::2]
    matrix = as_matrix(rows, "x")
    assert matrix.dtype == np.float32
    assert matrix.flags.c_contiguous
    np.testing.assert_array_equal(matrix, rows.astype(np.float32))


def test_a_list_of_lists_is_a_matrix() -> None:
    """Plain Python numbers are taken."""
    np.testing.assert_array_equal(as_matrix([[1.0, 2.0]], "x"), [[1, 2]])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.ones(3), r"^x must be a 2-D .* got shape \(3,\) of float64\.$"),
        (np.ones((1, 2, 3)), r"got shape \(1, 2, 3\)"),
        (np.ones((2, 3), int), r"floating array .* of int64\.$"),
        (np.ones((2, 3), complex), r"of complex128\.$"),
        (np.array([["a", "b"]]), r"of <U1\.$"),
        (np.ones((2, 3), ml_dtypes.bfloat16), r"of bfloat16\.$"),
        ([[1.0, 2.0], [3.0]], r"^x must be an array, got lists of several lengths"),
    ],
)
def test_what_is_no_matrix(rows: Any, message: str) -> None:
    """The message names the argument and what was got."""
    with pytest.raises(InputError, match=message):
        as_matrix(rows, "x")


def test_too_large_values_become_infinite_without_a_warning() -> None:
    """float64 beyond float32 is left to the checks, which name the row."""
    rows = as_float32(np.array([[1e300, 1.0]]))
    np.testing.assert_array_equal(rows, np.array([[np.inf, 1]], np.float32))


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64])
def test_pairs_of_any_whole_type(dtype: type) -> None:
    """The pairs come back as int64."""
    pairs = as_pairs(np.array([[0, 5], [3, 1]], dtype), "pairs")
    assert pairs.dtype == np.int64
    np.testing.assert_array_equal(pairs, [[0, 5], [3, 1]])


def test_no_pairs_have_the_right_shape() -> None:
    """An empty list is `[0, 2]`."""
    assert as_pairs([], "pairs").shape == (0, 2)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([[0.0, 1.0]], r"^test_pairs must be a list .* of float64\.$"),
        ([0, 1], r"got shape \(2,\) of int64\.$"),
        ([[0, 1, 2]], r"got shape \(1, 3\)"),
        ([[True, False]], r"of bool\.$"),
        ([["a", "b"]], r"of <U1\.$"),
        ([[0, 1], [2]], r"^test_pairs must be an array, got lists of several lengths"),
    ],
)
def test_what_are_no_pairs(pairs: Any, message: str) -> None:
    """The message names the argument and what was got."""
    with pytest.raises(InputError, match=message):
        as_pairs(pairs, "test_pairs")


def test_weights_follow_the_rows_of_the_pool() -> None:
    """A source's weights are picked by row; those of a pool of its own are kept."""
    weights = pool_weights([1, 2, 3, 4], 4, np.array([3, 1]))
    assert weights is not None
    assert weights.dtype == np.float32
    np.testing.assert_array_equal(weights, [4, 2])
    np.testing.assert_array_equal(pool_weights([1, 2], 4, None), [1, 2])
    assert pool_weights(None, 4, np.array([0])) is None


def test_weights_of_another_length() -> None:
    """One weight a row is needed."""
    with pytest.raises(InputError, match=r"one weight a row, 4, got \(3,\)\.$"):
        pool_weights([1, 2, 3], 4, np.array([0]))


def test_taken_rows_are_named_by_their_own_number() -> None:
    """A bad row is named as in the whole array, and unused ones do not matter."""
    array = with_value(DATA.pool_y, 4, np.nan)
    np.testing.assert_array_equal(take(array, np.array([2, 0]), "y"), array[[2, 0]])
    with pytest.raises(InputError, match=r"^y has 1 row with NaN .*\(row 4\)"):
        take(array, np.array([5, 4]), "y")
