"""Peak memory of a stretch of work, not of the process since it began."""

import contextlib
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


class Peak:
    """The bytes that the process held at most, once the stretch has ended."""

    bytes: int = 0
    since_start: bool = True
    """Whether the figure is only known for the whole life of the process."""


@contextlib.contextmanager
def peak_memory() -> Iterator[Peak]:
    """Yield a record that holds the peak resident memory when the block ends.

    Linux forgets the earlier peak on request; elsewhere the figure is the process's
    peak so far, and says so.
    """
    peak = Peak()
    peak.since_start = not _forget_peak()
    yield peak
    peak.bytes = peak_bytes()


def _forget_peak() -> bool:
    try:
        CLEAR.write_text("5", encoding="ascii")
    except OSError:
        return False
    return STATUS.is_file()


def peak_bytes() -> int:
    """Return the most resident memory since the process began, or since it forgot."""
    if STATUS.is_file():
        found = re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text(encoding="ascii"))
        if found:
            return 1024 * int(found[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
