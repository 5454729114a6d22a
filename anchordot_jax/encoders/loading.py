"""From the words on the command line to an encoder that is ready."""

import dataclasses
import importlib
from pathlib import Path

from anchordot_jax.encoders.base import Encoder
from anchordot_jax.encoders.presets import Library, Pooling, check_pooling, resolve
from anchordot_jax.encoders.weights import locate
from anchordot_jax.errors import InputError

HOMES: dict[Library, tuple[str, str]] = {
    "transformers": ("transformers", "TransformersEncoder"),
    "timm": ("timm", "TimmEncoder"),
    "sentence-transformers": ("sentence_transformers", "SentenceEncoder"),
    "open-clip": ("open_clip", "OpenClipEncoder"),
    "minimol": ("minimol", "MinimolEncoder"),
    "efficientnet-lite": ("efficientnet_lite", "EfficientNetLiteEncoder"),
    "rdkit": ("rdkit", "FingerprintEncoder"),
}


def load_encoder(
    spec: str,
    *,
    pooling: Pooling | None = None,
    weights: Path | None = None,
    revision: str | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
) -> Encoder:
    """Return the encoder that a user's words name, with its weights loaded.

    Args:
        spec: a preset, `hf:MODEL`, `timm:MODEL`, `st:MODEL`, `open-clip:MODEL/TAG` or
            a folder; with `:image`, `:text` or `:molecule` behind it to choose.
        pooling: how tokens become one row; the preset's own choice if None.
        weights: a folder of weights, one sub-folder an encoder.
        revision: the revision wanted from the hub.
        device: torch's name of a device; the fastest one if None.
        trust_remote_code: whether code of the model's repository may run here.

    Raises:
        InputError: there is no such encoder, its library or weights are missing, or it
            needs code of its repository and that was not allowed.
    """
    preset, kind = resolve(spec)
    chosen = check_pooling(preset, pooling)
    if preset.remote_code and not trust_remote_code:
        raise InputError(
            f"{preset.name} runs Python code from its repository ({preset.model}); "
            "read it, then pass --trust-remote-code."
        )
    preset = dataclasses.replace(preset, remote_code=trust_remote_code)
    module, name = HOMES[preset.library]
    home = importlib.import_module(f"anchordot_jax.encoders.libraries.{module}")
    place = locate(preset, weights, revision)
    encoder: Encoder = getattr(home, name)(preset, kind, chosen, place, device)
    return encoder
