"""Students as a kind of map: LayerNorm and one linear map a side."""

from collections.abc import Mapping
from typing import Any

import jax
from jaxtyping import Array, Float

from anchordot_jax import dotted
from anchordot_jax.students import Params, bind, init_params


def embed(
    params: Params, rows: Array, side: str, settings: Mapping[str, Any]
) -> Float[Array, "n k"]:
    """Return the student's unit-norm embeddings of one side's rows."""
    del settings
    embedded: Array = getattr(bind(params), side)(rows)
    return embedded


def dims(params: Params, side: str) -> tuple[int, int]:
    """Return the dimension that goes in and that of the shared space."""
    rows, columns = params[side]["linear"]["kernel"].shape
    return int(rows), int(columns)


def check(params: Params) -> None:
    """Raise ValueError, naming the array, unless these are two students."""
    shapes = {name: leaf.shape for name, leaf in dotted.flatten(params).items()}
    kernels = [shapes.get(f"{side}.linear.kernel", ()) for side in ("x", "y")]
    expected: dict[str, tuple[int, ...]] = {}
    if all(len(kernel) == 2 for kernel in kernels):
        sample = jax.eval_shape(
            lambda key: init_params(
                kernels[0][0], kernels[1][0], kernels[0][1], key=key
            ),
            jax.random.key(0),
        )
        expected = {name: leaf.shape for name, leaf in dotted.flatten(sample).items()}
    if not expected or shapes != expected:
        odd = sorted({k for k, _ in shapes.items() ^ expected.items()}) or ["kernels"]
        raise ValueError(odd[0])
