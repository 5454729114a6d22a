"""Image and text encoders of open_clip."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.encoders.base import Kind, text_of, versions
from anchordot_jax.encoders.images import decode
from anchordot_jax.encoders.libraries import torch as torches
from anchordot_jax.encoders.presets import Pooling, Preset
from anchordot_jax.encoders.weights import Weights, loading
from anchordot_jax.extras import needs


class OpenClipEncoder:
    """One tower of a model, with its projection."""

    def __init__(
        self,
        preset: Preset,
        kind: Kind,
        pooling: Pooling,
        weights: Weights,
        device: str | None,
    ) -> None:
        what = f"The encoder {preset.name}"
        self._torch = torches.load("open-clip", what)
        open_clip = needs("open_clip", extra="open-clip", what=what)
        self.kind = kind
        self._device = torches.device_of(self._torch, device)
        name, _, tag = weights.place.partition("/")
        if weights.local:
            name, tag = f"local-dir:{weights.place}", ""
        elif name.startswith("hf-hub:"):
            name, tag = weights.place, ""
        hub = _hub(open_clip, name, tag)
        with loading(preset, weights, "open_clip", hub), torches.quiet():
            model, _, self._transform = open_clip.create_model_and_transforms(
                name, pretrained=tag or None, device=self._device
            )
            self._tokenizer = open_clip.get_tokenizer(name)
        self._model = model.float().eval()
        blank = self._torch.zeros(1, 3, *_size(model), device=self._device)
        with torches.inference(self._torch):
            self.dim = int(model.encode_image(blank).shape[1])
        self.facts: Mapping[str, str] = {
            "encoder": preset.name,
            "revision": weights.revision or weights.place,
            "pooling": pooling,
            "versions": versions("open_clip_torch", "torch", "torchvision", "pillow"),
        }

    def prepare(self, value: Any) -> Any:
        """Return pixel values `[c, h, w]`, or the text."""
        if self.kind == "text":
            return text_of(value)
        return self._transform(decode(value))

    def encode(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """Return the projected rows, `[b, d]`."""
        with torches.inference(self._torch):
            if self.kind == "text":
                tokens = self._tokenizer(list(prepared)).to(self._device)
                return torches.rows_of(self._model.encode_text(tokens))
            pixels = self._torch.stack(list(prepared)).to(self._device)
            return torches.rows_of(self._model.encode_image(pixels))


def _hub(open_clip: Any, name: str, tag: str) -> str:
    """Return the hub's name of a model's weights, if open_clip knows it."""
    known = open_clip.get_pretrained_cfg(name, tag) if tag else {}
    return str(known.get("hf_hub") or "").rstrip("/")


def _size(model: Any) -> tuple[int, int]:
    size = model.visual.image_size
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
