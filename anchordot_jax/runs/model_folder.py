"""The folder that is the model.

config.json, model.safetensors, README.md (the card) and metrics.json, and where the
model corrects hubs its query bank, bank.safetensors. Each but the card holds a sha256
of its contents. Reading it needs neither the
transport solver nor the checkpoint library.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anchordot_jax import files
from anchordot_jax.errors import InputError
from anchordot_jax.runs.tensors import read_tensors, write_tensors

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
        write_tensors(temporary / "model.safetensors", tensors)
        if bank:
            write_tensors(temporary / BANK, bank)
        for name, values in (("config.json", config), ("metrics.json", metrics)):
            record = files.sealed({"schema": SCHEMA, **values})
            files.write_json(temporary / name, record)
        (temporary / "README.md").write_text(card, encoding="utf-8")


def write_results(folder: Path, metrics: Mapping[str, Any], card: str) -> None:
    """Replace a model's results and its card, the rest staying as it is."""
    with files.replacing(folder / "README.md") as temporary:
        temporary.write_text(card, encoding="utf-8")
    record = files.sealed({"schema": SCHEMA, **metrics})
    files.write_json(folder / "metrics.json", record)


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
    for name, values in (("config.json", config), ("metrics.json", metrics)):
        files.check_seal(values, folder / name)
        values.pop(files.SEAL, None)
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise InputError(f"{what} has no model.safetensors ({weights}).")
    bank = folder / BANK
    return ModelContents(
        read_tensors(weights),
        config,
        metrics,
        read_tensors(bank) if bank.is_file() else {},
    )


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
