"""What the report's sections are made from."""

import dataclasses
from typing import NamedTuple

import numpy as np

from anchordot_jax import evaluation
from anchordot_jax.config import Config
from anchordot_jax.evaluation import PairedRows
from anchordot_jax.fitted.fitted_run import RunData
from anchordot_jax.model import AlignedModel
from anchordot_jax.recipes.soft_selection import SoftSelection
from anchordot_jax.report.items import Viewer
from anchordot_jax.runs.run_folder import RunFolder
from anchordot_jax.selection import Selection


class TestItems(NamedTuple):
    """The test pairs' distinct rows, raw and in the shared space."""

    paired: PairedRows
    raw_x: np.ndarray
    raw_y: np.ndarray
    x: np.ndarray
    y: np.ndarray
    offsets_x2y: np.ndarray | None
    """Hub correction of the model's own bank; None where it keeps none."""
    offsets_y2x: np.ndarray | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Data:
    """What a run was fitted to and tested on, and how its items are shown."""

    known: RunData
    test: TestItems | None
    """None without test pairs."""
    viewer_x: Viewer
    viewer_y: Viewer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """A finished run, and as much of its data as is there."""

    run: RunFolder
    config: Config
    model: AlignedModel
    chosen: Selection | SoftSelection
    data: Data | None
    """None where the files are not at hand."""
    missing: str = ""
    """Why they are not, a sentence."""
    contrastive: bool = False
    """Whether contrastive students are fitted for comparison."""

    @property
    def test(self) -> TestItems | None:
        """The test items, where there are any."""
        return None if self.data is None else self.data.test

    @property
    def no_test(self) -> str:
        """Why there are no test items, a sentence."""
        return self.missing or "Left out: the run has no test pairs."


def test_items(model: AlignedModel, known: RunData) -> TestItems | None:
    """Return the run's test items in the shared space, or None without any."""
    if not len(known.split.test_pairs):
        return None
    paired = evaluation.positives_from_pairs(known.split.test_pairs)
    raw_x = known.x.source.read(paired.query_rows)
    raw_y = known.y.source.read(paired.gallery_rows)
    x, y = model.embed_x(raw_x), model.embed_y(raw_y)
    offsets_x2y, offsets_y2x = model.bank_offsets("x", y), model.bank_offsets("y", x)
    return TestItems(paired, raw_x, raw_y, x, y, offsets_x2y, offsets_y2x)
