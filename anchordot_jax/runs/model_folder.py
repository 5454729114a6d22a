"""The folder that is the model.

config.json, model.safetensors, README.md (the card) and metrics.json, and where the
model corrects hubs its query bank, bank.safetensors. Reading it needs neither the
transport solver nor the checkpoint library.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from anchordot_jax import files
from anchordot_jax.errors import InputError

SCHEMA = 1
FILES = frozenset({"config.json", "model.safetensors", "README.md", "metrics.json"})
BANK = "bank.safetensors"
ALL_FILES = FILES | {BANK}


class ModelContents(NamedTuple):
    """What a model folder holds."""

    tensors: dict[str, np.ndarray]
    """Parameters by dotted name, such as `x.linear.kernel`."""
    config: dict[str, Any]
    metrics: dict[str, Any]
    bank: dict[str, np.ndarray]
    """Tensors of the query bank; empty where there is none."""


def write_model(
    folder: Path,
    tensors: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    metrics: Mapping[str, Any],
    card: str,
    bank: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a model folder; it appears complete or not at all."""
    files.check_writable(folder.parent)
    if folder.exists() and not _may_replace(folder):
        raise InputError(
            f"{folder} exists and is not a model folder, or holds other files too; "
            f"choose another place."
        )
    with files.replacing_folder(folder) as temporary:
        _write_tensors(temporary / "model.safetensors", tensors)
        if bank:
            _write_tensors(temporary / BANK, bank)
        files.write_json(temporary / "config.json", {"schema": SCHEMA, **config})
        files.write_json(temporary / "metrics.json", {"schema": SCHEMA, **metrics})
        (temporary / "README.md").write_text(card, encoding="utf-8")


def locate(folder: Path) -> Path:
    """Return the model folder of a run folder, or the folder itself.

    Raises:
        InputError: a run that has no model yet.
    """
    if (folder / "model").is_dir():
        return folder / "model"
    if (folder / "env.json").is_file():
        raise InputError(
            f"{folder} is a run that has no model yet; repeat its fit to finish it."
        )
    return folder


def read_model(folder: Path) -> ModelContents:
    """Return the contents of a model folder.

    Raises:
        InputError: no such folder, a file of it missing or damaged, or a schema newer
            than this version knows.
    """
    what = f"The model folder {folder}"
    if not folder.is_dir():
        raise InputError(f"{what} does not exist.")
    config = files.read_json(folder / "config.json", what)
    files.check_schema(config, SCHEMA, what)
    metrics = files.read_json(folder / "metrics.json", what)
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise InputError(f"{what} has no model.safetensors ({weights}).")
    bank = folder / BANK
    return ModelContents(
        _read_tensors(weights),
        config,
        metrics,
        _read_tensors(bank) if bank.is_file() else {},
    )


def _write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    tensors = {k: np.array(v, order="C") for k, v in tensors.items()}
    safetensors.numpy.save_file(tensors, path, metadata={"format": "np"})


def _read_tensors(path: Path) -> dict[str, np.ndarray]:
    try:
        tensors: dict[str, np.ndarray] = safetensors.numpy.load_file(path)
    except (OSError, safetensors.SafetensorError, AttributeError, KeyError) as error:
        # The last two for a type that NumPy lacks, such as floats of 8 bits.
        raise InputError(f"{path} could not be read: {error}.") from None
    return tensors


def _may_replace(folder: Path) -> bool:
    """Return whether the folder is empty, or holds a model of ours and nothing else."""
    if not folder.is_dir():
        return False
    names = {path.name for path in folder.iterdir()}
    if not names:
        return True
    if "config.json" not in names or not names <= ALL_FILES:
        return False
    return "schema" in files.read_json(folder / "config.json", f"The folder {folder}")
