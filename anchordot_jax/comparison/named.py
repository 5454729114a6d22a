"""Comparisons on data sets by name, under the AnchorDOT paper's protocol.

N anchors, 400 test pairs, the other pairs halved into an x pool and a y pool that share
no item; a new draw of all for each seed (Section 4).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anchordot_jax.baselines.protocol import Method
from anchordot_jax.comparison import grid
from anchordot_jax.comparison.problem import Problem, make_problem, shuffle_anchors
from anchordot_jax.data.datasets import load_dataset
from anchordot_jax.data.splits import protocol_split

TEST = 400


def named_problem(
    dataset: str, folder: Path, *, anchors: int, seed: int, shuffled: bool = False
) -> Problem:
    """Return the anchors, pools and test items of one seed.

    Args:
        dataset: a name of `data.datasets.DATASETS`.
        folder: where the data sets' files lie.
        anchors: N.
        seed: fixes the draw.
        shuffled: whether to destroy the pairing, as a control.

    Raises:
        InputError: the data set is unknown, absent, or too small.
    """
    x, y = load_dataset(dataset, folder).read()
    split = protocol_split(len(x), seed=seed, anchors=anchors, test=TEST)
    made = make_problem(x, y, split)
    return shuffle_anchors(made, seed=seed) if shuffled else made


def cells_folder(out: Path, dataset: str, anchors: int) -> Path:
    """Return where the results of a data set and N lie."""
    return out / f"{dataset}-{anchors}"


def run_named(
    methods: Sequence[Method],
    dataset: str,
    folder: Path,
    out: Path,
    *,
    anchors: int,
    seeds: Sequence[int],
    short: bool,
    shuffled: bool = False,
    report: grid.Report | None = None,
) -> list[dict[str, Any]]:
    """Return every cell's result; missing ones are run and stored below `out`.

    Scripts that are given one `out` share the cells. `report` is told of each.

    Raises:
        InputError: as `named_problem`, or `out` holds results of other data.
    """
    return grid.run_grid(
        methods,
        lambda seed: named_problem(
            dataset, folder, anchors=anchors, seed=seed, shuffled=shuffled
        ),
        cells_folder(out, dataset, anchors),
        seeds=seeds,
        short=short,
        report=report,
    )
