"""What a model folder must hold, checked before a model is made of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from anchordot_jax import dotted, maps
from anchordot_jax.errors import InputError
from anchordot_jax.matching.bank import Bank
from anchordot_jax.students import Params


def map_kind(info: Mapping[str, Any]) -> str:
    """Return the kind of a model's maps, a key of `maps.KINDS`."""
    return str(info.get("map", {}).get("kind", "students"))


def bank_tensors(bank: Bank | None) -> dict[str, np.ndarray]:
    """Return the arrays that `checked_bank` takes; none without a bank."""
    if bank is None:
        return {}
    return {"x": bank.x, "y": bank.y, "beta": np.asarray(bank.beta, np.float64)}


def checked_bank(
    tensors: Mapping[str, np.ndarray], dim: int, folder: Path
) -> Bank | None:
    """Return the tensors as a bank; raise InputError unless they are one."""
    if not tensors:
        return None
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    ok = shapes.keys() == {"x", "y", "beta"} and shapes["beta"] == ()
    ok = ok and all(
        len(shapes[side]) == 2 and shapes[side][0] > 0 and shapes[side][1] == dim
        for side in ("x", "y")
    )
    if not (ok and np.isfinite(tensors["beta"]) and tensors["beta"] > 0):
        raise InputError(
            f"{folder / 'bank.safetensors'} does not hold query banks of {dim} columns "
            f"and their beta; delete it to score by the cosine alone."
        )
    return Bank(tensors["x"], tensors["y"], float(tensors["beta"]))


def checked_results(metrics: Mapping[str, Any], folder: Path) -> dict[str, float]:
    """Return the stored results; raise InputError unless they are numbers by name."""
    results = metrics.get("results", {})
    if not isinstance(results, Mapping) or not all(
        isinstance(value, int | float) for value in results.values()
    ):
        raise InputError(
            f"{folder / 'metrics.json'} must hold results by name; delete what is "
            f"between the braces of `results`."
        )
    return dict(results)


def checked_params(
    tensors: Mapping[str, np.ndarray], info: Mapping[str, Any], folder: Path
) -> Params:
    """Return the tensors as params; raise InputError unless their kind has such."""
    _check_map(info, folder)
    kind = map_kind(info)
    if kind not in maps.KINDS:
        raise InputError(
            f"{folder / 'config.json'} names the maps {kind!r}, which this version "
            f"does not know ({', '.join(maps.KINDS)}); update anchordot-jax."
        )
    try:
        params: Params = dotted.unflatten(tensors)
        maps.KINDS[kind].check(params)
    except ValueError as error:
        what = "students" if kind == "students" else f"{kind} maps"
        raise InputError(
            f"{folder / 'model.safetensors'} does not hold a pair of {what}: "
            f"{error} is missing, unknown or of another shape."
        ) from None
    return params


def _check_map(info: Mapping[str, Any], folder: Path) -> None:
    """Raise InputError unless what is said of the maps is of JSON's simple types."""
    said = info.get("map", {})
    sides = said.values() if isinstance(said, Mapping) else [None]
    if not all(isinstance(side, str) or _are_settings(side) for side in sides):
        raise InputError(
            f"{folder / 'config.json'} does not describe its maps as a model does; "
            f"write the model again."
        )


def _are_settings(values: object) -> bool:
    return isinstance(values, Mapping) and all(
        isinstance(value, int | float | str) for value in values.values()
    )
