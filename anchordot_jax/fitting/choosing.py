"""The first stage: gamma, eta and rho by held-out anchors, once a run folder."""

from anchordot_jax import selection
from anchordot_jax.fitting.task import Task
from anchordot_jax.listeners import Interrupted
from anchordot_jax.parallel.mesh import is_first_process, wait_for_all


def choose(task: Task) -> selection.Selection:
    """Return the choice; every process of a run makes it, and takes the first's.

    Raises:
        Interrupted: the listener asked to stop.
    """
    data, run, listener = task.data, task.run, task.listener

    def report(done: int, total: int) -> None:
        listener.selecting(done, total)
        if listener.should_stop():
            raise Interrupted("Stopped while choosing gamma and eta.")

    chosen = run.load_selection() if run is not None else None
    # No process may store its choice before all have looked for an earlier one.
    wait_for_all("the selection was looked for")
    if chosen is None:
        chosen = selection.select(
            task.anchors.x,
            task.anchors.y,
            data.pool_x,
            data.pool_y,
            task.config,
            key=task.keys.selection,
            progress=report,
        )
        if run is not None:
            run.save_selection(chosen)
            if not is_first_process():
                chosen = run.load_selection() or chosen
    return chosen
