"""The command run in this process, and a folder of small files for it."""

from pathlib import Path

import jax
import pytest

from anchordot_jax.cli.main import main
from planted import FIT, Cli, Outcome, write_files


def exit_code(arguments: list[str]) -> int:
    """Return the exit code of a command, also where it raises `SystemExit`."""
    try:
        return main(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return a function that runs a command and says how it went."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = exit_code([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a new folder of the small files, which is the working folder."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def fitted_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of the small files and of the run that was fitted to them."""
    folder = tmp_path_factory.mktemp("fitted")
    write_files(folder)
    with pytest.MonkeyPatch.context() as patch, jax.numpy_rank_promotion("raise"):
        patch.chdir(folder)
        if main(FIT) != 0:
            raise RuntimeError("the fit that other tests use failed")
    return folder


@pytest.fixture
def fitted_files(fitted_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return that folder as the working folder; tests leave it as it is."""
    monkeypatch.chdir(fitted_folder)
    return fitted_folder
