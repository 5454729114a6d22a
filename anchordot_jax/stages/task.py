"""What every stage of a fit is given: data, settings, keys, and whom to tell."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from anchordot_jax import distillation
from anchordot_jax.config import Config
from anchordot_jax.fit_inputs import FitData
from anchordot_jax.listeners import Listener, Silent
from anchordot_jax.runs.run_folder import RunFolder
from anchordot_jax.stages.pool_memory import is_streamed
from anchordot_jax.transport.warm_start import check_start


class Keys(NamedTuple):
    """One random key a stage, so that stages can be resumed on their own."""

    selection: jax.Array
    median: jax.Array
    students: jax.Array
    chunks: jax.Array
    bank: jax.Array

    @classmethod
    def of(cls, seed: int) -> "Keys":
        """Return the keys of a seed."""
        return cls(*jax.random.split(jax.random.key(seed), len(cls._fields)))


class Task(NamedTuple):
    """One fit."""

    data: FitData
    config: Config
    anchors: distillation.Anchors
    """The anchors of `data`, on the device."""
    keys: Keys
    run: RunFolder | None
    """Stages found there are not run again; new ones are stored there."""
    listener: Listener
    mesh: Mesh | None
    """Devices to spread both pools over."""
    streamed: bool
    """Whether the pools' rows go to the device chunk by chunk."""

    @classmethod
    def of(
        cls,
        data: FitData,
        config: Config,
        *,
        run: RunFolder | None = None,
        listener: Listener | None = None,
        mesh: Mesh | None = None,
    ) -> "Task":
        """Return the fit of some data, with its keys.

        Raises:
            InputError: pools too large for what is asked, see `is_streamed`, or a
                setting that several devices do not know.
        """
        if mesh is not None:
            check_start(config.coupling)
        anchors = distillation.Anchors(
            jnp.asarray(data.anchors_x), jnp.asarray(data.anchors_y)
        )
        keys = Keys.of(config.seed)
        streamed = is_streamed(data, config, mesh)
        listener = listener or Silent()
        return cls(data, config, anchors, keys, run, listener, mesh, streamed)
