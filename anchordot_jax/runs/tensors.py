"""Safetensors files that say when they were damaged.

The format itself notices a cut file but no changed number. Each file's metadata
therefore hold a `sha256` of its names, types, shapes and values; a file without one,
written by another program, is read as it is.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy

from anchordot_jax.errors import InputError, reason

DIGEST = "sha256"


def tensor_digest(tensors: Mapping[str, np.ndarray]) -> str:
    """Return 64 hexadecimal digits that change when anything of the tensors does."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f"{name}{array.dtype}{np.shape(tensors[name])}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write the tensors with their digest."""
    arrays = {name: np.array(array, order="C") for name, array in tensors.items()}
    # One entry only: the library writes several in random order.
    metadata = {DIGEST: tensor_digest(arrays)}
    try:
        safetensors.numpy.save_file(arrays, path, metadata=metadata)
    except safetensors.SafetensorError as error:
        # The library's own error, which a full disk raises as well.
        raise OSError(f"{path} could not be written: {reason(error)}") from error


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a file.

    Raises:
        InputError: the file cannot be read, or is not what was written.
    """
    try:
        with safetensors.safe_open(path, framework="np") as file:
            stored = (file.metadata() or {}).get(DIGEST)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (
        OSError,
        safetensors.SafetensorError,
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        # The last four for a type that NumPy lacks, such as floats of 8 bits.
        raise InputError(f"{path} could not be read: {reason(error)}.") from None
    if stored is not None and stored != tensor_digest(tensors):
        raise InputError(
            f"{path} is damaged: its numbers are not those that were written (their "
            f"sha256 differs)."
        )
    return tensors
