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
    if settings["clip"]:
        similarities = jnp.maximum(similarities, 0)
    if settings["non_zeros"] < len(anchors):
        similarities = _largest(similarities, settings["non_zeros"])
    if not settings["normalize"]:
        powers: Array = similarities ** settings["exponent"]
        return powers
    # High powers of small numbers leave float32; here their scale is lost anyway.
    greatest = jnp.abs(similarities).max(axis=1, keepdims=True)
    scaled = similarities / jnp.where(greatest > 0, greatest, 1)
    return profiles.normalize(scaled ** settings["exponent"])


def _largest(similarities: Array, non_zeros: int) -> Array:
    """Return the similarities with all but the largest of each row set to 0."""
    kept, columns = jax.lax.top_k(similarities, non_zeros)
    at_row = jnp.arange(len(similarities))[:, None]
    return jnp.zeros_like(similarities).at[at_row, columns].set(kept)


def dims(params: Params, side: str) -> tuple[int, int]:
    """Return the dimension that goes in and the number of anchors."""
    n, d = params[side]["anchors"].shape
    return int(d), int(n)


def check(params: Params) -> None:
    """Raise ValueError, naming the array, unless these are paired anchors."""
    for side in ("x", "y"):
        own = params.get(side)
        anchors = own.get("anchors") if isinstance(own, Mapping) else None
        if getattr(anchors, "ndim", 0) != 2:
            raise ValueError(f"{side}.anchors")
    if len(params["x"]["anchors"]) != len(params["y"]["anchors"]):
        raise ValueError("y.anchors")
