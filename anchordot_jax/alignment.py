"""The whole fit: selection, coupling, distillation (Algorithm 1), by either recipe.

`AnchorDOT(config).fit(x, y, pairs)` is the short form; `fit_data` is the same for
callers who have split their data themselves.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from numpy.typing import ArrayLike

from anchordot_jax import coupling, distillation, row_masses, selection
from anchordot_jax.config import Config
from anchordot_jax.data import splits
from anchordot_jax.errors import InputError
from anchordot_jax.fit_inputs import (
    FitData,
    as_matrix,
    as_pairs,
    check_data,
    pool_bytes,
    pool_weights,
    take,
)
from anchordot_jax.listeners import Listener
from anchordot_jax.model import AlignedModel
from anchordot_jax.parallel.mesh import is_first_process, wait_for_all
from anchordot_jax.recipes import refined, soft_selection
from anchordot_jax.runs.lock import sole_writer
from anchordot_jax.runs.run_folder import RunFolder
from anchordot_jax.stages import choosing, finished_model, matching, training
from anchordot_jax.stages.pool_memory import check_size, streaming_note
from anchordot_jax.stages.task import Keys, Task
from anchordot_jax.students import Params


class FitResult(NamedTuple):
    """A fit's model and what led to it."""

    model: AlignedModel
    selection: selection.Selection | soft_selection.SoftSelection
    coupling: coupling.Coupling
    seconds: dict[str, float]
    """Wall time of each stage that this call ran."""


class AnchorDOT:
    """Aligns two frozen embedding spaces from a few pairs and unpaired items.

    Args:
        config: every setting; by default the refined recipe, whose settings are chosen
            by held-out anchors.
    """

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()

    def fit(
        self,
        x: ArrayLike,
        y: ArrayLike,
        pairs: ArrayLike,
        *,
        test_pairs: ArrayLike | None = None,
        pool_x: ArrayLike | None = None,
        pool_y: ArrayLike | None = None,
        a: ArrayLike | None = None,
        b: ArrayLike | None = None,
        run: str | Path | None = None,
        listener: Listener | None = None,
    ) -> AlignedModel:
        """Return the model that the pairs and all other rows lead to.

        Args:
            x: embeddings of one side, `[n_x, dx]`.
            y: embeddings of the other side, `[n_y, dy]`; row numbers of x and y are
                unrelated.
            pairs: `[N, 2]` row numbers: x[i] belongs to y[j].
            test_pairs: `[T, 2]` pairs to keep out of the fit.
            pool_x: unpaired x rows; by default all rows of x in no pair.
            pool_y: unpaired y rows; by default all rows of y in no pair.
            a: weight of each row of the x pool's source (`pool_x`, or `x`); uniform by
                default.
            b: weight of each row of the y pool's source.
            run: a folder to keep the stages in; an interrupted fit resumes there.
            listener: told of the progress.

        Raises:
            InputError: arrays, pairs or weights that cannot be used; see the message.
        """
        x, y = as_matrix(x, "x"), as_matrix(y, "y")
        held = None if test_pairs is None else as_pairs(test_pairs, "test_pairs")
        split = splits.split_by_exclusion(
            as_pairs(pairs, "pairs"),
            held,
            len(x),
            len(y),
            separate_pools_x=pool_x is not None,
            separate_pools_y=pool_y is not None,
        )
        data = FitData(
            anchors_x=take(x, split.anchors[:, 0], "x"),
            anchors_y=take(y, split.anchors[:, 1], "y"),
            pool_x=_pool(pool_x, x, split.pool_x, "x"),
            pool_y=_pool(pool_y, y, split.pool_y, "y"),
            a=pool_weights(a, len(x), None if pool_x is not None else split.pool_x),
            b=pool_weights(b, len(y), None if pool_y is not None else split.pool_y),
        )
        check_size(pool_bytes(data.pool_x, data.pool_y), self.config)
        if run is None:
            return fit_data(data, self.config, listener=listener).model
        check_data(data)
        with sole_writer(Path(run)):
            folder = RunFolder.open(run, run_identity(data, self.config))
            return fit_data(data, self.config, run=folder, listener=listener).model


def _pool(
    separate: ArrayLike | None, array: np.ndarray, rows: np.ndarray, name: str
) -> np.ndarray:
    if separate is not None:
        return as_matrix(separate, f"pool_{name}")
    return take(array, rows, name)


def run_identity(data: FitData, config: Config) -> dict[str, Any]:
    """Return what a run folder is of: every setting, and a digest of the data.

    Another run may differ in `run_folder.NOT_COMPARED`.
    """
    return {"config": config.to_dict(), "data": {"digest": data.digest()}}


def fit_data(
    data: FitData,
    config: Config,
    *,
    run: RunFolder | None = None,
    listener: Listener | None = None,
    mesh: Mesh | None = None,
) -> FitResult:
    """Return the model, the selection and the coupling of a fit.

    Args:
        data: anchors and pools.
        config: every setting.
        run: stages found there are not run again; new ones are stored there.
        listener: told of the progress.
        mesh: devices to spread both pools over, see `parallel.mesh.make_mesh`. In a
            run of several processes each calls this with the same data and folder.

    Raises:
        InputError: data that cannot be used.
        Interrupted: the listener asked to stop.
        FloatingPointError: the training diverged.
    """
    check_data(data)
    if run is not None and run.finished:
        return _finished(run)
    task = Task.of(data, config, run=run, listener=listener, mesh=mesh)
    # Who set the limit knows of it.
    if task.streamed and config.distillation.pool_memory is None:
        task.listener.warn(streaming_note(data))
    seconds: dict[str, float] = {}

    chosen: selection.Selection | soft_selection.SoftSelection
    start: Params | None = None
    if config.recipe == "refined":
        with _timed(seconds, "selection"):
            sides, chosen = refined.select(
                data, config, key=task.keys.selection, run=run, listener=task.listener
            )
        with _timed(seconds, "coupling"):
            pools, solved, start = refined.couple(
                data, sides, chosen, config, run=run, listener=task.listener, mesh=mesh
            )
    else:
        with _timed(seconds, "selection"):
            chosen = choosing.choose(task)
        with _timed(seconds, "coupling"):
            pools, solved = matching.couple(task, chosen)
    with _timed(seconds, "distillation"):
        state = training.train(task, pools, start)
    params = state.params if mesh is None else jax.tree.map(np.asarray, state.params)
    model = finished_model.make_model(task, params, chosen, solved)
    if run is not None:
        run.save_result("seconds", {"seconds": seconds})
        if chosen_rho := refined.chosen_settings(chosen).get("rho"):
            masses = row_masses.mass_summary(solved)
            run.save_result("coupling", {"rho": chosen_rho, **masses})
        # The model comes last: with it the run counts as finished.
        if is_first_process():
            model.save(run.model)
        run.drop_checkpoints()
        wait_for_all("the model is stored")
    return FitResult(model, chosen, solved, seconds)


def _finished(run: RunFolder) -> FitResult:
    chosen = run.load_selection() or run.load_soft_selection()
    solved = run.load_coupling()
    if chosen is None or solved is None:
        raise InputError(
            f"{run.path} has a model but lacks selection.json or coupling.safetensors; "
            f"pass --overwrite, or choose another folder."
        )
    model = AlignedModel.load(run.model)
    run.drop_checkpoints()
    return FitResult(model, chosen, solved, {})


def selection_key(config: Config) -> jax.Array:
    """Return the random key of a fit's choice of gamma and eta."""
    return Keys.of(config.seed).selection


def training_keys(config: Config) -> tuple[jax.Array, jax.Array]:
    """Return the random keys of a fit's students and of their chunks."""
    keys = Keys.of(config.seed)
    return keys.students, keys.chunks


def match_pools(
    data: FitData,
    config: Config,
    chosen: selection.Selection | soft_selection.SoftSelection,
    *,
    run: RunFolder | None = None,
    listener: Listener | None = None,
) -> distillation.Pools:
    """Return the pools with the plan between them, as the fit's second stage does.

    Of pools above `distillation.pool_memory` x and y have no columns.

    Args:
        data: anchors and pools.
        config: every setting.
        chosen: what was chosen by held-out anchors.
        run: the finished run of the same data, whose potentials are taken.
        listener: told of the progress.

    Raises:
        InputError: data that cannot be used.
    """
    check_data(data)
    task = Task.of(data, config, run=run, listener=listener)
    if isinstance(chosen, soft_selection.SoftSelection):
        return refined.couple(
            data, None, chosen, config, run=run, listener=task.listener
        )[0]
    return matching.couple(task, chosen)[0]


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - start
