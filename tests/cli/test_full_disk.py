"""A full disk, a read-only folder and a folder in use: one sentence, nothing lost."""

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anchordot_jax.cli.main import is_disk_full
from anchordot_jax.runs.lock import sole_writer
from planted import FIT, Cli, tree


def mount(folder: Path, options: str) -> bool:
    """Return whether a small disk was mounted there, which takes root."""
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that is a disk of its own; skip where none can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mount(folder, "size=1m"):
        pytest.skip("mounting a small disk takes root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def resize(disk: Path, kilobytes: int) -> None:
    """Give the disk another size."""
    options = f"remount,size={kilobytes}k"
    subprocess.run(["mount", "-o", options, str(disk)], check=True)


@pytest.mark.slow
def test_a_fit_on_a_full_disk_goes_on_later(
    fitted_files: Path, cli: Cli, disk: Path
) -> None:
    """At whatever stage the disk fills up, the same command then ends as if never."""
    fit = [*FIT[: FIT.index("--out")], *FIT[FIT.index("--out") + 2 :], "--quiet"]
    whole = tree(fitted_files / "run" / "model")
    full = 0
    for kilobytes in (4, 12, 20, 28, 1060):
        resize(disk, kilobytes)
        code, out, err = cli(*fit, "--out", disk / "run")
        if code != 0:
            full += 1
            assert (code, out) == (1, "")
            assert err.startswith("anchordot: failed: the disk is full; "), err
            assert err.count("\n") == 1
        resize(disk, 4096)
        code, _, err = cli(*fit, "--out", disk / "run")
        assert code == 0, err
        assert tree(disk / "run" / "model") == whole
        assert not list((disk / "run").rglob(".*"))
        shutil.rmtree(disk / "run")
    assert full >= 4


@pytest.mark.parametrize("name", ["e.npy", "e.h5", "e.safetensors"])
def test_embedding_to_a_full_disk_keeps_the_older_file(
    fitted_files: Path, cli: Cli, disk: Path, name: str
) -> None:
    """The file that stood there is as it was, and no half of a new one is left."""
    (disk / name).write_bytes(b"older")
    np.save(disk.parent / "many.npy", np.tile(np.load("x.npy"), (5000, 1)))
    many = disk.parent / "many.npy"
    code, out, err = cli("embed", "run", "--x", many, "--out", disk / name)
    assert (code, out) == (1, "")
    assert err.startswith("anchordot: failed: the disk is full; "), err
    assert [path.name for path in disk.iterdir()] == [name]
    assert (disk / name).read_bytes() == b"older"


def test_a_full_disk_at_every_write(
    fitted_files: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without root: the first temporary file has no room; the command says so."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    code, _, err = cli("embed", "run", "--x", "x.npy", "--out", tmp_path / "e.npy")
    assert code == 1
    assert err.startswith("anchordot: failed: the disk is full; ")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_known_by_any_librarys_words() -> None:
    """A cause counts, and other errors do not."""
    said = ValueError("write failed: No space left on device [path='/x']")
    assert is_disk_full(said)
    other = RuntimeError("could not save")
    other.__cause__ = OSError(errno.EDQUOT, "over quota")
    assert is_disk_full(other)
    assert not is_disk_full(OSError(errno.EACCES, "denied"))


def test_a_read_only_folder_is_refused_for_writing_only(
    fitted_files: Path, cli: Cli, disk: Path
) -> None:
    """A run there still embeds and scores."""
    shutil.copytree("run", disk / "run")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    before = tree(disk)
    for out in (disk / "run", disk / "new"):
        code, _, err = cli(*FIT[: FIT.index("--out")], "--out", out)
        assert code == 2
        assert "cannot be written to (Read-only file system)" in err
    code, _, err = cli("embed", "run", "--x", "x.npy", "--out", disk / "e.npy")
    assert code == 2
    assert "cannot be written to" in err
    scored = cli("eval", disk / "run", "--x", "x.npy", "--y", "y.npy")
    assert (scored.code, scored.err) == (0, "")
    assert tree(disk) == before


def test_a_folder_in_use_is_refused(fitted_files: Path, cli: Cli) -> None:
    """A second fit there touches nothing; the first one's results stay."""
    before = tree(fitted_files)
    with sole_writer(Path("run")):
        for words in (FIT, [*FIT, "--overwrite"]):
            code, out, err = cli(*words)
            assert (code, out) == (2, "")
            assert err.startswith("anchordot: error: run is in use by another fit;")
    assert tree(fitted_files) == before
    assert cli(*FIT).code == 0
