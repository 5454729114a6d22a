"""Whether both pools are kept on the device, or streamed to it from where they lie."""

import os

import jax
from jax.sharding import Mesh

from anchordot_jax.config import Config
from anchordot_jax.data.stored_pool import StoredPool
from anchordot_jax.errors import InputError
from anchordot_jax.fit_inputs import FitData, pool_bytes

# Shares of the memory that pools may take by themselves: their coordinates and the
# chunks lie beside them on a device, and all of it, twice, in the host's memory.
DEVICE_SHARE = 0.5
HOST_SHARE = 0.25


def granted(config: Config, mesh: Mesh | None = None) -> int | None:
    """Return the bytes that both pools may take as float32; None: whatever they take.

    By default half of the device's memory, and a quarter of the host's, for what can
    be streamed: the paper's recipe on one device.

    Raises:
        InputError: a limit that was set for a fit on several devices.
    """
    limit = config.distillation.pool_memory
    if mesh is not None and limit is not None:
        raise InputError(
            "distillation.pool_memory is for one device, and over several the pools "
            "are spread, not streamed; leave out the one or the other."
        )
    if limit is not None:
        return limit
    if mesh is not None or config.recipe == "refined":
        return None
    device = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    shares = ((device, DEVICE_SHARE), (_host_memory(), HOST_SHARE))
    known = [int(share * size) for size, share in shares if size is not None]
    return min(known, default=None)


def _host_memory() -> int | None:
    """Return the bytes of the host's memory, where the system tells them."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def is_streamed(data: FitData, config: Config, mesh: Mesh | None = None) -> bool:
    """Return whether the pools' rows go to the device chunk by chunk.

    Raises:
        InputError: see `granted`, and pools that stay in their files for work that
            needs them whole.
    """
    limit = granted(config, mesh)
    sides = data.pool_x, data.pool_y
    if mesh is not None or config.recipe == "refined":
        data.whole_pools("A fit over several devices" if mesh else "Recipe refined")
        return False
    stored = any(isinstance(side, StoredPool) for side in sides)
    return stored or (limit is not None and pool_bytes(*sides) > limit)
