"""Align two frozen embedding spaces from a few hundred pairs.

The names below are imported on first use, so that `import anchordot_jax` is instant and
loading a model does not import the transport solver.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOMES = {
    "AlignedModel": "anchordot_jax.model",
    "AnchorDOT": "anchordot_jax.alignment",
    "Config": "anchordot_jax.config",
    "Coupling": "anchordot_jax.coupling",
    "CouplingConfig": "anchordot_jax.config",
    "DistillationConfig": "anchordot_jax.config",
    "InputError": "anchordot_jax.errors",
    "SelectionConfig": "anchordot_jax.config",
    "UnbalancedConfig": "anchordot_jax.diagnostics.settings",
    "block_targets": "anchordot_jax.coupling",
    "coordinate_maps": "anchordot_jax.profiles",
    "coordinates": "anchordot_jax.profiles",
    "diagnose": "anchordot_jax.diagnostics.diagnosis",
    "evaluate": "anchordot_jax.evaluation",
    "fit_basis": "anchordot_jax.profiles",
    "load_dataset": "anchordot_jax.data",
    "load_openclipart": "anchordot_jax.data",
    "open_embeddings": "anchordot_jax.data",
    "plan_block": "anchordot_jax.coupling",
    "profile": "anchordot_jax.profiles",
    "protocol_split": "anchordot_jax.data",
    "solve_coupling": "anchordot_jax.coupling",
    "solve_unbalanced": "anchordot_jax.diagnostics.unbalanced",
}

if TYPE_CHECKING:
    from anchordot_jax.alignment import AnchorDOT as AnchorDOT
    from anchordot_jax.config import Config as Config
    from anchordot_jax.config import CouplingConfig as CouplingConfig
    from anchordot_jax.config import DistillationConfig as DistillationConfig
    from anchordot_jax.config import SelectionConfig as SelectionConfig
    from anchordot_jax.coupling import Coupling as Coupling
    from anchordot_jax.coupling import block_targets as block_targets
    from anchordot_jax.coupling import plan_block as plan_block
    from anchordot_jax.coupling import solve_coupling as solve_coupling
    from anchordot_jax.data import load_dataset as load_dataset
    from anchordot_jax.data import load_openclipart as load_openclipart
    from anchordot_jax.data import open_embeddings as open_embeddings
    from anchordot_jax.data import protocol_split as protocol_split
    from anchordot_jax.diagnostics.diagnosis import diagnose as diagnose
    from anchordot_jax.diagnostics.settings import UnbalancedConfig as UnbalancedConfig
    from anchordot_jax.diagnostics.unbalanced import (
        solve_unbalanced as solve_unbalanced,
    )
    from anchordot_jax.errors import InputError as InputError
    from anchordot_jax.evaluation import evaluate as evaluate
    from anchordot_jax.model import AlignedModel as AlignedModel
    from anchordot_jax.profiles import coordinate_maps as coordinate_maps
    from anchordot_jax.profiles import coordinates as coordinates
    from anchordot_jax.profiles import fit_basis as fit_basis
    from anchordot_jax.profiles import profile as profile

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    """Return a public name, importing the module that defines it."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
