"""Weights files: one finite number >= 0 a row."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anchordot_jax.data import read_weights
from anchordot_jax.errors import InputError


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8])
def test_weights_of_any_type_are_read(tmp_path: Path, dtype: type) -> None:
    """The numbers come back as float32, also those that are 0."""
    np.save(tmp_path / "w.npy", np.array([0, 1, 3], dtype))
    weights = read_weights(tmp_path / "w.npy", 3)
    assert weights.dtype == np.float32
    np.testing.assert_array_equal(weights, [0, 1, 3])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones(4), r"one weight for each of the 3 rows, got the shape \(4,\)\.$"),
        (np.ones((3, 1)), r"got the shape \(3, 1\)\.$"),
        (np.array([1, -0.5, 1]), r"finite weights >= 0, got -0\.5 in row 1\.$"),
        (np.array([1, 1, np.nan]), r"finite weights >= 0, got nan in row 2\.$"),
        (np.array([np.inf, 1, 1]), r"finite weights >= 0, got inf in row 0\.$"),
        (np.array([1, 1e300, 1]), r"finite weights >= 0, got inf in row 1\.$"),
        (np.array(["a", "b", "c"]), r"must hold numbers, got <U1\.$"),
        (np.ones(3, bool), r"must hold numbers, got bool\.$"),
        (np.ones(3, complex), r"must hold numbers, got complex128\.$"),
        (np.array([1, "a", None], object), r"cannot be read as a \.npy array .*pickle"),
    ],
)
def test_what_are_no_weights(tmp_path: Path, values: Any, message: str) -> None:
    """The length, the row or the type is named."""
    np.save(tmp_path / "w.npy", values)
    with pytest.raises(InputError, match=message):
        read_weights(tmp_path / "w.npy", 3)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "cut short": lambda whole: whole[:-1],
    "header cut short": lambda whole: whole[:40],
    "header damaged": lambda whole: whole[:10] + b"(" * (len(whole) - 10),
    "text": lambda whole: b"1.0\n2.0\n3.0\n",
    "a broken zip": lambda whole: b"PK\x03\x04" + whole,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_files(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """A file that is no whole .npy array is said to be so."""
    path = tmp_path / "w.npy"
    np.save(path, np.ones(3))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=r"w\.npy cannot be read as a \.npy array"):
        read_weights(path, 3)


def test_an_archive_is_no_array(tmp_path: Path) -> None:
    """A .npz file under another name is refused as well."""
    np.savez(tmp_path / "w.npz", weights=np.ones(3))
    with pytest.raises(InputError, match=r"w\.npz cannot be read as a \.npy array"):
        read_weights(tmp_path / "w.npz", 3)


def test_a_missing_file(tmp_path: Path) -> None:
    """The path is named; a folder is no file."""
    for path in (tmp_path / "none.npy", tmp_path):
        with pytest.raises(InputError, match=r"^The weights file .* does not exist\.$"):
            read_weights(path, 3)
