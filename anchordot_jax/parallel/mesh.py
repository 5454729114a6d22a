"""One mesh axis over the devices, and arrays whose rows are spread over it.

Rows that the devices do not divide are filled up with zero rows at the end; they carry
no weight in the transport and are drawn for no chunk.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array
from numpy.typing import ArrayLike

from anchordot_jax.errors import InputError

ROWS = "rows"
"""Name of the mesh axis."""


def make_mesh(devices: str = "all") -> Mesh:
    """Return a mesh over all devices of all processes, or over the first few.

    Args:
        devices: "all", or a number of devices as text.

    Raises:
        InputError: neither, or more devices than there are.
    """
    found = jax.devices()
    if devices == "all":
        return _mesh(found)
    if not devices.isdecimal() or int(devices) < 1:
        raise InputError(f"devices must be all or a number >= 1, got {devices!r}.")
    if int(devices) > len(found):
        raise InputError(
            f"devices is {devices}, but JAX sees {len(found)} "
            f"({jax.default_backend()}); give at most {len(found)}, or all."
        )
    if jax.process_count() > 1 and int(devices) < len(found):
        raise InputError(
            f"devices is {devices} of {len(found)}, which would leave a process "
            f"without work; with several processes give all."
        )
    return _mesh(found[: int(devices)])


def _mesh(devices: list[jax.Device]) -> Mesh:
    # Explicit axes, JAX's default, make every product of a sharded array an error
    # until its sharding is spelled out.
    return jax.make_mesh((len(devices),), (ROWS,), (AxisType.Auto,), devices=devices)


def initialize(
    coordinator: str | None = None,
    n_processes: int | None = None,
    process: int | None = None,
    *,
    timeout: int = 300,
) -> None:
    """Join this process with the others of a multi-host run.

    Without arguments JAX finds the others itself on Slurm, Open MPI and TPU pods.

    Args:
        coordinator: "host:port" of process 0.
        n_processes: number of processes.
        process: this process's number, from 0.
        timeout: seconds to wait for the others.

    Raises:
        InputError: the others could not be found or joined.
    """
    given = [coordinator is not None, n_processes is not None, process is not None]
    if any(given) and not all(given):
        raise InputError(
            "coordinator, processes and process belong together; give all three, or "
            "none on Slurm, Open MPI and TPU pods."
        )
    try:
        jax.distributed.initialize(
            coordinator, n_processes, process, initialization_timeout=timeout
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"The processes could not be joined ({reason}); give coordinator, "
            f"processes and process, or start them by Slurm, Open MPI or on a TPU pod."
        ) from None


def shard_rows(rows: ArrayLike, mesh: Mesh) -> Array:
    """Return the rows spread evenly over the mesh, filled up with zero rows.

    Every process passes the whole array; each device keeps only its part of it.
    """
    sharding = NamedSharding(mesh, PartitionSpec(ROWS))
    if isinstance(rows, jax.Array) and not rows.is_fully_addressable:
        # Spread over several processes already, and filled up.
        moved: Array = jax.jit(lambda rows: rows, out_shardings=sharding)(rows)
        return moved
    host = np.asarray(rows)
    missing = -len(host) % mesh.size
    shape = (len(host) + missing, *host.shape[1:])

    def part(index: Any) -> np.ndarray:
        start, stop, _ = index[0].indices(shape[0])
        own = host[start:stop]
        fill = [(0, stop - start - len(own))] + [(0, 0)] * (host.ndim - 1)
        return np.pad(own, fill)

    return jax.make_array_from_callback(shape, sharding, part)


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Return the arrays of a tree, the same on every device of the mesh."""
    sharding = NamedSharding(mesh, PartitionSpec())

    def everywhere(leaf: Any) -> Array:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            data = everywhere(jax.random.key_data(leaf))
            key: Array = jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
            return key
        host = np.asarray(leaf)
        return jax.make_array_from_callback(host.shape, sharding, host.__getitem__)

    return jax.tree.map(everywhere, tree)


def place_rows(rows: ArrayLike, mesh: Mesh | None) -> Array:
    """Return the rows on the device, or spread over those of a mesh."""
    return jnp.asarray(rows) if mesh is None else shard_rows(rows, mesh)


def everywhere(tree: Any, mesh: Mesh | None) -> Any:
    """Return the arrays as they are, or on all devices of a mesh."""
    return tree if mesh is None else replicate(tree, mesh)


def wait_for_all(name: str) -> None:
    """Return once every process of the run has come here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def is_first_process() -> bool:
    """Return whether this process is the one that writes and prints."""
    return jax.process_index() == 0
