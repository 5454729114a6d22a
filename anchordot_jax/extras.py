"""Importing a library that is installed only with an extra."""

import importlib
from typing import Any

from anchordot_jax.errors import InputError, reason


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
