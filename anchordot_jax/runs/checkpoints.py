"""Training checkpoints: the state after some epochs, kept by Orbax.

Beside each state lies a digest of its numbers, so that a damaged one is never trained
on.
"""

import contextlib
import errno
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

from anchordot_jax.distillation import TrainState
from anchordot_jax.errors import InputError, reason
from anchordot_jax.runs.tensors import tensor_digest

KEPT = 2

ROOM = 1 << 20
"""Bytes that must be free beside twice the state's own: blocks of many small files."""


def save_checkpoint(folder: Path, state: TrainState) -> None:
    """Write the state as step `state.epoch`; the two newest steps are kept.

    Raises:
        OSError: the disk has no room for it.
    """
    _check_room(folder, state)
    with _manager(folder) as manager:
        arguments = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            digest=ocp.args.JsonSave({"sha256": _digest(state)}),
        )
        manager.save(int(state.epoch), args=arguments, force=True)


def restore_checkpoint(folder: Path, template: TrainState) -> TrainState | None:
    """Return the newest saved state, or None where there is none.

    The template gives the tree and shapes; its values are not used.

    Raises:
        InputError: the newest checkpoint is damaged.
    """
    if not folder.is_dir():
        return None
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, template)
    try:
        with _manager(folder) as manager:
            step = manager.latest_step()
            if step is None:
                return None
            found = manager.restore(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardRestore(abstract),
                    digest=ocp.args.JsonRestore(),
                ),
            )
    except Exception as error:
        raise InputError(
            f"{folder} holds a checkpoint that cannot be read "
            f"({type(error).__name__}: {reason(error)}); delete that folder to train "
            f"from the start."
        ) from error
    state: TrainState = found.state
    if (found.digest or {}).get("sha256") != _digest(state):
        raise InputError(
            f"{folder} holds a damaged checkpoint (the sha256 of its numbers differs); "
            f"delete that folder to train from the start."
        )
    return state


def _check_room(folder: Path, state: TrainState) -> None:
    """Raise OSError unless the disk has room: Orbax's threads fail with a traceback."""
    folder.mkdir(parents=True, exist_ok=True)
    needed = ROOM + 2 * sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    if shutil.disk_usage(folder).free < needed:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def _digest(state: TrainState) -> str:
    leaves, _ = jax.tree.flatten_with_path(state)
    return tensor_digest(
        {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
    )


@contextlib.contextmanager
def _manager(folder: Path) -> Iterator[ocp.CheckpointManager]:
    """Return a context with the manager, which speaks by what it raises alone.

    Its log repeats that, and so do its threads, whose event loop is gone by then.
    """
    options = ocp.CheckpointManagerOptions(
        max_to_keep=KEPT, enable_async_checkpointing=False, create=True
    )
    log, hook = logging.getLogger("absl"), sys.unraisablehook
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    sys.unraisablehook = lambda unraisable: None
    try:
        with ocp.CheckpointManager(folder.absolute(), options=options) as manager:
            yield manager
    except Exception:
        # Other tasks failed as well, which is said when they are collected, later.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
        raise
    finally:
        log.setLevel(level)
        sys.unraisablehook = hook
