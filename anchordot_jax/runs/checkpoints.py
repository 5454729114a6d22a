"""Training checkpoints: the state after some epochs, kept by Orbax."""

from pathlib import Path

import jax
import orbax.checkpoint as ocp

from anchordot_jax.distillation import TrainState

KEPT = 2


def save_checkpoint(folder: Path, state: TrainState) -> None:
    """Write the state as step `state.epoch`; the two newest steps are kept."""
    with _manager(folder) as manager:
        arguments = ocp.args.StandardSave(state)
        manager.save(int(state.epoch), args=arguments, force=True)


def restore_checkpoint(folder: Path, template: TrainState) -> TrainState | None:
    """Return the newest saved state, or None where there is none.

    The template gives the tree and shapes; its values are not used.
    """
    if not folder.is_dir():
        return None
    with _manager(folder) as manager:
        step = manager.latest_step()
        if step is None:
            return None
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, template)
        state: TrainState = manager.restore(
            step, args=ocp.args.StandardRestore(abstract)
        )
        return state


def _manager(folder: Path) -> ocp.CheckpointManager:
    options = ocp.CheckpointManagerOptions(
        max_to_keep=KEPT, enable_async_checkpointing=False, create=True
    )
    return ocp.CheckpointManager(folder.absolute(), options=options)
