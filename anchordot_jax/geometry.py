"""The cost between two pools as an OTT geometry that streams or caches it.

C_ij = 1 - x_i . y_j, where x and y are the coordinates of `profiles.coordinates`, so
that C is one minus the cosine of the anchor profiles (Eq. 6). The geometry knows how
to apply exp(-C/epsilon) in the log domain, which is all that Sinkhorn asks of it.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray
from ott.geometry import costs, pointcloud
from ott.geometry import geometry as ott_geometry

from anchordot_jax import log_sums
from anchordot_jax.arrays import AnyArray
from anchordot_jax.log_sums import HIGHEST as HIGHEST
from anchordot_jax.median import median as median
from anchordot_jax.parallel.exchange import take_rows
from anchordot_jax.parallel.ring import ring_log_sum
from anchordot_jax.tiles import tile_rows as tile_rows

# Entries of the cost that the median is taken over: 256 random blocks of 64 x 64.
MEDIAN_BLOCKS = 256
MEDIAN_BLOCK = 64


def cost_block(
    x: Float[AnyArray, "b r"], y: Float[AnyArray, "c r"]
) -> Float[Array, "b c"]:
    """Return C = 1 - x y^T for some rows of both sides (Eq. 6).

    TF32 on recent GPUs has an error that is not small next to epsilon, hence the
    precision.
    """
    return 1 - jnp.matmul(x, y.T, precision=HIGHEST)


@jax.tree_util.register_pytree_node_class
class OneMinusDot(costs.CostFn):  # type: ignore[misc]
    """OTT cost function 1 - <x, y>."""

    def __call__(self, x: Array, y: Array) -> Array:
        """Return 1 - <x, y> of two vectors."""
        return 1 - jnp.dot(x, y, precision=HIGHEST)


@jax.tree_util.register_pytree_node_class
class ProfileGeometry(pointcloud.PointCloud):  # type: ignore[misc]
    """Geometry of the profile cost that recomputes it tile by tile.

    Args:
        x: coordinates of the x pool, `[n, r]`.
        y: coordinates of the y pool, `[m, r]`.
        epsilon: entropic regularisation.
        tile: rows (columns, for the other half-step) of the cost that exist at once;
            None: by the cache, see `tiles.tile_shape`.
        cost: the whole cost `[n, m]`, where there is memory for it; then it is read
            instead of recomputed.
        mesh: the devices that x and y are spread over, by rows (`mesh.shard_rows`).
        kernel: "pallas": `pallas_log_sum` computes the tiles, which are its own then;
            None: XLA does. Signed weights are XLA's.
    """

    def __init__(
        self,
        x: Float[AnyArray, "n r"],
        y: Float[AnyArray, "m r"],
        *,
        epsilon: Float[AnyArray, ""] | float,
        tile: int | None = None,
        cost: Float[AnyArray, "n m"] | None = None,
        mesh: Mesh | None = None,
        kernel: str | None = None,
    ) -> None:
        super().__init__(x, y, cost_fn=OneMinusDot(), epsilon=epsilon)
        self._tile = tile
        self._kernel = kernel
        self._mesh = mesh
        self._cost = None if cost is None else jnp.asarray(cost)

    def apply_lse_kernel(
        self,
        f: Array,
        g: Array,
        eps: Array,
        vec: Array | None = None,
        axis: int = 0,
    ) -> tuple[Array, Array | None]:
        """Return eps log(K (exp(g/eps) vec)) for axis 1, with K^T and f for axis 0.

        K = exp(-C/eps). This is OTT's contract: the potential on the other axis is
        only there to stabilise the sum.
        """
        h, own = (g, f) if axis == 1 else (f, g)
        if self._mesh is not None:
            if vec is not None:
                raise NotImplementedError("Weights are for one device.")
            rows, others = (self.x, self.y) if axis == 1 else (self.y, self.x)
            return self._around_the_ring(rows, others, h, eps, self._mesh), None
        if vec is not None:
            return self._stream(h, eps, axis, vec)
        if self._cost is None:
            return self._stream(h, eps, axis, None)
        return log_sums.read(self._cost, h, own, eps, axis), None

    def _stream(
        self, h: Array, eps: Array, axis: int, vec: Array | None
    ) -> tuple[Array, Array | None]:
        rows, others = (self.x, self.y) if axis == 1 else (self.y, self.x)
        if vec is None:
            return eps * self._log_sum(rows, others, h, eps), None
        log_sum, sign = log_sums.computed(rows, others, h, eps, vec, tile=self._tile)
        return eps * log_sum, sign

    def _log_sum(self, rows: Array, others: Array, h: Array, eps: Array) -> Array:
        if self._kernel == "pallas":
            # An experimental part of JAX, which nothing else should depend on.
            from anchordot_jax.transport import pallas_log_sum

            return pallas_log_sum.log_sum(rows, others, h, eps)
        return log_sums.computed(rows, others, h, eps, None, tile=self._tile)[0]

    def _around_the_ring(
        self, rows: Array, others: Array, h: Array, eps: Array, mesh: Mesh
    ) -> Array:
        def log_sum(rows: Array, others: Array, h: Array) -> Array:
            return self._log_sum(rows, others, h, eps)

        return eps * ring_log_sum(log_sum, rows, others, h, mesh=mesh)

    def tree_flatten(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arrays and the static settings."""
        arrays = (self.x, self.y, self._epsilon_init, self._cost)
        static = {"tile": self._tile, "mesh": self._mesh, "kernel": self._kernel}
        return arrays, static

    @classmethod
    def tree_unflatten(
        cls, aux_data: dict[str, Any], children: Any
    ) -> "ProfileGeometry":
        """Return the geometry of `tree_flatten`'s parts."""
        x, y, epsilon, cost = children
        return cls(x, y, epsilon=epsilon, cost=cost, **aux_data)


@jax.tree_util.register_pytree_node_class
class KernelGeometry(ott_geometry.Geometry):  # type: ignore[misc]
    """Geometry of a kernel held whole: an iteration reads it once a side.

    OTT's own raises the kernel to a power at every product, and multiplies a column by
    its transpose, ten times slower in XLA's CPU backend than a row by the kernel.
    """

    def apply_kernel(
        self, vec: Array, eps: Array | None = None, axis: int = 0
    ) -> Array:
        """Return K vec for axis 1, K^T vec for axis 0; epsilon does not change."""
        kernel = self.kernel_matrix
        product: Array = (
            jnp.matmul(kernel, vec, precision=HIGHEST)
            if axis == 1
            else jnp.matmul(vec, kernel, precision=HIGHEST)
        )
        return product


@functools.partial(jax.jit, static_argnames=("counts", "mesh"))
def sampled_median_cost(
    x: Float[AnyArray, "n r"],
    y: Float[AnyArray, "m r"],
    *,
    key: PRNGKeyArray,
    counts: tuple[int, int] | None = None,
    mesh: Mesh | None = None,
) -> Float[Array, ""]:
    """Return the median of C, over all entries or a sample of 2^20 of them.

    Pools of at most 2^20 entries are taken whole. Larger ones are sampled by 256
    random blocks of 64 rows and 64 columns: one small matrix product each.

    Args:
        x: coordinates of the x pool.
        y: coordinates of the y pool.
        key: fixes the sample.
        counts: rows of x and y that are meant, where more fill up the devices.
        mesh: the devices that x and y are spread over.
    """
    x, y = jnp.asarray(x), jnp.asarray(y)
    n, m = counts or (len(x), len(y))
    if n * m <= MEDIAN_BLOCKS * MEDIAN_BLOCK**2:
        return median(cost_block(*_taken(x, jnp.arange(n), y, jnp.arange(m), mesh)))
    keys = jax.random.split(key, MEDIAN_BLOCKS)

    def draw(key: PRNGKeyArray) -> tuple[Array, Array]:
        key_x, key_y = jax.random.split(key)
        shape = (MEDIAN_BLOCK,)
        rows = jax.random.randint(key_x, shape, 0, n)
        return rows, jax.random.randint(key_y, shape, 0, m)

    rows, columns = jax.vmap(draw)(keys)
    sides = _taken(x, rows, y, columns, mesh)
    return median(jax.lax.map(lambda block: cost_block(*block), sides))


def _taken(
    x: Array, rows: Array, y: Array, columns: Array, mesh: Mesh | None
) -> tuple[Array, Array]:
    """Return some rows of both sides, on every device."""
    if mesh is None:
        return x[rows], y[columns]
    some_x, some_y = take_rows(x, rows, y, columns, mesh=mesh)
    return some_x, some_y
