"""A planted problem for the timings: two noisy views of common latents."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from problem import ETA, unit

from anchordot_jax import coordinate_maps, coordinates, fit_basis
from anchordot_jax.geometry import sampled_median_cost


class Planted(NamedTuple):
    """Anchors, pools, the pools' coordinates and epsilon."""

    anchors_x: jax.Array
    anchors_y: jax.Array
    pool_x: jax.Array
    pool_y: jax.Array
    x: jax.Array
    y: jax.Array
    epsilon: jax.Array


def planted(
    rows: int, *, anchors: int = 200, dims: tuple[int, int] = (256, 128)
) -> Planted:
    """Return pools of some rows that share no item, and anchors."""
    rng = np.random.default_rng(0)
    total = anchors + 2 * rows
    latent = rng.normal(size=(total, 40))
    views = [latent @ rng.normal(size=(40, d)) for d in dims]
    sides = [unit(view + 4 * rng.normal(size=view.shape)) for view in views]
    bases = [fit_basis(side[:anchors]) for side in sides]
    pool_x, pool_y = sides[0][anchors : anchors + rows], sides[1][anchors + rows :]
    x, y = coordinates(pool_x, pool_y, coordinate_maps(*bases, 0.75))
    given = (*(side[:anchors] for side in sides), pool_x, pool_y)
    epsilon = ETA * sampled_median_cost(x, y, key=jax.random.key(0))
    return Planted(*map(jnp.asarray, given), x, y, epsilon)
