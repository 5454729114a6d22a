"""The third stage: the students' epochs, with checkpoints to resume from."""

import functools
import math
from collections.abc import Callable

from anchordot_jax import distillation
from anchordot_jax.listeners import Interrupted
from anchordot_jax.parallel.mesh import everywhere
from anchordot_jax.stages.task import Task
from anchordot_jax.students import Params
from anchordot_jax.training import spread_distillation, streamed_distillation

CHECKPOINTS_PER_RUN = 10


def train(
    task: Task, pools: distillation.Pools, start: Params | None
) -> distillation.TrainState:
    """Return the trained state, resumed from the run's newest checkpoint if any.

    Args:
        task: the fit.
        pools: the pools with the plan between them.
        start: parameters to start from; None: drawn ones.

    Raises:
        FloatingPointError: the training diverged.
        Interrupted: the listener asked to stop; the state is stored.
    """
    data, run, listener, mesh = task.data, task.run, task.listener, task.mesh
    settings = task.config.training()
    chunks = distillation.plan_chunks(
        len(data.pool_x), len(data.pool_y), len(task.anchors.x), settings.chunk_size
    )
    state = distillation.init_training(
        data.pool_x.shape[1],
        data.pool_y.shape[1],
        settings,
        total_steps=settings.epochs * chunks.steps,
        key=task.keys.students,
        start=start,
    )
    state, anchors, key = everywhere((state, task.anchors, task.keys.chunks), mesh)
    if run is not None:
        state = run.restore_checkpoint(state) or state
    train_epoch = _epoch_of(task)
    every = math.ceil(settings.epochs / CHECKPOINTS_PER_RUN)
    items = chunks.pool_steps * (chunks.size_x + chunks.size_y)
    items += 2 * chunks.anchor_steps * chunks.anchor_size
    for epoch in range(int(state.epoch) + 1, settings.epochs + 1):
        state, metrics = train_epoch(
            state, pools, anchors, config=settings, chunks=chunks, key=key
        )
        values = {name: float(value) for name, value in metrics._asdict().items()}
        values["chance_loss"] = math.log(chunks.size_x * chunks.size_y) / 2
        if not math.isfinite(values["anchor_loss"] + values["pool_loss"]):
            raise FloatingPointError(
                f"The training loss is not finite after epoch {epoch}; lower "
                f"{'distillation' if start is None else 'refined'}.learning_rate."
            )
        listener.training(epoch, settings.epochs, items, values)
        stop = listener.should_stop()
        if run is not None:
            run.log({"stage": "distillation", "epoch": epoch, **values})
            if stop or epoch % every == 0:
                run.save_checkpoint(state)
        if stop and epoch < settings.epochs:
            raise Interrupted(f"Stopped after epoch {epoch} of {settings.epochs}.")
    return state


def _epoch_of(
    task: Task,
) -> Callable[..., tuple[distillation.TrainState, distillation.EpochMetrics]]:
    """Return the epoch for where the pools are: on a device, on several, elsewhere."""
    if task.mesh is not None:
        return functools.partial(spread_distillation.train_epoch, mesh=task.mesh)
    if task.streamed:
        rows = task.data.pool_x, task.data.pool_y
        return functools.partial(streamed_distillation.train_epoch, rows=rows)
    return distillation.train_epoch
