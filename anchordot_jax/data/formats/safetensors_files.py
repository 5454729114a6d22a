"""Safetensors files: the header checked by the library, the rows by memory map.

The library's own slices know neither lists of rows nor, for NumPy, bfloat16. The
format is an 8-byte length, a JSON header and the raw little-endian arrays, so a memory
map at the header's offset reads any rows of any type.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.data.formats.base import ArrayInfo, Format, RowGroups

TYPES = {
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "BOOL": "bool",
}


class _Tensor(NamedTuple):
    """Where a tensor lies in its file: `offset` bytes from the file's start."""

    info: ArrayInfo
    offset: int


def _check_header(path: Path) -> None:
    """Raise `ValueError` when the library finds the file damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np"):
            pass
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def _tensors(path: Path) -> dict[str, _Tensor]:
    """Return the tensors that the header names."""
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    return {
        name: _Tensor(
            ArrayInfo(tuple(entry["shape"]), TYPES.get(entry["dtype"], entry["dtype"])),
            8 + length + entry["data_offsets"][0],
        )
        for name, entry in header.items()
    }


def _listing(path: Path) -> dict[str, ArrayInfo]:
    """Return the tensors of a file, from its checked header."""
    _check_header(path)
    return {name: tensor.info for name, tensor in _tensors(path).items()}


def _map(path: Path, name: str) -> tuple[NDArray[Any], bool]:
    """Return the memory map of a tensor, and whether it is bfloat16 seen as uint16."""
    _check_header(path)
    info, offset = _tensors(path)[name]
    narrow = info.dtype == "bfloat16"
    stored = np.dtype("uint16" if narrow else info.dtype).newbyteorder("<")
    return np.memmap(path, stored, "r", offset, info.shape), narrow


def _scan(path: Path, name: str, groups: RowGroups) -> Iterator[NDArray[Any]]:
    """Yield the rows of each group, bfloat16 as float32."""
    mapped, narrow = _map(path, name)
    for rows in groups:
        yield _from_bfloat16(mapped[rows]) if narrow else mapped[rows]


def _from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the float32 values whose upper halves are `bits`."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


SAFETENSORS = Format("a safetensors file", _listing, _scan)
