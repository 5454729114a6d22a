"""Writing embeddings block by block, to a file that appears complete or not at all."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from anchordot_jax import files
from anchordot_jax.errors import InputError

Ids = NDArray[np.str_] | NDArray[np.int64] | None

SUFFIXES = (".npy", ".h5", ".hdf5", ".safetensors")


def write_embeddings(
    path: str | Path,
    blocks: Iterable[NDArray[np.floating]],
    shape: tuple[int, int],
    *,
    dtype: str = "float32",
    ids: Ids = None,
) -> None:
    """Write the blocks, one below the other, as the array `embeddings`.

    .npy holds the array alone; .h5 also the ids; .safetensors also integer ids, and is
    gathered in memory first.

    Args:
        path: the suffix says the format.
        blocks: arrays `[b, d]` whose rows add up to the shape.
        shape: rows and columns of the whole.
        dtype: type of the numbers in the file.
        ids: one id a row, or None.

    Raises:
        InputError: an unknown suffix, or a place that cannot be written to.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"{path} must end in one of {', '.join(SUFFIXES)}, the formats written."
        )
    files.check_output_file(path)
    write = {".npy": _write_npy, ".safetensors": _write_safetensors}
    with files.replacing(path) as temporary:
        write.get(path.suffix.lower(), _write_hdf5)(
            temporary, blocks, shape, np.dtype(dtype), ids
        )


def _write_npy(
    path: Path,
    blocks: Iterable[NDArray[np.floating]],
    shape: tuple[int, int],
    dtype: np.dtype[np.floating],
    ids: Ids,
) -> None:
    # Not through a memory map: where the disk fills up, that kills the process.
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    with path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        rows = 0
        for block in blocks:
            stream.write(np.ascontiguousarray(block, dtype).data)
            rows += len(block)
    if rows != shape[0]:
        raise ValueError(f"The blocks have {rows} rows together, not {shape[0]}.")


def _write_hdf5(
    path: Path,
    blocks: Iterable[NDArray[np.floating]],
    shape: tuple[int, int],
    dtype: np.dtype[np.floating],
    ids: Ids,
) -> None:
    with h5py.File(path, "w") as file:
        out = file.create_dataset("embeddings", shape=shape, dtype=dtype)
        _fill(out, blocks)
        if ids is not None:
            text = not np.issubdtype(ids.dtype, np.integer)
            file["ids"] = ids.astype(h5py.string_dtype()) if text else ids


def _write_safetensors(
    path: Path,
    blocks: Iterable[NDArray[np.floating]],
    shape: tuple[int, int],
    dtype: np.dtype[np.floating],
    ids: Ids,
) -> None:
    tensors = {"embeddings": np.concatenate([block.astype(dtype) for block in blocks])}
    if ids is not None and np.issubdtype(ids.dtype, np.integer):
        tensors["ids"] = ids
    safetensors.numpy.save_file(tensors, path)


def _fill(out: Any, blocks: Iterable[NDArray[np.floating]]) -> None:
    start = 0
    for block in blocks:
        out[start : start + len(block)] = block
        start += len(block)
