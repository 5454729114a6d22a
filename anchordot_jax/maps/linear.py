"""A linear map a side: centre, project, scale to unit norm, weigh the coordinates."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from anchordot_jax import profiles
from anchordot_jax.arrays import AnyArray
from anchordot_jax.students import Params


def linear_side(
    kernel: AnyArray,
    *,
    mean: AnyArray | None = None,
    weights: AnyArray | None = None,
) -> Params:
    """Return one side's arrays; without a mean or weights they are 0 and 1.

    Args:
        kernel: projection `[d, k]`.
        mean: subtracted from the unit-norm rows first, `[d]`.
        weights: factors of the coordinates after the scaling to unit norm, `[k]`.
    """
    d, k = np.shape(kernel)
    return {
        "kernel": np.asarray(kernel, np.float32),
        "mean": np.zeros(d, np.float32) if mean is None else np.float32(mean),
        "weights": np.ones(k, np.float32) if weights is None else np.float32(weights),
    }


def embed(
    params: Params, rows: Array, side: str, settings: Mapping[str, Any]
) -> Float[Array, "n k"]:
    """Return w * unit((unit(x) - mean) W) for one side's rows; zero rows stay zero."""
    del settings
    own = params[side]
    centred = profiles.normalize(rows) - own["mean"][None, :]
    # Whitening kernels multiply rounding errors, so the product is a full float32 one.
    highest = jax.lax.Precision.HIGHEST
    projected = jnp.matmul(centred, own["kernel"], precision=highest)
    weighted: Array = profiles.normalize(projected) * own["weights"][None, :]
    return weighted


def dims(params: Params, side: str) -> tuple[int, int]:
    """Return the dimension that goes in and that of the shared space."""
    rows, columns = params[side]["kernel"].shape
    return int(rows), int(columns)


def check(params: Params) -> None:
    """Raise ValueError, naming the array, unless these are two linear maps."""
    widths = []
    for side in ("x", "y"):
        own = params.get(side, {})
        for name, rank in (("kernel", 2), ("mean", 1), ("weights", 1)):
            if name not in own or own[name].ndim != rank:
                raise ValueError(f"{side}.{name}")
        if own["mean"].shape != own["kernel"].shape[:1]:
            raise ValueError(f"{side}.mean")
        if own["weights"].shape != own["kernel"].shape[1:]:
            raise ValueError(f"{side}.weights")
        widths.append(own["kernel"].shape[1])
    if widths[0] != widths[1]:
        raise ValueError("y.kernel")
