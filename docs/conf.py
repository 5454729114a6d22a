"""The documentation site: `python -m sphinx -W --keep-going -b html docs docs/_build`.

Notebooks are not run here: they are stored with their outputs, and
`tests/docs/test_notebooks.py` runs every one of them, so that a broken notebook fails
a test with a traceback and the site builds in seconds.
"""

import re
from typing import Any

import anchordot_jax

project = "anchordot-jax"
author = "The anchordot-jax authors"
copyright = author
release = anchordot_jax.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
# What the benchmarks and experiments write is included by other pages.
exclude_patterns = [
    "_build",
    "jupyter_execute",
    "benchmarks",
    "results/*_findings.md",
]

myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"

napoleon_google_docstring = True
napoleon_numpy_docstring = False
# A field is documented once, where its own docstring is.
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"

html_theme = "furo"
html_title = "anchordot-jax"


def escape_docstring(
    app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Keep norms |x| and names such as str_ from being read as references."""
    lines[:] = [re.sub(r"(\||(?<=\w)_(?=\W|$))", r"\\\1", line) for line in lines]


def setup(app: Any) -> None:
    """Register what this file adds to Sphinx."""
    app.connect("autodoc-process-docstring", escape_docstring, priority=900)
