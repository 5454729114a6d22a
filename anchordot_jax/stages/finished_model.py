"""The last stage: from the trained students to a model that says how it was made."""

from typing import Any

import jax

from anchordot_jax import coupling, row_masses, selection
from anchordot_jax.matching.bank import bank_rows
from anchordot_jax.model import AlignedModel
from anchordot_jax.recipes import refined, soft_selection
from anchordot_jax.runs.run_folder import package_version
from anchordot_jax.stages.task import Task
from anchordot_jax.students import Params


def make_model(
    task: Task,
    params: Params,
    chosen: selection.Selection | soft_selection.SoftSelection,
    solved: coupling.Coupling,
) -> AlignedModel:
    """Return the model of the trained parameters, with its query banks."""
    model = AlignedModel(params=params, info=_info(task, params, chosen, solved))
    return _with_bank(model, task)


def _with_bank(model: AlignedModel, task: Task) -> AlignedModel:
    """Return the model with a part of each pool as its query banks."""
    data, config = task.data, task.config
    if config.bank_size == 0:
        return model
    key_x, key_y = jax.random.split(task.keys.bank)
    rows_x = bank_rows(len(data.pool_x), config.bank_size, key=key_x)
    rows_y = bank_rows(len(data.pool_y), config.bank_size, key=key_y)
    return model.with_bank(data.pool_x[rows_x], data.pool_y[rows_y])


def _info(
    task: Task,
    params: Params,
    chosen: selection.Selection | soft_selection.SoftSelection,
    solved: coupling.Coupling,
) -> dict[str, Any]:
    """Return how the model was made, as JSON values."""
    data, config = task.data, task.config
    return {
        "method": "anchordot" if config.recipe == "paper" else "anchordot-refined",
        "dim_x": data.pool_x.shape[1],
        "dim_y": data.pool_y.shape[1],
        "dim": int(params["x"]["linear"]["kernel"].shape[1]),
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
