"""Molecular fingerprints of RDKit, and the check that a SMILES string is one."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.encoders.base import Kind, Rejected, versions
from anchordot_jax.encoders.presets import Pooling, Preset
from anchordot_jax.encoders.weights import Weights
from anchordot_jax.extras import needs

RADIUS = 2
BITS = 2048
KEYS = 167
WIDTH = 768
EXTRA = "molecules"


class FingerprintEncoder:
    """Morgan counts (log1p) and MACCS keys, each of unit norm, projected to 768.

    The projection is Gaussian, `default_rng(0).standard_normal((2215, 768))`: cosines
    are kept up to about 1/sqrt(768), and nothing was learned from any data.
    """

    kind: Kind = "molecule"
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
        generators = needs("rdkit.Chem.rdFingerprintGenerator", extra=EXTRA, what=what)
        self._maccs = needs("rdkit.Chem.MACCSkeys", extra=EXTRA, what=what)
        self._chem = quiet_chem()
        self._morgan = generators.GetMorganGenerator(
            radius=RADIUS, fpSize=BITS, includeChirality=True
        )
        draws = np.random.default_rng(0)
        self._projection = draws.standard_normal((BITS + KEYS, WIDTH))
        self.facts: Mapping[str, str] = {
            "encoder": preset.name,
            "revision": versions("rdkit"),
            "pooling": pooling,
            "versions": versions("rdkit", "numpy"),
        }

    def prepare(self, value: Any) -> Any:
        """Return the molecule of a SMILES string as its unprojected fingerprint."""
        molecule = self._chem.MolFromSmiles(parsable(value))
        counts = np.asarray(self._morgan.GetCountFingerprintAsNumPy(molecule), float)
        keys = np.zeros(KEYS)
        keys[list(self._maccs.GenMACCSKeys(molecule).GetOnBits())] = 1.0
        return np.concatenate([_unit(np.log1p(counts)), _unit(keys)])

    def encode(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """Return the projected fingerprints, `[b, 768]`."""
        return np.asarray(np.stack(list(prepared)) @ self._projection, np.float32)


def parsable(value: Any) -> str:
    """Return a SMILES string that RDKit can read.

    Raises:
        Rejected: it is empty or cannot be parsed.
    """
    chem = quiet_chem()
    smiles = str(value).strip()
    if not smiles:
        raise Rejected("empty SMILES")
    molecule = chem.MolFromSmiles(smiles)
    if molecule is None:
        raise Rejected(f"RDKit cannot parse the SMILES {smiles[:60]!r}")
    if not molecule.GetNumAtoms():
        raise Rejected(f"the SMILES {smiles[:60]!r} has no atoms")
    return smiles


@functools.cache
def quiet_chem() -> Any:
    """Return RDKit's chemistry; its own log is off, since reasons are listed."""
    needs("rdkit.rdBase", extra=EXTRA, what="Reading SMILES").DisableLog("rdApp.*")
    return needs("rdkit.Chem", extra=EXTRA, what="Reading SMILES")


def _unit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    norm = float(np.linalg.norm(values))
    return values / norm if norm else values
