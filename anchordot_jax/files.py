"""Writing files so that a reader never sees half of one."""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from anchordot_jax.errors import InputError, reason

SEAL = "sha256"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it there if nothing is raised."""
    with made(path.parent):
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix
        )
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield an empty temporary folder beside `path`; rename it there at the end.

    A folder that stood at `path` is removed once the new one is complete.
    """
    with made(path.parent):
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            old = None
            if path.exists():
                old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
                path.replace(old)
            temporary.replace(path)
            if old is not None:
                shutil.rmtree(old)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make a folder and those above it; remove the empty ones if anything is raised."""
    missing = [
        each
        for each in (folder.absolute(), *folder.absolute().parents)
        if not each.exists()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for each in missing:
            with contextlib.suppress(OSError):
                each.rmdir()
        raise


def write_json(
    path: Path, values: Mapping[str, Any], *, indent: int | None = 2
) -> None:
    """Write a mapping as JSON, atomically."""
    with replacing(path) as temporary:
        text = json.dumps(values, indent=indent, allow_nan=False) + "\n"
        temporary.write_text(text, encoding="utf-8")


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with a `sha256` of them, by which damage is noticed."""
    return {**values, SEAL: _digest(values)}


def check_seal(values: Mapping[str, Any], path: Path) -> None:
    """Raise InputError if the values read from a file are not those it was sealed with.

    Values without a seal are let through.
    """
    rest = {name: value for name, value in values.items() if name != SEAL}
    if SEAL in values and values[SEAL] != _digest(rest):
        raise InputError(
            f"{path} was damaged or changed after it was written: its values do not "
            f"match their sha256."
        )


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Return the JSON object of a file.

    Raises:
        InputError: the file is missing, is not JSON or holds no object.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{what} has no {path.name} ({path}).") from None
    except (OSError, ValueError, RecursionError) as error:
        said = reason(error)
        raise InputError(f"{path} could not be read as JSON: {said}.") from None
    if not isinstance(values, dict):
        raise InputError(
            f"{path} must hold a JSON object, got {type(values).__name__}."
        )
    return values


def check_writable(folder: Path) -> None:
    """Raise InputError unless the folder, or what there is of it, can be written to.

    It is not made yet: a command that fails later leaves nothing behind.
    """
    paths = (folder.absolute(), *folder.absolute().parents)
    nearest = next(path for path in paths if path.exists() or path.is_symlink())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except NotADirectoryError:
        raise InputError(
            f"{folder} cannot be an output folder: a file of that name is in the way."
        ) from None
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written to ({error.strerror}); choose another --out."
        ) from None


def check_output_file(path: Path) -> None:
    """Raise InputError unless a file can be written at the path."""
    check_writable(path.absolute().parent)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file.")


def check_schema(values: Mapping[str, Any], newest: int, what: str) -> None:
    """Raise InputError unless the schema number is one this version can read."""
    schema = values.get("schema")
    if not isinstance(schema, int) or schema < 1:
        raise InputError(f"{what} names no schema number; it is not one of ours.")
    if schema > newest:
        raise InputError(
            f"{what} has schema {schema}, and this version reads up to {newest}; "
            f"upgrade anchordot-jax."
        )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
