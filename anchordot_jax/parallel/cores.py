"""How many threads of this machine a process may use."""

import os


def available_cores() -> int:
    """Return the number of CPU cores that this process may run on, of a job's share."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
