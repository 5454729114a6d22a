"""The folder that is the model.

config.json, model.safetensors, README.md (the card) and metrics.json. Reading it needs
neither the transport solver nor the checkpoint library.
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


class ModelContents(NamedTuple):
    """What a model folder holds."""

    tensors: dict[str, np.ndarray]
    """Parameters by dotted name, such as `x.linear.kernel`."""
    config: dict[str, Any]
    metrics: dict[str, Any]


def write_model(
    folder: Path,
    tensors: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    metrics: Mapping[str, Any],
    card: str,
) -> None:
    """Write a model folder; it appears complete or not at all."""
    files.check_writable(folder.parent)
    if folder.exists() and not _may_replace(folder):
        raise InputError(
            f"{folder} exists and is not a model folder, or holds other files too; "
            f"choose another place."
        )
    with files.replacing_folder(folder) as temporary:
        tensors = {k: np.array(v, order="C") for k, v in tensors.items()}
        safetensors.numpy.save_file(
            tensors, temporary / "model.safetensors", metadata={"format": "np"}
        )
        files.write_json(temporary / "config.json", {"schema": SCHEMA, **config})
        files.write_json(temporary / "metrics.json", {"schema": SCHEMA, **metrics})
        (temporary / "README.md").write_text(card, encoding="utf-8")


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
    try:
        tensors = safetensors.numpy.load_file(weights)
    except (OSError, safetensors.SafetensorError, AttributeError, KeyError) as error:
        # The last two for a type that NumPy lacks, such as floats of 8 bits.
        raise InputError(f"{weights} could not be read: {error}.") from None
    return ModelContents(tensors, config, metrics)


def _may_replace(folder: Path) -> bool:
    """Return whether the folder is empty, or holds a model of ours and nothing else."""
    if not folder.is_dir():
        return False
    names = {path.name for path in folder.iterdir()}
    if not names:
        return True
    if "config.json" not in names or not names <= FILES:
        return False
    return "schema" in files.read_json(folder / "config.json", f"The folder {folder}")
