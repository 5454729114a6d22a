"""Embeddings need finite values and a direction."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from anchordot_jax.data import check_embeddings, inspect_embeddings, open_embeddings
from anchordot_jax.errors import InputError

GOOD = np.ones((4, 3), np.float32)


def _with(rows: list[int], value: float) -> np.ndarray:
    """Return ten good rows but for the first value of `rows`."""
    array = np.ones((10, 3), np.float32)
    array[rows, 0] = value
    return array


def test_good_rows_pass() -> None:
    """Finite rows with a direction pass, even with zeros in them."""
    check_embeddings(_with([0, 3], 0.0), "a.npy")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nonfinite_rows_are_counted_and_named(value: float) -> None:
    """The message counts the rows and lists the first five."""
    message = r"^a\.npy has 6 rows with NaN or .* \(rows 0, 2, 3, 4, 6, \.\.\.\);"
    with pytest.raises(InputError, match=message):
        check_embeddings(_with([0, 2, 3, 4, 6, 9], value), "a.npy")


def test_zero_rows_are_counted_and_named() -> None:
    """A row of zeros, of either sign, has no direction."""
    array = GOOD.copy()
    array[2] = [0.0, -0.0, 0.0]
    with pytest.raises(InputError, match=r"1 row with only zeros.* \(row 2\)"):
        check_embeddings(array, "a.npy")


def test_messages_give_the_rows_of_the_file() -> None:
    """Row numbers are shifted by first_row, or looked up in rows."""
    array = _with([1], np.nan)
    with pytest.raises(InputError, match=r"\(row 101\)"):
        check_embeddings(array, "a.npy", first_row=100)
    with pytest.raises(InputError, match=r"\(row 8\)"):
        check_embeddings(array, "a.npy", rows=np.arange(9, -1, -1))


@settings(deadline=None, max_examples=25)
@given(
    hnp.arrays(np.float32, (5, 2), elements=st.sampled_from([0, 1, np.nan, np.inf])),
)
def test_the_check_agrees_with_a_loop_over_rows(array: np.ndarray) -> None:
    """Rows are refused exactly when a plain loop finds one bad."""
    bad = any(
        not all(map(math.isfinite, row)) or not any(row) for row in array.tolist()
    )
    try:
        check_embeddings(array, "a")
        refused = False
    except InputError:
        refused = True
    assert refused == bad


def _faulty() -> np.ndarray:
    """Return ten rows with known faults: see the report expected of them."""
    array = np.random.default_rng(1).normal(size=(10, 4)).astype(np.float64)
    array[:, 3] = 2.5
    array[1] = array[7] = array[4]
    array[2, 0] = 1e300
    array[9] = [-50, np.nan, 50, 2.5]
    return array


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_the_report_counts_every_fault(save: Any, batch: int) -> None:
    """Faults spread over blocks are counted as NumPy counts them on the whole."""
    array = _faulty()
    source = open_embeddings(save("a.npz", embeddings=array, ids=np.arange(10)))
    report = inspect_embeddings(source, batch)
    norms = np.linalg.norm(np.delete(array, [2, 9], axis=0), axis=1)
    assert (report.n, report.d, report.dtype, report.has_ids) == (
        10,
        4,
        "float64",
        True,
    )
    assert (report.n_nonfinite, report.first_nonfinite) == (2, (2, 9))
    assert (report.n_zero, report.first_zero) == (0, ())
    assert report.n_duplicate == 2
    assert report.n_constant_dims == 1
    np.testing.assert_allclose(
        [report.norm_min, report.norm_mean, report.norm_max],
        [norms.min(), norms.mean(), norms.max()],
        rtol=1e-6,
    )


def test_the_report_lists_five_zero_rows(save: Any) -> None:
    """Zero rows are all counted, five listed, and zeros of either sign are equal."""
    array = np.zeros((7, 3))
    array[::2] = -0.0
    report = inspect_embeddings(open_embeddings(save("a.npy", embeddings=array)))
    assert (report.n_zero, report.first_zero) == (7, (0, 1, 2, 3, 4))
    assert report.n_duplicate == 6
    assert report.n_constant_dims == 3
    assert not report.has_ids


def test_without_a_finite_row_norms_are_nan(save: Any) -> None:
    """A file of NaN has no norms and no constant dimension."""
    array = np.full((3, 2), np.nan)
    report = inspect_embeddings(open_embeddings(save("a.npy", embeddings=array)))
    assert math.isnan(report.norm_min)
    assert math.isnan(report.norm_max)
    assert report.n_constant_dims == 0


@pytest.mark.realdata
def test_a_real_report(real_data: Path) -> None:
    """chebi20's texts are finite, of norm one, and hold a few duplicates."""
    source = open_embeddings(f"{real_data / 'chebi20.h5'}::text")
    report = inspect_embeddings(source, batch=1000)
    n_distinct = len(np.unique(source.read() + np.float32(0), axis=0))
    assert report.n_nonfinite == report.n_zero == 0
    assert report.n_duplicate == 5801 - n_distinct
    assert report.norm_mean == pytest.approx(1, abs=1e-3)
