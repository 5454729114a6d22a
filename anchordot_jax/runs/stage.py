"""A stage of a fit: found in the run folder, or gone through and stored there."""

from collections.abc import Callable
from typing import TypeVar

import jax

from anchordot_jax.parallel.mesh import wait_for_all
from anchordot_jax.runs.run_folder import RunFolder

T = TypeVar("T")


def once(
    run: RunFolder | None,
    make: Callable[[], T],
    *,
    load: Callable[[RunFolder], T | None],
    save: Callable[[RunFolder, T], None],
    name: str,
) -> T:
    """Return what a run folder holds of a stage, or what is made and stored there.

    Every process of a run makes it, and all go on with the first one's, which is the
    one that is stored: results of several machines may differ in the last bits.

    Args:
        run: the run folder; None: nothing is stored.
        make: goes through the stage.
        load: the stored result, or None before the stage is through.
        save: stores it; of several processes only the first writes.
        name: of what is made, for the processes' meeting points.
    """
    found = None if run is None else load(run)
    # No process may store its own before all have looked for an earlier one.
    wait_for_all(f"{name} was looked for")
    if found is not None:
        return found
    made = make()
    if run is None:
        return made
    save(run, made)
    wait_for_all(f"{name} is stored")
    # The first process reads too, so that all hold arrays of one kind.
    stored = load(run) if jax.process_count() > 1 else None
    return made if stored is None else stored
