"""The files that a run was fitted to, so that later verbs find them again."""

from pathlib import Path
from typing import NamedTuple

from anchordot_jax import files
from anchordot_jax.errors import InputError

NAME = "sources.json"
SCHEMA = 1


class Sources(NamedTuple):
    """FILE or FILE::dataset of everything that a fit read; None where not given."""

    x: str
    y: str
    pool_x: str | None = None
    pool_y: str | None = None
    weights_x: str | None = None
    weights_y: str | None = None

    def absolute(self) -> "Sources":
        """Return the same files named from the root, for use from another folder."""
        values = self._asdict()
        return self._replace(**{k: _absolute(v) for k, v in values.items() if v})


def write_sources(run: Path, sources: Sources) -> None:
    """Write sources.json; file names become absolute."""
    values = sources.absolute()._asdict()
    files.write_json(run / NAME, {"schema": SCHEMA, **values})


def read_sources(run: Path) -> Sources | None:
    """Return the files of a run; None where it does not name them.

    Raises:
        InputError: sources.json is damaged.
    """
    path = run / NAME
    if not path.is_file():
        return None
    values = files.read_json(path, f"The run {run}")
    files.check_schema(values, SCHEMA, str(path))
    del values["schema"]
    try:
        found = Sources(**values)
    except TypeError:
        found = None
    if found is None or not _is_valid(found):
        raise InputError(f"{path} does not name the run's files; give --x and --y.")
    return found


def _is_valid(sources: Sources) -> bool:
    """Return whether x and y are named, and the others are names or not given."""
    optional = sources[2:]
    return all(isinstance(name, str) for name in sources[:2]) and all(
        name is None or isinstance(name, str) for name in optional
    )


def _absolute(name: str) -> str:
    """Return FILE::dataset with FILE absolute."""
    file, separator, dataset = name.partition("::")
    return f"{Path(file).absolute()}{separator}{dataset}"
