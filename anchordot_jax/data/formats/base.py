"""What a file format offers: a listing of arrays, and chosen rows of one of them.

A format knows nothing of embeddings and leaves values in their stored type. It may fail
with whatever its library raises: `readable` turns that into one sentence.
"""

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.errors import InputError, reason

RowGroups = Sequence[NDArray[np.int64]]

PICKLED = "pickled objects"
FLOAT_TYPES = ("float16", "bfloat16", "float32", "float64", "longdouble")

# What the libraries below raise on a damaged file. NumPy parses .npy headers as Python
# text, hence the tokenizer's error; the rest are decompression and zip errors.
DAMAGE = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    EOFError,
    SyntaxError,
    tokenize.TokenError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


class ArrayInfo(NamedTuple):
    """The shape and the stored type (NumPy's name, or bfloat16) of one array."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def is_float(self) -> bool:
        """Whether the stored type can be read as float32."""
        return self.dtype in FLOAT_TYPES

    def __str__(self) -> str:
        """Return e.g. `(100, 384) float16`."""
        return f"{self.shape} {self.dtype}"


class Format(NamedTuple):
    """The functions of one file format.

    Attributes:
        kind: The format's name in messages.
        listing: Maps a file to its arrays by name. A format without names has one
            array called `""`.
        scan: Opens the file once and yields the rows of each group, in the stored type
            and in order. Groups are sorted, without duplicates, and ascend.
    """

    kind: str
    listing: Callable[[Path], dict[str, ArrayInfo]]
    scan: Callable[[Path, str, RowGroups], Iterator[NDArray[Any]]]


def type_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a NumPy type, the same on every platform."""
    return "longdouble" if dtype.type is np.longdouble else dtype.name


@contextmanager
def readable(where: str, kind: str) -> Iterator[None]:
    """Return a context in which a failing library becomes an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except PermissionError as error:
        raise InputError(
            f"{where} cannot be read: permission denied; change the file's access "
            "rights or copy it."
        ) from error
    except FileNotFoundError as error:
        raise InputError(
            f"{where} does not exist any more: it was moved or deleted while in use."
        ) from error
    except DAMAGE as error:
        raise InputError(
            f"{where} cannot be read as {kind} ({reason(error)}): it is truncated, "
            "damaged or of another format, so write it again or check its suffix."
        ) from error
