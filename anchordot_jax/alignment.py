"""The whole fit: selection, coupling, distillation (Algorithm 1).

`AnchorDOT(config).fit(x, y, pairs)` is the short form; `fit_data` is the same for
callers who have split their data themselves.
"""

import functools
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from numpy.typing import ArrayLike

from anchordot_jax import (
    coupling,
    distillation,
    geometry,
    profiles,
    row_masses,
    selection,
    spread_distillation,
)
from anchordot_jax.config import Config
from anchordot_jax.data import splits
from anchordot_jax.errors import InputError
from anchordot_jax.fit_inputs import (
    FitData,
    as_matrix,
    as_pairs,
    check_data,
    pool_weights,
    take,
)
from anchordot_jax.listeners import Interrupted, Listener, Silent
from anchordot_jax.matching.bank import bank_rows
from anchordot_jax.model import AlignedModel
from anchordot_jax.parallel.mesh import (
    is_first_process,
    replicate,
    shard_rows,
    wait_for_all,
)
from anchordot_jax.recipes import refined, soft_selection
from anchordot_jax.runs.lock import sole_writer
from anchordot_jax.runs.run_folder import RunFolder, package_version
from anchordot_jax.students import Params

CHECKPOINTS_PER_RUN = 10


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
        config: every setting; the default chooses gamma and eta by held-out anchors.
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
    """Return what makes two fits the same: every setting, and a digest of the data."""
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
    listener = listener or Silent()
    check_data(data)
    if run is not None and run.finished:
        return _finished(run)
    keys = _Keys.of(config.seed)
    seconds: dict[str, float] = {}
    anchors = distillation.Anchors(
        jnp.asarray(data.anchors_x), jnp.asarray(data.anchors_y)
    )

    chosen: selection.Selection | soft_selection.SoftSelection
    start: Params | None = None
    if config.recipe == "refined":
        with _timed(seconds, "selection"):
            sides, chosen = refined.select(
                data, config, key=keys.selection, run=run, listener=listener
            )
        with _timed(seconds, "coupling"):
            pools, solved, start = refined.couple(
                data, sides, chosen, config, run=run, listener=listener
            )
            pools = _spread(pools, mesh)
    else:
        with _timed(seconds, "selection"):
            chosen = _select(anchors, data, config, keys, run, listener)
        with _timed(seconds, "coupling"):
            pools, solved = _couple(
                anchors, data, chosen, config, keys, run, listener, mesh
            )
    with _timed(seconds, "distillation"):
        state = _distil(pools, anchors, data, config, keys, run, listener, mesh, start)
    params = state.params if mesh is None else jax.tree.map(np.asarray, state.params)
    dim = int(params["x"]["linear"]["kernel"].shape[1])
    model = AlignedModel(params=params, info=_info(data, config, chosen, solved, dim))
    model = _with_bank(model, data, config, keys)
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


class _Keys(NamedTuple):
    """One random key a stage, so that stages can be resumed on their own."""

    selection: jax.Array
    median: jax.Array
    students: jax.Array
    chunks: jax.Array
    bank: jax.Array

    @classmethod
    def of(cls, seed: int) -> "_Keys":
        return cls(*jax.random.split(jax.random.key(seed), len(cls._fields)))


def selection_key(config: Config) -> jax.Array:
    """Return the random key of a fit's choice of gamma and eta."""
    return _Keys.of(config.seed).selection


def training_keys(config: Config) -> tuple[jax.Array, jax.Array]:
    """Return the random keys of a fit's students and of their chunks."""
    keys = _Keys.of(config.seed)
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
    listener = listener or Silent()
    if isinstance(chosen, soft_selection.SoftSelection):
        return refined.couple(data, None, chosen, config, run=run, listener=listener)[0]
    anchors = distillation.Anchors(
        jnp.asarray(data.anchors_x), jnp.asarray(data.anchors_y)
    )
    keys = _Keys.of(config.seed)
    return _couple(anchors, data, chosen, config, keys, run, listener, None)[0]


def _select(
    anchors: distillation.Anchors,
    data: FitData,
    config: Config,
    keys: _Keys,
    run: RunFolder | None,
    listener: Listener,
) -> selection.Selection:
    """Return the choice; every process of a run makes it, and takes the first's."""

    def report(done: int, total: int) -> None:
        listener.selecting(done, total)
        if listener.should_stop():
            raise Interrupted("Stopped while choosing gamma and eta.")

    chosen = run.load_selection() if run is not None else None
    # No process may store its choice before all have looked for an earlier one.
    wait_for_all("the selection was looked for")
    if chosen is None:
        chosen = selection.select(
            anchors.x,
            anchors.y,
            data.pool_x,
            data.pool_y,
            config,
            key=keys.selection,
            progress=report,
        )
        if run is not None:
            run.save_selection(chosen)
            if not is_first_process():
                chosen = run.load_selection() or chosen
    return chosen


def _couple(
    anchors: distillation.Anchors,
    data: FitData,
    chosen: selection.Selection,
    config: Config,
    keys: _Keys,
    run: RunFolder | None,
    listener: Listener,
    mesh: Mesh | None,
) -> tuple[distillation.Pools, coupling.Coupling]:
    """Return the pools with their plan: coordinates once, then the potentials."""
    maps = profiles.coordinate_maps(
        profiles.fit_basis(anchors.x, center=config.center),
        profiles.fit_basis(anchors.y, center=config.center),
        chosen.gamma,
    )
    pool_x, pool_y = (_placed(rows, mesh) for rows in (data.pool_x, data.pool_y))
    x, y = profiles.coordinates(pool_x, pool_y, _everywhere(maps, mesh))
    solved = run.load_coupling() if run is not None else None
    if solved is None:
        counts = len(data.pool_x), len(data.pool_y)
        median = geometry.sampled_median_cost(
            x, y, key=_everywhere(keys.median, mesh), counts=counts, mesh=mesh
        )
        solved = coupling.solve_coupling(
            x,
            y,
            chosen.eta * median,
            a=_marginal(data.a, counts[0]),
            b=_marginal(data.b, counts[1]),
            rho=None if chosen.rho is None else chosen.rho * median,
            config=config.coupling,
            progress=_report_sinkhorn(listener),
            mesh=mesh,
        )
        solved.f.block_until_ready()
        if run is not None:
            run.save_coupling(solved)
    if not bool(solved.converged):
        listener.warn(
            f"The transport did not converge: marginal error "
            f"{float(solved.marginal_error):.2g} after {int(solved.n_iterations)} "
            f"iterations, tolerance {config.coupling.tolerance:.2g}; try a larger eta "
            f"or more coupling.max_iterations."
        )
    potentials = (solved.f, solved.g, solved.epsilon)
    weights = row_masses.row_weights(solved)
    potentials, weights = _everywhere((potentials, weights), mesh)
    pools = distillation.Pools(pool_x, pool_y, x, y, *potentials)
    return pools._replace(weights_x=weights[0], weights_y=weights[1]), solved


def _placed(rows: np.ndarray, mesh: Mesh | None) -> jax.Array:
    """Return the pool on the device, or spread over the devices."""
    return jnp.asarray(rows) if mesh is None else shard_rows(rows, mesh)


def _spread(pools: distillation.Pools, mesh: Mesh | None) -> distillation.Pools:
    """Return the pools with their rows over the devices, the rest on all of them."""
    if mesh is None:
        return pools
    rows = (pools.x, pools.y, pools.coordinates_x, pools.coordinates_y)
    placed = [shard_rows(side, mesh) for side in rows]
    whole = replicate((pools.f, pools.g, pools.epsilon), mesh)
    return distillation.Pools(*placed, *whole)


def _everywhere(tree: Any, mesh: Mesh | None) -> Any:
    """Return the arrays as they are, or on all devices."""
    return tree if mesh is None else replicate(tree, mesh)


def _marginal(weights: np.ndarray | None, n: int) -> jax.Array:
    """Return the weights summing to one; uniform ones by default."""
    if weights is None:
        return jnp.full(n, 1 / n, jnp.float32)
    return jnp.asarray(weights / weights.sum(), jnp.float32)


def _report_sinkhorn(listener: Listener) -> coupling.Progress | None:
    if isinstance(listener, Silent):
        return None

    def report(iteration: int, error: float) -> None:
        listener.coupling(int(iteration), float(error))

    return report


def _distil(
    pools: distillation.Pools,
    anchors: distillation.Anchors,
    data: FitData,
    config: Config,
    keys: _Keys,
    run: RunFolder | None,
    listener: Listener,
    mesh: Mesh | None,
    start: Params | None,
) -> distillation.TrainState:
    """Return the trained state, resumed from the run's newest checkpoint if any."""
    settings = config.training()
    chunks = distillation.plan_chunks(
        len(data.pool_x), len(data.pool_y), len(anchors.x), settings.chunk_size
    )
    state = distillation.init_training(
        pools.x.shape[1],
        pools.y.shape[1],
        settings,
        total_steps=settings.epochs * chunks.steps,
        key=keys.students,
        start=start,
    )
    state, anchors, key = _everywhere((state, anchors, keys.chunks), mesh)
    if run is not None:
        state = run.restore_checkpoint(state) or state
    train_epoch = (
        distillation.train_epoch
        if mesh is None
        else functools.partial(spread_distillation.train_epoch, mesh=mesh)
    )
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


def _with_bank(
    model: AlignedModel, data: FitData, config: Config, keys: _Keys
) -> AlignedModel:
    """Return the model with a part of each pool as its query banks."""
    if config.bank_size == 0:
        return model
    key_x, key_y = jax.random.split(keys.bank)
    rows_x = bank_rows(len(data.pool_x), config.bank_size, key=key_x)
    rows_y = bank_rows(len(data.pool_y), config.bank_size, key=key_y)
    return model.with_bank(data.pool_x[rows_x], data.pool_y[rows_y])


def _info(
    data: FitData,
    config: Config,
    chosen: selection.Selection | soft_selection.SoftSelection,
    solved: coupling.Coupling,
    dim: int,
) -> dict[str, Any]:
    """Return how the model was made, as JSON values."""
    return {
        "method": "anchordot" if config.recipe == "paper" else "anchordot-refined",
        "dim_x": data.pool_x.shape[1],
        "dim_y": data.pool_y.shape[1],
        "dim": dim,
        "n_anchors": len(data.anchors_x),
        "n_pool_x": len(data.pool_x),
        "n_pool_y": len(data.pool_y),
        **refined.chosen_settings(chosen),
        "choice": chosen.reason,
        "epsilon": float(solved.epsilon),
        "marginal_error": float(solved.marginal_error),
        "sinkhorn_iterations": int(solved.n_iterations),
        "converged": bool(solved.converged),
        **row_masses.mass_summary(solved),
        "settings": config.to_dict(),
        "versions": {
            name: package_version(name)
            for name in ("anchordot-jax", "jax", "ott-jax", "flax", "optax")
        },
    }


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - start
