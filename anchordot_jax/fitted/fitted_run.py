"""A finished run with its data: what verbs that look at a run later start from."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anchordot_jax import data
from anchordot_jax.config import Config
from anchordot_jax.data import EmbeddingSource, Split
from anchordot_jax.errors import InputError
from anchordot_jax.fit_files import read_fit_data
from anchordot_jax.fit_inputs import FitData
from anchordot_jax.model import AlignedModel
from anchordot_jax.recipes.soft_selection import SoftSelection
from anchordot_jax.runs.run_folder import RunFolder
from anchordot_jax.runs.sources import Sources, read_sources
from anchordot_jax.selection import Selection


class Side(NamedTuple):
    """One side's file, and where its pool's rows come from."""

    source: EmbeddingSource
    pool_source: EmbeddingSource
    pool_rows: np.ndarray
    """Row of `pool_source` of each pool item."""

    def name(self, row: int) -> Any:
        """Return the id of a row of the side's file, its number where it has none."""
        return self.source.row_name(row)

    def pool_name(self, item: int) -> Any:
        """Return the id of a pool item, its row number where the file has no ids."""
        return self.pool_source.row_name(int(self.pool_rows[item]))


class RunData(NamedTuple):
    """What a run was fitted to."""

    sources: Sources
    split: Split
    fit: FitData
    x: Side
    y: Side


def stored_config(run: RunFolder) -> Config:
    """Return the settings of a run.

    Raises:
        InputError: the folder holds no run, or one of another version's settings.
    """
    # Runs from before there was a choice of recipes.
    return Config.from_dict({"recipe": "paper"} | run.identity()["config"])


def stored_choice(run: RunFolder) -> Selection | SoftSelection:
    """Return what the run chose by held-out anchors.

    Raises:
        InputError: the run has no selection.json yet.
    """
    chosen = run.load_selection() or run.load_soft_selection()
    if chosen is None:
        raise InputError(f"{run.path} has no selection.json; repeat its fit to end it.")
    return chosen


def load_finished(path: Path) -> tuple[RunFolder, AlignedModel]:
    """Return a run that has its model.

    Raises:
        InputError: no run there, or one that has not finished.
    """
    run = RunFolder(path)
    if not path.is_dir():
        raise InputError(f"The run {path} does not exist.")
    stored_config(run)
    if not run.finished:
        raise InputError(f"{path} has no model yet; repeat its fit to finish it.")
    return run, AlignedModel.load(run.model)


def load_data(run: RunFolder, *, x: str | None = None, y: str | None = None) -> RunData:
    """Return the arrays that a run was fitted to, checked by their digest.

    Args:
        run: the run folder.
        x: FILE of the x side, instead of the one that the run names.
        y: FILE of the y side.

    Raises:
        InputError: the run names no files, or they are gone or have changed.
    """
    named = read_sources(run.path)
    if named is None and (x is None or y is None):
        raise InputError(
            f"{run.path} does not say which files it was fitted to; give both --x and "
            f"--y."
        )
    given = {side: file for side, file in (("x", x), ("y", y)) if file is not None}
    sources = Sources(**given) if named is None else named._replace(**given)
    split = data.read_split(run.path / "splits.json")
    fit = read_fit_data(sources, split)
    if run.identity()["data"].get("digest") != fit.digest():
        raise InputError(
            f"{sources.x} and {sources.y} do not hold the rows that {run.path} was "
            f"fitted to; give the files of that fit."
        )
    return RunData(
        sources,
        split,
        fit,
        _side(sources.x, sources.pool_x, split.pool_x),
        _side(sources.y, sources.pool_y, split.pool_y),
    )


def _side(file: str, separate: str | None, rows: np.ndarray) -> Side:
    source = data.open_embeddings(file)
    if separate is None:
        return Side(source, source, rows)
    pool = data.open_embeddings(separate)
    return Side(source, pool, np.arange(pool.shape[0]))
