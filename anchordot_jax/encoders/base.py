"""What an encoder offers, and how its optional library is imported."""

import importlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.errors import InputError

Kind = Literal["image", "text", "molecule"]
KINDS: tuple[Kind, ...] = ("image", "text", "molecule")
REASON_LENGTH = 160


class Rejected(Exception):
    """One item cannot be embedded; the message is the reason."""


class Encoder(Protocol):
    """A frozen encoder of one kind of item.

    Attributes:
        kind: What it takes: images as encoded bytes, texts or SMILES as text.
        dim: Columns of its rows.
        facts: What made the rows, stored with them: revision, pooling, versions.
    """

    kind: Kind
    dim: int
    facts: Mapping[str, str]

    def prepare(self, value: Any) -> Any:
        """Return one item as the encoder takes it.

        Raises:
            Rejected: the item cannot be read.
        """
        ...

    def encode(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """Return the rows of some prepared items, `[b, d]`."""
        ...


def needs(module: str, *, extra: str, what: str) -> Any:
    """Return an optional library's module.

    Raises:
        InputError: it is not installed, or fails to import; the sentence names the
            extra that brings it.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError) as error:
        missing = getattr(error, "name", None)
        if isinstance(error, ModuleNotFoundError) and missing:
            raise InputError(
                f"{what} needs the Python package {missing.partition('.')[0]}, which "
                f"is not installed; run pip install 'anchordot-jax[{extra}]'."
            ) from None
        raise InputError(
            f"{what} needs {module}, which is installed but fails to import "
            f"({reason(error.__cause__ or error)}); install versions that belong "
            f"together, as pip install 'anchordot-jax[{extra}]' does in a new "
            "environment."
        ) from error


def versions(*distributions: str) -> str:
    """Return `name version` of the installed distributions, comma-separated."""
    found = []
    for name in distributions:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def text_of(value: Any) -> str:
    """Return a text without the blanks around it.

    Raises:
        Rejected: nothing is left.
    """
    text = str(value).strip()
    if not text:
        raise Rejected("empty caption")
    return text


def reason(error: BaseException) -> str:
    """Return an error's message on one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return "".join(filter(str.isprintable, text))[:REASON_LENGTH]


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of any of the libraries means too large a batch."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    said = str(error).lower()
    signs = ("out of memory", "can't allocate memory", "failed to allocate memory")
    return isinstance(error, RuntimeError) and any(sign in said for sign in signs)
