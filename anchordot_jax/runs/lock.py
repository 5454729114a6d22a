"""One fit in a run folder at a time.

The lock is the kernel's, on the folder itself: it needs no file, and a killed process
leaves none behind.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from anchordot_jax import files
from anchordot_jax.errors import InputError
from anchordot_jax.parallel.mesh import is_first_process

try:
    import fcntl
except ImportError:  # Windows has none, and cannot open a folder either.
    fcntl = None  # type: ignore[assignment]

TAKEN = (errno.EWOULDBLOCK, errno.EACCES)


@contextlib.contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Return a context in which no other process fits in the folder.

    Of several processes of one fit the first holds the lock. The folder is made if need
    be, and removed again if it stays empty and something was raised. Where the file
    system knows no locks there is none.

    Raises:
        InputError: another process is at it, or the folder cannot be made.
    """
    if fcntl is None or not is_first_process():
        yield
        return
    files.check_writable(folder)
    with files.made(folder):
        handle = os.open(folder, os.O_RDONLY)
        try:
            if _locked(handle):
                yield
                return
        finally:
            os.close(handle)
    # Not raised within: the folder is the other fit's, and may still be empty.
    raise InputError(
        f"{folder} is in use by another fit; wait for its end, or choose another --out."
    )


def _locked(handle: int) -> bool:
    """Return whether the lock is ours, or the file system knows none."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in TAKEN
    return True
