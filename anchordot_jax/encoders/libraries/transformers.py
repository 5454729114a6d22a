"""Encoders of Hugging Face transformers: DINOv2/3, CLIP, SigLIP, MoLFormer, any."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.encoders.base import Kind, text_of, versions
from anchordot_jax.encoders.images import decode
from anchordot_jax.encoders.libraries import rdkit
from anchordot_jax.encoders.libraries import torch as torches
from anchordot_jax.encoders.presets import Pooling, Preset
from anchordot_jax.encoders.weights import Weights, loading
from anchordot_jax.errors import InputError
from anchordot_jax.extras import needs

# Text models without a limit of their own in the tokenizer say this or more.
NO_LIMIT = 100_000
LONGEST = 512


class TransformersEncoder:
    """A model with its own processor, and a pooling of its last hidden states.

    The pooling `own` is what the model gives as one vector: the projection of a dual
    encoder (CLIP, SigLIP), else its pooler.
    """

    def __init__(
        self,
        preset: Preset,
        kind: Kind,
        pooling: Pooling,
        weights: Weights,
        device: str | None,
    ) -> None:
        what = f"The encoder {preset.name}"
        self._torch = torches.load("transformers", what)
        transformers = needs("transformers", extra="transformers", what=what)
        torches.hide_bars()
        self.kind = kind
        self._name = preset.name
        self._pooling = pooling
        self._device = torches.device_of(self._torch, device)
        options: dict[str, Any] = {"trust_remote_code": preset.remote_code}
        if weights.local:
            options["local_files_only"] = True
        elif weights.asked:
            options["revision"] = weights.asked
        with loading(preset, weights, "transformers"), torches.quiet():
            model = transformers.AutoModel.from_pretrained(weights.place, **options)
            self._model = model.float().eval().to(self._device)
            if kind == "image":
                self._processor = _image_processor(transformers, weights, options)
            else:
                self._processor = transformers.AutoTokenizer.from_pretrained(
                    weights.place, **options
                )
        self._dual = hasattr(model, f"get_{kind}_features")
        self.dim = self._find_dim()
        commit = getattr(model.config, "_commit_hash", None)
        self.facts: Mapping[str, str] = {
            "encoder": preset.name,
            "revision": weights.revision or f"{weights.place}@{commit}",
            "pooling": pooling,
            "versions": versions("transformers", "torch", "tokenizers", "pillow"),
        }

    def prepare(self, value: Any) -> Any:
        """Return pixel values `[c, h, w]`, or the text."""
        if self.kind == "molecule":
            return rdkit.parsable(value)
        if self.kind == "text":
            return text_of(value)
        found = self._processor(images=decode(value), return_tensors="np")
        return np.asarray(found["pixel_values"][0], np.float32)

    def encode(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """Return the pooled rows, `[b, d]`."""
        with torches.inference(self._torch):
            if self.kind == "image":
                pixels = self._torch.from_numpy(np.stack(list(prepared)))
                inputs = {"pixel_values": pixels.to(self._device)}
            else:
                inputs = self._tokens(list(prepared))
            return torches.rows_of(self._pooled(inputs))

    def _tokens(self, texts: list[str]) -> dict[str, Any]:
        limit = int(getattr(self._processor, "model_max_length", NO_LIMIT))
        config = getattr(self._model.config, "text_config", self._model.config)
        most = int(getattr(config, "max_position_embeddings", 0) or LONGEST)
        # SigLIP reads the last token of texts padded to its full length.
        full = "siglip" in str(self._model.config.model_type)
        found = self._processor(
            texts,
            padding="max_length" if full else True,
            truncation=True,
            max_length=min(limit, most),
            return_tensors="pt",
        )
        return {name: tensor.to(self._device) for name, tensor in found.items()}

    def _pooled(self, inputs: dict[str, Any]) -> Any:
        if self._pooling == "own" and self._dual:
            found = getattr(self._model, f"get_{self.kind}_features")(**inputs)
            # Since transformers 5 an output object; before it, the tensor itself.
            return getattr(found, "pooler_output", found)
        part = self._model
        if self._dual:
            part = self._model.vision_model if self.kind == "image" else part.text_model
        output = part(**inputs)
        if self._pooling == "own":
            return self._own(output)
        prefix = self._prefix(output.last_hidden_state.shape[1])
        return torches.pool(
            self._torch,
            output.last_hidden_state,
            inputs.get("attention_mask"),
            self._pooling,
            prefix,
        )

    def _own(self, output: Any) -> Any:
        """Return the model's pooler output.

        Raises:
            InputError: it has none.
        """
        pooled = getattr(output, "pooler_output", None)
        if pooled is None:
            raise InputError(
                f"{self._name} gives no vector of its own; choose the pooling cls, "
                "mean or concat."
            )
        return pooled

    def _prefix(self, tokens: int) -> int:
        """Return how many class and register tokens stand before the patches."""
        if self.kind != "image":
            return 0
        config = getattr(self._model.config, "vision_config", self._model.config)
        registers = int(getattr(config, "num_register_tokens", 0) or 0)
        side = int(getattr(config, "patch_size", 0) or 0)
        size = getattr(config, "image_size", 0)
        if side and isinstance(size, int) and tokens == (size // side) ** 2:
            return 0
        return 1 + registers

    def _find_dim(self) -> int:
        """Return the columns of a row, from one dummy item."""
        if self.kind != "image":
            return int(self.encode(["C"]).shape[1])
        image = needs("PIL.Image", extra="images", what="Reading images")
        blank = image.new("RGB", (64, 64))
        found = self._processor(images=blank, return_tensors="np")
        return int(self.encode([found["pixel_values"][0]]).shape[1])


def _image_processor(
    transformers: Any, weights: Weights, options: dict[str, Any]
) -> Any:
    """Return the processor that works on PIL images, whatever else is installed.

    It gives the same numbers with and without torchvision.
    """
    major = int(transformers.__version__.partition(".")[0])
    slow = {"backend": "pil"} if major >= 5 else {"use_fast": False}
    return transformers.AutoImageProcessor.from_pretrained(
        weights.place, **options, **slow
    )
