"""The names of `anchordot_jax` are there, and cost nothing until they are used."""

import ast
import importlib
from pathlib import Path

import pytest

import anchordot_jax
from planted import python


@pytest.mark.parametrize("name", anchordot_jax.__all__)
def test_every_public_name_is_that_of_its_module(name: str) -> None:
    """Each name in __all__ is the object that its own module defines."""
    value = getattr(anchordot_jax, name)
    home = importlib.import_module(anchordot_jax._HOMES[name])
    assert value is getattr(home, name)
    assert value.__doc__


def test_type_checkers_see_the_same_names() -> None:
    """The names imported for type checkers are those imported on use."""
    source = Path(str(anchordot_jax.__file__)).read_text(encoding="utf-8")
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [
        node
        for block in blocks
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
    ]
    seen = {name.name: node.module for node in imports for name in node.names}
    assert seen == anchordot_jax._HOMES


def test_dir_lists_the_public_names() -> None:
    """`dir` gives the names of __all__, sorted."""
    assert dir(anchordot_jax) == sorted(anchordot_jax.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A name that is not public raises the usual error."""
    with pytest.raises(AttributeError, match="'anchordot_jax' has no attribute 'fits'"):
        anchordot_jax.fits  # noqa: B018


def test_importing_the_package_imports_no_library() -> None:
    """`import anchordot_jax` alone loads neither NumPy nor JAX."""
    code = "import sys, anchordot_jax; print({'numpy', 'jax', 'ott'} & {*sys.modules})"
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "set()\n"
