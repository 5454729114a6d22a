"""Whether both pools are kept on the device, or streamed to it from where they lie."""

import os
from pathlib import Path, PurePosixPath

import jax
from jax.sharding import Mesh

from anchordot_jax.config import Config
from anchordot_jax.errors import InputError
from anchordot_jax.fit_inputs import FitData, pool_bytes

# Shares of the memory that pools may take by themselves: their coordinates and the
# chunks lie beside them on a device, and all of it, twice, in the host's memory.
DEVICE_SHARE = 0.5
HOST_SHARE = 0.25

MEMBERSHIP = Path("/proc/self/cgroup")
CONTROL_GROUPS = Path("/sys/fs/cgroup")


def granted(config: Config, mesh: Mesh | None = None) -> int | None:
    """Return the bytes that both pools may take as float32; None: whatever they take.

    By default half of the device's memory, and a quarter of the host's (of the control
    group's limit, where that is smaller). Over several devices, whose memory is not
    looked at, there is no limit, and none can be set.

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
    if mesh is not None:
        return None
    device = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    shares = ((device, DEVICE_SHARE), (_host_memory(), HOST_SHARE))
    known = [int(share * size) for size, share in shares if size is not None]
    return min(known, default=None)


def _host_memory() -> int | None:
    """Return the bytes of the host's memory that this process may take, if known."""
    if not hasattr(os, "sysconf"):
        return None
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([size, *control_group_limits()])


def control_group_limits(
    membership: Path = MEMBERSHIP, root: Path = CONTROL_GROUPS
) -> list[int]:
    """Return the limits of memory of this process's control groups, in bytes.

    A group is limited by those above it too. Within a container its own group can be
    the root, whatever name it has outside.

    Args:
        membership: lines of hierarchy:controllers:/path, as Linux tells them; elsewhere
            there is no such file.
        root: where the groups are mounted.
    """
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = PurePosixPath(path.lstrip("/"))
        found += [_limit_of(top / part / name) for part in (group, *group.parents)]
    return [limit for limit in found if limit is not None]


def _limit_of(file: Path) -> int | None:
    """Return the limit that a control group's file states; None: no limit, no file."""
    try:
        text = file.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def streaming_note(data: FitData) -> str:
    """Return the sentence that tells of a fit whose pools are streamed by default."""
    size = pool_bytes(data.pool_x, data.pool_y) / 1e9
    how = "read from their files" if data.stored else "moved to the device"
    return (
        f"Pools of {size:.3g} GB are {how} chunk by chunk; "
        f"--distillation.pool-memory sets the limit."
    )


def is_streamed(data: FitData, config: Config, mesh: Mesh | None = None) -> bool:
    """Return whether the pools' rows go to the device chunk by chunk.

    Raises:
        InputError: see `granted`, and pools that would be streamed by work that needs
            them whole.
    """
    limit = granted(config, mesh)
    if mesh is not None:
        data.whole_pools("A fit over several devices")
        return False
    if config.recipe == "refined":
        data.whole_pools("Recipe refined")
        return False
    size = pool_bytes(data.pool_x, data.pool_y)
    return data.stored or (limit is not None and size > limit)


def check_size(size: int, config: Config, mesh: Mesh | None = None) -> None:
    """Raise InputError unless the recipe can take pools of so many bytes as float32.

    For the start of a fit: what was fitted once can be looked at wherever it fits.
    """
    limit = granted(config, mesh)
    if config.recipe == "refined" and limit is not None and size > limit:
        raise InputError(
            f"Recipe refined takes both pools in memory, and here they are "
            f"{size / 1e9:.3g} GB as float32, more than the {limit / 1e9:.3g} GB of "
            f"distillation.pool_memory; take recipe paper, which streams them, or set "
            f"another limit."
        )
