"""Opening an embedding file: `FILE` or `FILE::dataset` to an `EmbeddingSource`.

Nothing but headers and ids is read here; rows are read when asked for.
"""

import difflib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.data.formats.base import PICKLED, ArrayInfo, Format, readable
from anchordot_jax.data.formats.hdf5_files import HDF5
from anchordot_jax.data.formats.numpy_files import NPY, NPZ
from anchordot_jax.data.formats.parquet_files import PARQUET
from anchordot_jax.data.formats.safetensors_files import SAFETENSORS
from anchordot_jax.data.source import EmbeddingSource, where
from anchordot_jax.errors import InputError

FORMATS = {
    ".npy": NPY,
    ".npz": NPZ,
    ".h5": HDF5,
    ".hdf5": HDF5,
    ".safetensors": SAFETENSORS,
    ".parquet": PARQUET,
}
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".joblib")
DEFAULT_NAME = "embeddings"
ID_NAMES = ("ids", "id", "keys")
LISTED = 12


def open_embeddings(spec: str | Path) -> EmbeddingSource:
    """Return the embedding array that `FILE` or `FILE::dataset` names.

    Without a dataset it is the one called `embeddings`, else the only 2-D floating
    array of the file. Ids are taken from a 1-D array of text or whole numbers called
    `ids`, `id` or `keys`, beside it and as long.

    Args:
        spec: A .npy, .npz, .h5, .hdf5, .safetensors or .parquet file, optionally with
            the dataset, which may lie in groups: `file.h5::train/image`.

    Raises:
        InputError: There is no such file or array, or it holds no embeddings.
    """
    path, wanted = split_spec(spec)
    file_format = _format_of(path)
    _check_file(path)
    with readable(str(path), file_format.kind):
        arrays = file_format.listing(path)
    name = _choose(path, arrays, wanted)
    shape = _check_array(where(path, name), arrays[name])
    with readable(f"The ids of {path}", file_format.kind):
        ids = _find_ids(path, file_format, arrays, name)
    return EmbeddingSource(path, name, shape, arrays[name].dtype, ids, file_format)


def split_spec(spec: str | Path) -> tuple[Path, str | None]:
    """Return the file and the dataset (or None) of `FILE` or `FILE::dataset`."""
    text = str(spec)
    file, separator, name = text.rpartition("::")
    if not separator or (isinstance(spec, Path) and spec.is_file()):
        return Path(text), None
    if not file or not name.strip("/"):
        raise InputError(
            f"{text!r} names no array: write FILE or FILE::dataset, for example "
            "embeddings.h5::image."
        )
    return Path(file), name.strip("/")


def _format_of(path: Path) -> Format:
    """Return the format that a file's suffix stands for."""
    suffix = path.suffix.lower()
    if suffix in FORMATS:
        return FORMATS[suffix]
    if path.is_dir():
        raise InputError(f"{path} is a folder; name one embedding file in it.")
    if suffix in PICKLES:
        raise InputError(
            f"{path} is not read because {suffix} files are pickles, which can run any "
            "code; save the array as .npy, .h5 or .safetensors."
        )
    raise InputError(
        f"{path} has the unknown suffix {suffix!r}; embedding files end in "
        f"{', '.join(FORMATS)}."
    )


def _check_file(path: Path) -> None:
    """Raise unless the path is a file with something in it that we may read."""
    try:
        with path.open("rb") as stream:
            empty = not stream.read(1)
    except FileNotFoundError as error:
        raise InputError(
            f"{path} does not exist{_suggest(path.name, _neighbours(path))}; check the "
            "path."
        ) from error
    except IsADirectoryError as error:
        raise InputError(
            f"{path} is a folder; name one embedding file in it."
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{path} cannot be opened ({reason}); check the path and its access rights."
        ) from error
    if empty:
        raise InputError(f"{path} is empty (0 bytes); write it again.")


def _neighbours(path: Path) -> list[str]:
    """Return the names of the embedding files in a file's folder."""
    try:
        names = [item.name for item in path.parent.iterdir()]
    except OSError:
        return []
    return [name for name in names if Path(name).suffix.lower() in FORMATS]


def _suggest(name: str, names: list[str]) -> str:
    """Return ` (did you mean NAME?)`, or nothing when no name is close."""
    close = difflib.get_close_matches(name, names, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _choose(path: Path, arrays: dict[str, ArrayInfo], wanted: str | None) -> str:
    """Return the name of the array asked for, or the one that must be meant."""
    if wanted is not None:
        return _named(path, arrays, wanted)
    if not arrays:
        raise InputError(f"{path} holds no arrays; write the embeddings into it.")
    if DEFAULT_NAME in arrays:
        return DEFAULT_NAME
    fitting = [
        n for n, info in arrays.items() if info.is_float and len(info.shape) == 2
    ]
    if len(fitting) == 1:
        return fitting[0]
    if len(arrays) == 1:
        return next(iter(arrays))
    if not fitting:
        raise InputError(
            f"{path} holds no 2-D floating-point array, only {_list(arrays)}; write "
            "the embeddings as one array [rows, dimensions]."
        )
    candidates = {name: arrays[name] for name in fitting}
    raise InputError(
        f"{path} holds several embedding arrays: {_list(candidates)}; choose one, for "
        f"example {path}::{fitting[0]}."
    )


def _named(path: Path, arrays: dict[str, ArrayInfo], wanted: str) -> str:
    """Return `wanted` if the file holds an array of that name."""
    if wanted in arrays:
        return wanted
    if list(arrays) == [""]:
        raise InputError(
            f"{path} holds one array without a name; leave out ::{wanted}."
        )
    within = {n: info for n, info in arrays.items() if n.startswith(f"{wanted}/")}
    if within:
        raise InputError(
            f"{path}::{wanted} is a group; choose an array in it: {_list(within)}."
        )
    raise InputError(
        f"{path} holds no array called {wanted!r}{_suggest(wanted, list(arrays))}; it "
        f"holds {_list(arrays) or 'no arrays'}."
    )


def _list(arrays: dict[str, ArrayInfo]) -> str:
    """Return `name (shape) type, ...`, cut short for files of many arrays."""
    shown = [f"{name} {info}" for name, info in list(arrays.items())[:LISTED]]
    more = len(arrays) - len(shown)
    return ", ".join([*shown, f"and {more} more"] if more else shown)


def _check_array(place: str, info: ArrayInfo) -> tuple[int, int]:
    """Return the shape `(n, d)` of an array that can be embeddings.

    Raises:
        InputError: It is not floating point, not 2-D, or empty.
    """
    if info.dtype == PICKLED:
        raise InputError(
            f"{place} is an array of Python objects, which only pickle could read; "
            "save it as one floating-point array [rows, dimensions]."
        )
    if not info.is_float:
        raise InputError(
            f"{place} holds {info.dtype} but embeddings must be floating point "
            "(float16, bfloat16, float32 or float64); convert it and save it again."
        )
    if len(info.shape) != 2:
        raise InputError(
            f"{place} must be 2-D [rows, dimensions] but has the shape {info.shape}; "
            "reshape it and save it again."
        )
    n, d = info.shape
    if n == 0 or d == 0:
        raise InputError(
            f"{place} is empty: its shape is {info.shape}; it needs at least one row "
            "and one dimension."
        )
    return n, d


def _find_ids(
    path: Path, file_format: Format, arrays: dict[str, ArrayInfo], name: str
) -> NDArray[np.str_] | NDArray[np.int64] | None:
    """Return the ids beside an array: in its own group, else at the root."""
    every_row = [np.arange(arrays[name].shape[0])]
    group = name.rpartition("/")[0]
    folders = [f"{group}/", ""] if group else [""]
    for candidate in (folder + own for folder in folders for own in ID_NAMES):
        if arrays.get(candidate, ArrayInfo((), "")).shape == arrays[name].shape[:1]:
            if arrays[candidate].dtype == PICKLED:
                raise InputError(
                    f"{where(path, candidate)} holds Python objects, which only pickle "
                    "could read; save the ids as text with ids.astype(str)."
                )
            ids = _as_ids(next(file_format.scan(path, candidate, every_row)))
            if ids is not None:
                return ids
    return None


def _as_ids(values: NDArray[Any]) -> NDArray[np.str_] | NDArray[np.int64] | None:
    """Return text or int64 ids, or None for values that are neither."""
    if values.dtype.kind in "iu":
        whole = values.astype(np.int64)
        # Hashes in uint64 may not fit: as text they stay what they are.
        return whole if np.array_equal(whole, values) else values.astype(np.str_)
    if values.dtype.kind == "U":
        return values
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8")
    texts = [v.decode("utf-8") if isinstance(v, bytes) else v for v in values.tolist()]
    return np.array(texts) if all(isinstance(t, str) for t in texts) else None
