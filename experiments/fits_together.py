"""Which cells of a grid of fits run together, and the seeds' students as one program.

Each seed's plan is solved by itself; the trainings, whose shapes agree, are stacked.
Every seed keeps its own order of chunks, so that its students are those of the fit by
itself, to float32 rounding. On a CPU this is slower (docs/many_seeds.md).
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fits
import jax.numpy as jnp
from fits import FitOptions

from anchordot_jax import Config, alignment, distillation, many_seeds, selection
from anchordot_jax.baselines.protocol import make_model
from anchordot_jax.comparison.cell import choose_settings
from anchordot_jax.comparison.problem import Problem
from anchordot_jax.fit_inputs import FitData
from anchordot_jax.runs.cells import Grouping, Result, Run, Settings

METHOD = "anchordot"


class Prepared(NamedTuple):
    """A seed's fit up to its plan."""

    problem: Problem
    config: Config
    chosen: selection.Selection
    pools: distillation.Pools


def grouping(run: Run, options: FitOptions) -> Grouping:
    """Return how to run a grid's cells: those of one fit by one process.

    With `options.together` the seeds of a setting are one program too.

    Args:
        run: runs one cell by `fits.scorer_of`, which finds the fits made here.
        options: says whether, and where data and models lie.
    """
    run_many = functools.partial(
        _run_many, run=run, folder=options.data_folder, out=options.out
    )
    return Grouping(run_many, functools.partial(_key, together=options.together))


def _key(settings: Settings, *, together: bool) -> tuple[Any, ...]:
    """Return the fit's settings, without the seed where students learn together."""
    grouped = together and settings["method"] == METHOD
    return tuple(
        settings[name] for name in fits.SETTINGS if not (grouped and name == "seed")
    )


def _run_many(
    group: Sequence[Settings], *, run: Run, folder: Path, out: Path
) -> list[Result]:
    folders = {fits.model_folder(own, out): own for own in group}
    missing = [own for path, own in folders.items() if not path.is_dir()]
    if group[0]["method"] == METHOD and len(missing) > 1:
        fit_together(missing, folder, out)
    return [run(settings) for settings in group]


def fit_together(group: Sequence[Mapping[str, Any]], folder: Path, out: Path) -> None:
    """Fit the cells of one setting and several seeds, and store their models.

    Raises:
        InputError: data that cannot be used.
        FloatingPointError: a training diverged.
    """
    prepared = [_prepare(settings, folder) for settings in group]
    keys = [alignment.training_keys(own.config) for own in prepared]
    params = many_seeds.train_many(
        many_seeds.stack([own.pools for own in prepared]),
        many_seeds.stack(
            [
                distillation.Anchors(*map(jnp.asarray, own.problem.anchors))
                for own in prepared
            ]
        ),
        config=prepared[0].config.distillation,
        keys_students=jnp.stack([students for students, _ in keys]),
        key_chunks=jnp.stack([chunks for _, chunks in keys]),
    )
    for settings, own, each in zip(
        group, prepared, many_seeds.unstack(params), strict=True
    ):
        model = make_model(
            METHOD,
            each,
            anchors=own.problem.anchors,
            pools=own.problem.pools,
            settings=own.config,
            gamma=own.chosen.gamma,
            eta=own.chosen.eta,
        )
        model.save(fits.model_folder(settings, out))


def _prepare(settings: Mapping[str, Any], folder: Path) -> Prepared:
    problem, method = fits.problem_of(settings, folder), fits.method_of(settings)
    seed = settings["seed"]
    found = choose_settings(method, problem, method.settings, seed=seed)
    config = dataclasses.replace(found.settings, seed=seed)
    chosen = selection.select(
        *problem.anchors,
        *problem.pools,
        config,
        key=alignment.selection_key(config),
    )
    data = FitData(*problem.anchors, *problem.pools)
    pools = alignment.match_pools(data, config, chosen)
    return Prepared(problem, config, chosen, pools)
