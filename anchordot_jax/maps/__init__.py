"""The kinds of maps that take both sides' embeddings into one shared space.

A model is a kind, a tree of arrays and a few settings. Students are what AnchorDOT and
the trained baselines end with; the other kinds are what the closed-form methods need.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxtyping import Array, Float

from anchordot_jax.maps import linear, relative, spectral, student
from anchordot_jax.students import Params

Settings = Mapping[str, Any]
"""What an embedding needs beside arrays: static JSON values, one dictionary a side."""


class Kind(NamedTuple):
    """How one kind of map embeds a side, and what its arrays are."""

    embed: Callable[[Params, Array, str, Settings], Float[Array, "n k"]]
    """(params, rows `[n, d]`, side, that side's settings) -> embeddings `[n, k]`."""
    dims: Callable[[Params, str], tuple[int, int]]
    """(params, side) -> dimension that goes in, dimension of the shared space."""
    check: Callable[[Params], None]
    """Raises ValueError, naming the array, unless the params are of this kind."""


KINDS: Mapping[str, Kind] = {
    "students": Kind(student.embed, student.dims, student.check),
    "linear": Kind(linear.embed, linear.dims, linear.check),
    "relative": Kind(relative.embed, relative.dims, relative.check),
    "spectral": Kind(spectral.embed, spectral.dims, spectral.check),
    "nystrom": Kind(
        spectral.embed_nystrom, spectral.dims_nystrom, spectral.check_nystrom
    ),
}

__all__ = ["KINDS", "Kind", "Settings"]
