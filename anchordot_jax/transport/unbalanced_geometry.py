"""Geometries whose Sinkhorn updates leave the marginals soft.

They put the exponent tau = rho/(rho + eps) (Chizat et al., Math. Comp. 87, 2018) into
the two updates that OTT's Sinkhorn asks of a geometry.

OTT has a tau of its own. It is a static number, so that every rho would be compiled
anew and none could be mapped over, and it multiplies eps log a too, which solves for
the reference measure 1 instead of ab^T.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from anchordot_jax import geometry


@jax.tree_util.register_pytree_node_class
class SoftProfileGeometry(geometry.ProfileGeometry):
    """The cosine cost, tiled or stored, whose Sinkhorn updates are softened by tau."""

    def __init__(
        self, x: Any, y: Any, *, tau_x: Any, tau_y: Any, **options: Any
    ) -> None:
        super().__init__(x, y, **options)
        self._taus = (tau_x, tau_y)

    def update_potential(
        self,
        f: Array,
        g: Array,
        log_marginal: Array,
        iteration: Array | int | None = None,
        axis: int = 0,
    ) -> Array:
        """Return eps log a - tau eps log sum_j exp((g_j - C_ij)/eps) for axis 1.

        In terms of the potential f - eps log a of the plan's density against ab^T it
        is -tau eps log sum_j b_j exp((g'_j - C_ij)/eps).
        """
        tau = self._taus[0] if axis == 1 else self._taus[1]
        eps = self.epsilon
        log_sum = self.apply_lse_kernel(f, g, eps, axis=axis)[0]
        potential: Array = eps * log_marginal - tau * log_sum
        return potential

    def tree_flatten(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arrays and the static settings."""
        arrays, static = super().tree_flatten()
        return (*arrays, *self._taus), static

    @classmethod
    def tree_unflatten(
        cls, aux_data: dict[str, Any], children: Any
    ) -> "SoftProfileGeometry":
        """Return the geometry of `tree_flatten`'s parts."""
        x, y, epsilon, cost, tau_x, tau_y = children
        return cls(
            x, y, epsilon=epsilon, cost=cost, tau_x=tau_x, tau_y=tau_y, **aux_data
        )


@jax.tree_util.register_pytree_node_class
class SoftKernelGeometry(geometry.KernelGeometry):
    """A plan held whole, whose updates of factors u, v of it are softened by tau."""

    def __init__(self, plan: Any, epsilon: Any, tau_x: Any, tau_y: Any) -> None:
        super().__init__(kernel_matrix=plan, epsilon=epsilon)
        self._taus = (tau_x, tau_y)

    def update_scaling(
        self,
        scaling: Array,
        marginal: Array,
        iteration: Array | int | None = None,
        axis: int = 0,
    ) -> Array:
        """Return marginal / (P scaling)^tau for axis 1, with P^T for axis 0."""
        tau = self._taus[0] if axis == 1 else self._taus[1]
        sums = self.apply_kernel(scaling, axis=axis)
        # A row of no weight has no plan either.
        factor: Array = marginal / jnp.where(sums == 0, 1, sums) ** tau
        return factor

    def tree_flatten(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arrays and the static settings."""
        return (self.kernel_matrix, self._epsilon_init, *self._taus), {}

    @classmethod
    def tree_unflatten(
        cls, aux_data: dict[str, Any], children: Any
    ) -> "SoftKernelGeometry":
        """Return the geometry of `tree_flatten`'s parts."""
        return cls(*children)
