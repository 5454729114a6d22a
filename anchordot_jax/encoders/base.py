"""What an encoder offers, and what its libraries have in common."""

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Kind = Literal["image", "text", "molecule"]
KINDS: tuple[Kind, ...] = ("image", "text", "molecule")


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


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of any of the libraries means too large a batch."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    said = str(error).lower()
    signs = ("out of memory", "can't allocate memory", "failed to allocate memory")
    return isinstance(error, RuntimeError) and any(sign in said for sign in signs)
