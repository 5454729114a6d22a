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
    """Return the nested dictionary that `flatten` was given."""
    values: dict[str, Any] = {}
    for name, value in flat.items():
        *path, leaf = name.split(".")
        inner = values
        for part in path:
            inner = inner.setdefault(part, {})
        inner[leaf] = value
    return values
