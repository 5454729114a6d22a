"""Similarities to the anchors as a map: sparse, raised to a power (ASIF)."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax import profiles
from anchordot_jax.students import Params

HIGHEST = jax.lax.Precision.HIGHEST


def embed(
    params: Params, rows: Array, side: str, settings: Mapping[str, Any]
) -> Float[Array, "n k"]:
    """Return the powers of each row's largest similarities to the anchors.

    Args:
        params: `{side: {"anchors": [N, d]}}`, unit-norm rows.
        rows: `[n, d]`, scaled to unit norm first.
        side: whose anchors.
        settings: `non_zeros`, how many of the largest signed similarities of a row are
            kept, the others becoming 0; `exponent`, the power they are raised to;
            `clip`, whether negative ones become 0 first; `normalize`, whether the
            result is scaled to unit norm.
    """
    anchors = jnp.asarray(params[side]["anchors"])
    unit = profiles.normalize(rows)
    similarities = jnp.matmul(unit, anchors.T, precision=HIGHEST)
    non_zeros = min(settings["non_zeros"], len(anchors))
    if settings["clip"]:
        similarities = jnp.maximum(similarities, 0)
    kept, columns = jax.lax.top_k(similarities, non_zeros)
    powers = kept ** settings["exponent"]
    at_row = jnp.arange(len(unit))[:, None]
    sparse = jnp.zeros_like(similarities).at[at_row, columns].set(powers)
    return profiles.normalize(sparse) if settings["normalize"] else sparse


def dims(params: Params, side: str) -> tuple[int, int]:
    """Return the dimension that goes in and the number of anchors."""
    n, d = params[side]["anchors"].shape
    return int(d), int(n)


def check(params: Params) -> None:
    """Raise ValueError, naming the array, unless these are paired anchors."""
    for side in ("x", "y"):
        if getattr(params.get(side, {}).get("anchors"), "ndim", 0) != 2:
            raise ValueError(f"{side}.anchors")
    if len(params["x"]["anchors"]) != len(params["y"]["anchors"]):
        raise ValueError("y.anchors")
