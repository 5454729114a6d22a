"""Nested dictionaries as flat ones with dotted names, and back."""

from collections.abc import Mapping
from typing import Any


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return every leaf by its dotted path: {"a": {"b": 1}} becomes {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested dictionary that `flatten` was given.

    Raises:
        ValueError: a name, said in the message, is both a leaf and a dictionary.
    """
    values: dict[str, Any] = {}
    for name, value in flat.items():
        *path, leaf = name.split(".")
        inner = values
        for depth, part in enumerate(path, start=1):
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise ValueError(".".join(path[:depth]))
        if leaf in inner:
            raise ValueError(name)
        inner[leaf] = value
    return values
