"""Text encoders of sentence-transformers: MiniLM, NV-Embed, any."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.encoders.base import Kind, text_of, versions
from anchordot_jax.encoders.libraries import rdkit
from anchordot_jax.encoders.libraries import torch as torches
from anchordot_jax.encoders.presets import Pooling, Preset
from anchordot_jax.encoders.weights import Weights, loading
from anchordot_jax.extras import needs


class SentenceEncoder:
    """A model with the pooling it was saved with."""

    def __init__(
        self,
        preset: Preset,
        kind: Kind,
        pooling: Pooling,
        weights: Weights,
        device: str | None,
    ) -> None:
        what = f"The encoder {preset.name}"
        torch = torches.load(preset.extra, what)
        module = needs("sentence_transformers", extra=preset.extra, what=what)
        torches.hide_bars()
        self.kind = kind
        with loading(preset, weights, "sentence-transformers"), torches.quiet():
            self._model = module.SentenceTransformer(
                weights.place,
                device=str(torches.device_of(torch, device)),
                trust_remote_code=preset.remote_code,
                revision=weights.asked,
                local_files_only=weights.local,
            )
        # NV-Embed's authors end every text with the end-of-sequence token.
        self._end = ""
        if preset.name == "nv-embed-v2":
            self._model.max_seq_length = 32768
            self._model.tokenizer.padding_side = "right"
            self._end = str(self._model.tokenizer.eos_token)
        with torches.quiet():
            self.dim = int(self._encode(["a"]).shape[1])
        hub = f"{weights.place}@{weights.asked or 'main'}"
        self.facts: Mapping[str, str] = {
            "encoder": preset.name,
            "revision": weights.revision or hub,
            "pooling": pooling,
            "versions": versions("sentence-transformers", "transformers", "torch"),
        }

    def prepare(self, value: Any) -> Any:
        """Return the text."""
        return rdkit.parsable(value) if self.kind == "molecule" else text_of(value)

    def encode(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """Return the rows, `[b, d]`."""
        with torches.quiet():
            return self._encode([f"{text}{self._end}" for text in prepared])

    def _encode(self, texts: list[str]) -> NDArray[np.float32]:
        rows = self._model.encode(
            texts,
            batch_size=len(texts),
            show_progress_bar=False,
            convert_to_numpy=True,
        )
        return np.asarray(rows, np.float32)
