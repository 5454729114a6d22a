"""Fixtures that save arrays in any of the formats."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

Save = Callable[..., Path]


def save_arrays(path: Path, **arrays: Any) -> Path:
    """Save named arrays by the path's suffix; .npy takes only `embeddings`."""
    if path.suffix == ".npy":
        np.save(path, arrays["embeddings"])
    elif path.suffix == ".npz":
        np.savez_compressed(path, **arrays)
    elif path.suffix in (".h5", ".hdf5"):
        _save_hdf5(path, arrays)
    elif path.suffix == ".safetensors":
        from safetensors.numpy import save_file

        save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, path)
    else:
        _save_parquet(path, arrays)
    return path


def _save_hdf5(path: Path, arrays: dict[str, Any]) -> None:
    """Save arrays as chunked, compressed datasets."""
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            stored = np.asarray(values)
            stored = stored.astype("S") if stored.dtype.kind == "U" else stored
            chunks = tuple(min(7, max(1, size)) for size in stored.shape)
            filters = {"chunks": chunks, "compression": "gzip"} if stored.size else {}
            file.create_dataset(name, data=stored, **filters)


def _save_parquet(path: Path, arrays: dict[str, Any]) -> None:
    """Save arrays as columns, 2-D ones as lists of variable length."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = {
        name: pa.array(list(values) if np.ndim(values) == 2 else values)
        for name, values in arrays.items()
    }
    parquet.write_table(pa.table(columns), path, row_group_size=16)


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Return a function that saves arrays under a file name."""
    return lambda name, **arrays: save_arrays(tmp_path / name, **arrays)


@pytest.fixture(scope="session")
def embeddings() -> np.ndarray:
    """Return 40 float32 embeddings of 6 dimensions."""
    return np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)


@pytest.fixture(scope="session")
def saved(
    tmp_path_factory: pytest.TempPathFactory, embeddings: np.ndarray
) -> dict[str, Path]:
    """Return a file of those embeddings for each suffix."""
    folder = tmp_path_factory.mktemp("formats")
    suffixes = [".npy", ".npz", ".h5", ".hdf5", ".safetensors", ".parquet"]
    return {
        suffix: save_arrays(folder / f"a{suffix}", embeddings=embeddings)
        for suffix in suffixes
    }
