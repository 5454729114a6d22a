"""NumPy's own files: .npy through a memory map, .npz one member at a time.

Neither is ever unpickled.
"""

import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from anchordot_jax.data.formats.base import (
    PICKLED,
    ArrayInfo,
    Format,
    RowGroups,
    type_name,
)


def _map_npy(path: Path) -> NDArray[Any]:
    """Return the memory map of a .npy file."""
    # A plain `numpy.load` takes any zip for .npz and anything else for a pickle.
    mapped: NDArray[Any] = npy.open_memmap(path, mode="r")
    return mapped


def _npy_header(stream: Any) -> ArrayInfo:
    """Return the shape and type that a .npy header states."""
    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(stream)
    return ArrayInfo(shape, PICKLED if dtype.hasobject else type_name(dtype))


def _npy_listing(path: Path) -> dict[str, ArrayInfo]:
    """Return the one unnamed array of a .npy file."""
    with path.open("rb") as stream:
        header = _npy_header(stream)
    if header.dtype != PICKLED:
        _map_npy(path)
    return {"": header}


def _npy_scan(path: Path, name: str, groups: RowGroups) -> Iterator[NDArray[Any]]:
    """Yield the rows of each group."""
    mapped = _map_npy(path)
    for rows in groups:
        yield mapped[rows]


def _npz_listing(path: Path) -> dict[str, ArrayInfo]:
    """Return the arrays of a .npz file from their headers alone."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if not member.filename.endswith(".npy"):
                continue
            with archive.open(member) as stream:
                header = _npy_header(stream)
                stored = member.file_size - stream.tell()
            if header.dtype not in (PICKLED, "longdouble"):
                _check_size(member.filename, header, stored)
            found[member.filename.removesuffix(".npy")] = header
    return found


def _check_size(member: str, header: ArrayInfo, stored: int) -> None:
    """Raise when a member does not hold the bytes that its header promises."""
    # Without this a damaged header would ask NumPy for terabytes.
    try:
        expected = math.prod(header.shape) * np.dtype(header.dtype).itemsize
    except TypeError:
        return
    if expected != stored:
        raise ValueError(f"{member} holds {stored} bytes instead of {expected}")


def _npz_scan(path: Path, name: str, groups: RowGroups) -> Iterator[NDArray[Any]]:
    """Yield the rows of each group, from the one member loaded whole."""
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as stream:
        loaded: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
    for rows in groups:
        yield loaded[rows]


NPY = Format("a .npy array", _npy_listing, _npy_scan)
NPZ = Format("a .npz archive", _npz_listing, _npz_scan)
