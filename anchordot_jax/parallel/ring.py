"""Log-sum-exp over rows that are spread over the devices.

Each device keeps its own rows and their sums. The other side's rows travel around the
ring of devices, one device's part at a time, and the parts' sums are combined by
log(e^a + e^b), so that no device ever holds more than two parts of a pool.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array

from anchordot_jax.parallel.mesh import ROWS

LogSum = Callable[[Array, Array, Array], Array]
"""log_sum(rows, others, h) -> the log-sum-exp of every row over the others."""


def ring_log_sum(
    log_sum: LogSum, rows: Array, others: Array, h: Array, *, mesh: Mesh
) -> Array:
    """Return log_sum(rows, others, h) for arrays spread over the mesh.

    Args:
        log_sum: works on one device's parts, and is -inf without any weight.
        rows: `[n, r]`; the devices divide n.
        others: `[m, r]`; the devices divide m.
        h: `[m]`, the others' potential.
        mesh: see `mesh.make_mesh`.

    Returns:
        `[n]`, spread as the rows.
    """
    ring = [(i, (i + 1) % mesh.size) for i in range(mesh.size)]

    def own_part(rows: Array, others: Array, h: Array) -> Array:
        def visit(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            total, visiting = carry
            part = log_sum(rows, visiting[:, :-1], visiting[:, -1])
            moved: Array = jax.lax.ppermute(visiting, ROWS, ring)
            return jnp.logaddexp(total, part), moved

        start = jnp.full(len(rows), -jnp.inf, jnp.float32)
        # One array, and so one message a visit.
        visiting = jnp.concatenate([others, h[:, None]], axis=1)
        total: Array
        total, _ = jax.lax.fori_loop(0, mesh.size, visit, (start, visiting))
        return total

    by_rows = PartitionSpec(ROWS)
    # The loop's start is the same on every device and its end is not, which the check
    # of varying values would want declared in a way that depends on JAX's version.
    shared = jax.shard_map(
        own_part,
        mesh=mesh,
        in_specs=(by_rows, by_rows, by_rows),
        out_specs=by_rows,
        check_vma=False,
    )
    total: Array = shared(rows, others, h)
    return total
