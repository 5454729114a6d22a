"""The mass of each row: what it is given, and what a plan of soft marginals leaves."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from anchordot_jax import coupling
from anchordot_jax.arrays import AnyArray

# A row of less than this share of the mean mass counts as one without a match.
LITTLE = 0.1


def marginal(weights: AnyArray | None, n: int) -> Float[Array, " n"]:
    """Return the weights summing to one; uniform ones by default."""
    if weights is None:
        return jnp.full(n, 1 / n, jnp.float32)
    return jnp.asarray(weights / weights.sum(), jnp.float32)


def row_weights(
    solved: coupling.Coupling,
) -> tuple[Float[Array, " n"] | None, Float[Array, " m"] | None]:
    """Return how much of its marginal each x and each y row keeps, over the mean of it.

    None where the marginals are not soft: all would be 1.
    """
    if solved.log_mass_x is None or solved.log_mass_y is None:
        return None, None
    return _over_mean(solved.log_mass_x), _over_mean(solved.log_mass_y)


def _over_mean(log_mass: AnyArray) -> Array:
    # In the log domain: all masses may underflow.
    weights: Array = len(log_mass) * jax.nn.softmax(jnp.asarray(np.asarray(log_mass)))
    return weights


def mass_summary(solved: coupling.Coupling) -> dict[str, float]:
    """Return the plan's total mass, and the share of rows that keep little.

    Little is less than a tenth of the side's mean. Nothing where the marginals are not
    soft.
    """
    by_side = row_weights(solved)
    if solved.mass is None or by_side[0] is None or by_side[1] is None:
        return {}
    little = [float(jnp.mean(weights < LITTLE)) for weights in by_side]  # type: ignore[operator]
    return {
        "mass": float(solved.mass),
        "little_mass_x": little[0],
        "little_mass_y": little[1],
    }
