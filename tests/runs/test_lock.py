"""One fit in a folder at a time; a dead process holds nothing."""

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anchordot_jax.errors import InputError
from anchordot_jax.runs import lock
from anchordot_jax.runs.lock import sole_writer
from planted import environment

pytestmark = pytest.mark.skipif(lock.fcntl is None, reason="no locks on this system")

HOLD = """
import sys, time
from pathlib import Path
from anchordot_jax.runs.lock import sole_writer
with sole_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    """While the first is at it, and no longer."""
    with sole_writer(tmp_path / "run"):
        with (
            pytest.raises(InputError, match=r"run is in use by another fit; wait"),
            sole_writer(tmp_path / "run"),
        ):
            pass
        (tmp_path / "run" / "kept").touch()
    with sole_writer(tmp_path / "run"):
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["kept"]


def test_a_killed_process_holds_no_lock(tmp_path: Path) -> None:
    """The kernel gives it back; nothing is left to be deleted by hand."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(InputError, match="in use"), sole_writer(tmp_path):
        pass
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with sole_writer(tmp_path):
        pass


def test_a_folder_made_in_vain_is_removed(tmp_path: Path) -> None:
    """Where nothing was written, nothing is left."""
    with pytest.raises(KeyError), sole_writer(tmp_path / "a" / "b"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some network file systems are."""

    def refuse(handle: int, operation: int) -> Any:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with sole_writer(tmp_path):
        pass
