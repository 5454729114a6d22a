"""Image encoders of timm, with the preprocessing stored with their weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.encoders.base import Kind, versions
from anchordot_jax.encoders.images import decode
from anchordot_jax.encoders.libraries import torch as torches
from anchordot_jax.encoders.presets import Pooling, Preset
from anchordot_jax.encoders.weights import Weights, loading
from anchordot_jax.errors import InputError
from anchordot_jax.extras import needs


class TimmEncoder:
    """A timm model without its classifier; `own` is its pooled feature."""

    kind: Kind = "image"

    def __init__(
        self,
        preset: Preset,
        kind: Kind,
        pooling: Pooling,
        weights: Weights,
        device: str | None,
    ) -> None:
        what = f"The encoder {preset.name}"
        self._torch = torches.load("timm", what)
        timm = needs("timm", extra="timm", what=what)
        self._pooling = pooling
        self._device = torches.device_of(self._torch, device)
        name = f"local-dir:{weights.place}" if weights.local else weights.place
        with loading(preset, weights, "timm"), torches.quiet():
            model = timm.create_model(name, pretrained=True, num_classes=0)
        self._model = model.float().eval().to(self._device)
        config = timm.data.resolve_model_data_config(model)
        self._transform = timm.data.create_transform(**config, is_training=False)
        if pooling != "own" and getattr(model, "num_prefix_tokens", 0) < 1:
            raise InputError(
                f"{preset.name} has no class token; its only pooling is own."
            )
        self.dim = int(model.num_features) * (2 if pooling == "concat" else 1)
        self.facts: Mapping[str, str] = {
            "encoder": preset.name,
            "revision": weights.revision or f"{weights.place}@{_commit(model)}",
            "pooling": pooling,
            "versions": versions("timm", "torch", "torchvision", "pillow"),
        }

    def prepare(self, value: Any) -> Any:
        """Return pixel values `[c, h, w]`."""
        return self._transform(decode(value))

    def encode(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """Return the pooled rows, `[b, d]`."""
        with torches.inference(self._torch):
            pixels = self._torch.stack(list(prepared)).to(self._device)
            if self._pooling == "own":
                return torches.rows_of(self._model(pixels))
            tokens = self._model.forward_features(pixels)
            prefix = self._model.num_prefix_tokens
            return torches.rows_of(
                torches.pool(self._torch, tokens, None, self._pooling, prefix)
            )


def _commit(model: Any) -> str:
    return str((getattr(model, "pretrained_cfg", None) or {}).get("hf_hub_id", ""))
