"""Written embeddings come back through the reader, whole or not at all."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchordot_jax.data import open_embeddings, write_embeddings
from anchordot_jax.errors import InputError
from planted import tree

SUFFIXES = [".npy", ".h5", ".hdf5", ".safetensors"]
NAMES = np.array([f"item {i} é" for i in range(40)])
NUMBERS = np.arange(1000, 1040)


def blocks_of(rows: np.ndarray, size: int = 16) -> Iterator[np.ndarray]:
    """Yield the rows, some at a time."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_embeddings_survive_a_round_trip(
    tmp_path: Path, embeddings: np.ndarray, suffix: str, dtype: str
) -> None:
    """The reader finds the type, the shape and every number written."""
    path = tmp_path / f"new/folder/e{suffix}"
    write_embeddings(path, blocks_of(embeddings), embeddings.shape, dtype=dtype)
    source = open_embeddings(path)
    assert source.dtype == dtype
    assert source.shape == embeddings.shape
    assert source.ids is None
    expected = embeddings.astype(dtype).astype(np.float32)
    np.testing.assert_array_equal(source.read(), expected)
    assert [item.name for item in path.parent.iterdir()] == [path.name]


@given(size=st.integers(1, 45))
@settings(deadline=None, max_examples=15)
def test_the_block_size_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, embeddings: np.ndarray, size: int
) -> None:
    """However the rows are cut, the file is the same, byte by byte."""
    folder = tmp_path_factory.mktemp("blocks")
    for suffix in (".npy", ".safetensors"):
        whole, parts = folder / f"whole{suffix}", folder / f"parts{suffix}"
        write_embeddings(whole, [embeddings], embeddings.shape)
        write_embeddings(parts, blocks_of(embeddings, size), embeddings.shape)
        assert parts.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(
    ("suffix", "ids", "kept"),
    [
        (".h5", NAMES, True),
        (".h5", NUMBERS, True),
        (".hdf5", NAMES, True),
        (".safetensors", NUMBERS, True),
        (".safetensors", NAMES, False),
        (".npy", NAMES, False),
        (".npy", NUMBERS, False),
    ],
)
def test_ids_are_kept_where_the_format_can(
    tmp_path: Path, embeddings: np.ndarray, suffix: str, ids: np.ndarray, kept: bool
) -> None:
    """Text and numbers come back as they were; .npy holds none, the other one half."""
    path = tmp_path / f"e{suffix}"
    write_embeddings(path, blocks_of(embeddings), embeddings.shape, ids=ids)
    source = open_embeddings(path)
    np.testing.assert_array_equal(source.read(), embeddings)
    if kept:
        assert source.ids is not None
        np.testing.assert_array_equal(source.ids, ids)
    else:
        assert source.ids is None


def broken(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield one block and fail."""
    yield rows[:16]
    raise InputError("row 20 is bad.")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failure_between_blocks_leaves_no_file(
    tmp_path: Path, embeddings: np.ndarray, suffix: str
) -> None:
    """Neither half a file nor a new folder is left."""
    path = tmp_path / f"new/e{suffix}"
    with pytest.raises(InputError, match="row 20 is bad"):
        write_embeddings(path, broken(embeddings), embeddings.shape)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failure_between_blocks_keeps_the_older_file(
    tmp_path: Path, embeddings: np.ndarray, suffix: str
) -> None:
    """The file that was there is as it was."""
    path = tmp_path / f"e{suffix}"
    write_embeddings(path, [embeddings], embeddings.shape)
    before = tree(tmp_path)
    with pytest.raises(InputError, match="row 20 is bad"):
        write_embeddings(path, broken(embeddings + 1), embeddings.shape)
    assert tree(tmp_path) == before
    write_embeddings(path, [embeddings + 1], embeddings.shape)
    np.testing.assert_array_equal(open_embeddings(path).read(), embeddings + 1)


@pytest.mark.parametrize("rows", [39, 41])
def test_blocks_of_another_length_leave_no_file(
    tmp_path: Path, embeddings: np.ndarray, rows: int
) -> None:
    """A header must not promise rows that are not there."""
    blocks = [embeddings[:20], embeddings[: rows - 20]]
    with pytest.raises(ValueError, match=f"have {rows} rows together, not 40"):
        write_embeddings(tmp_path / "e.npy", blocks, (40, embeddings.shape[1]))
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("name", ["e.parquet", "e.npz", "e", "e.txt"])
def test_an_unknown_suffix(tmp_path: Path, embeddings: np.ndarray, name: str) -> None:
    """The formats that can be written are named."""
    message = rf"{name} must end in one of \.npy, \.h5, \.hdf5, \.safetensors"
    with pytest.raises(InputError, match=message):
        write_embeddings(tmp_path / name, [embeddings], embeddings.shape)
    assert tree(tmp_path) == {}


def test_places_that_cannot_be_written(tmp_path: Path, embeddings: np.ndarray) -> None:
    """A folder of that name, or a file where a folder should be, is in the way."""
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "file").write_text("", encoding="utf-8")
    before = tree(tmp_path)
    with pytest.raises(InputError, match=r"folder\.npy is a folder; name a file\.$"):
        write_embeddings(tmp_path / "folder.npy", [embeddings], embeddings.shape)
    with pytest.raises(InputError, match="a file of that name is in the way"):
        write_embeddings(tmp_path / "file/e.npy", [embeddings], embeddings.shape)
    assert tree(tmp_path) == before
