"""What devices tell each other, in few messages.

A message costs its latency before its bytes. Hence one sum for all the rows that a step
needs, and one for all that it returns.
"""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Int

from anchordot_jax.parallel.mesh import ROWS


def fetch_rows(*wanted: tuple[Array, Int[Array, "..."]]) -> list[Array]:
    """Return some rows of arrays spread over the mesh, whole on every device.

    Called inside `shard_map`: each device puts down the rows that it holds, zeros for
    the others, and all are summed. A row number beyond the array gives zeros.

    Args:
        wanted: pairs of one device's part of an array, `[own, d]`, and the numbers of
            the rows in the whole array.
    """
    parts = []
    for own, rows in wanted:
        local = rows - jax.lax.axis_index(ROWS) * len(own)
        here = (local >= 0) & (local < len(own))
        found = own[jnp.where(here, local, 0)]
        parts.append(jnp.where(here[..., None], found, 0.0))
    return sum_over_devices(*parts)


def sum_over_devices(*parts: Array) -> list[Array]:
    """Return the sums of arrays over the devices, by one message."""
    flat = jnp.concatenate([part.ravel() for part in parts])
    total = jax.lax.psum(flat, ROWS)
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + part.size)
    return [
        total[start:stop].reshape(part.shape)
        for part, start, stop in zip(parts, ends[:-1], ends[1:], strict=True)
    ]


def log_sum_over_devices(parts: Array) -> Array:
    """Return log sum exp of the devices' arrays, entry by entry."""
    total: Array = jax.nn.logsumexp(jax.lax.all_gather(parts, ROWS), axis=0)
    return total


def take_rows(
    x: Array, rows: Array, y: Array, columns: Array, *, mesh: Mesh
) -> list[Array]:
    """Return some rows of x and of y, both spread over the mesh, on every device."""

    def own_part(x: Array, rows: Array, y: Array, columns: Array) -> list[Array]:
        return fetch_rows((x, rows), (y, columns))

    by_rows, whole = PartitionSpec(ROWS), PartitionSpec()
    # Every device ends with the same, which JAX's check cannot see.
    shared = jax.shard_map(
        own_part,
        mesh=mesh,
        in_specs=(by_rows, whole, by_rows, whole),
        out_specs=whole,
        check_vma=False,
    )
    taken: list[Array] = shared(x, rows, y, columns)
    return taken
