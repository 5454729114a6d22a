"""The first stage: gamma, eta and rho by held-out anchors, once a run folder."""

import numpy as np

from anchordot_jax import selection
from anchordot_jax.errors import InputError
from anchordot_jax.listeners import Interrupted
from anchordot_jax.runs import stage
from anchordot_jax.runs.run_folder import RunFolder
from anchordot_jax.stages.task import Task


def choose(task: Task) -> selection.Selection:
    """Return the choice; every process of a run makes it, and takes the first's.

    Raises:
        Interrupted: the listener asked to stop.
    """
    listener = task.listener

    def report(done: int, total: int) -> None:
        listener.selecting(done, total)
        if listener.should_stop():
            raise Interrupted("Stopped while choosing gamma and eta.")

    def make() -> selection.Selection:
        # Nothing is read of streamed pools where nothing is chosen.
        return selection.without_pools(
            len(task.anchors.x), task.config
        ) or selection.select(
            task.anchors.x,
            task.anchors.y,
            *_looked_at(task),
            task.config,
            key=task.keys.selection,
            progress=report,
        )

    return stage.once(
        task.run,
        make,
        load=RunFolder.load_selection,
        save=RunFolder.save_selection,
        name="the selection",
    )


def _looked_at(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Return the pools, or the rows of streamed ones that the choice looks at.

    Raises:
        InputError: no limit of those rows, and pools too large for memory.
    """
    data, config = task.data, task.config
    if not task.streamed:
        return data.whole_pools("The choice by held-out anchors")
    if config.selection.pool_limit is None and data.stored:
        raise InputError(
            "selection.pool_limit is None, so that the choice by held-out anchors "
            "looks at whole pools, and these stay in their files; set "
            "selection.pool_limit, or give gamma and eta, or raise "
            "distillation.pool_memory."
        )
    n, m = len(data.pool_x), len(data.pool_y)
    rows_x, rows_y = selection.subset_rows(n, m, config, key=task.keys.selection)
    return (
        data.pool_x[np.arange(n) if rows_x is None else rows_x],
        data.pool_y[np.arange(m) if rows_y is None else rows_y],
    )
