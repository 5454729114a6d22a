"""A small planted problem: two linear views of one latent space, and its files."""

import dataclasses
import functools
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import jax
import numpy as np

import anchordot_jax
from anchordot_jax import (
    AlignedModel,
    AnchorDOT,
    Config,
    DistillationConfig,
    SelectionConfig,
)
from anchordot_jax.listeners import Silent

N_X, N_Y, DIM_X, DIM_Y, LATENT = 40, 46, 12, 9, 6
N_ANCHORS, N_TEST, EPOCHS = 14, 10, 20

CONFIG = Config(
    recipe="paper",
    distillation=DistillationConfig(
        dim=8, epochs=EPOCHS, chunk_size=8, learning_rate=0.03, warmup_steps=4
    ),
    selection=SelectionConfig(gammas=(0.5, 1.0), etas=(0.05, 0.1)),
)

OPTIONS = [
    *("--recipe", "paper"),
    *("--distillation.dim", "8", "--distillation.epochs", str(EPOCHS)),
    *("--distillation.chunk-size", "8", "--distillation.learning-rate", "0.03"),
    *("--distillation.warmup-steps", "4"),
    *("--selection.gammas", "0.5", "1", "--selection.etas", "0.05", "0.1"),
]
"""The same settings on the command line."""

FIT = [
    *("fit", "--x", "x.npy", "--y", "y.npy", "--pairs", "pairs.csv"),
    *("--test-pairs", "test.csv", "--out", "run", *OPTIONS),
]
"""A fit of the files that the command's tests work on."""


class Outcome(NamedTuple):
    """A command's exit code, and what it left on the terminal."""

    code: int
    out: str
    err: str


Cli = Callable[..., Outcome]
"""Runs a command, given word by word."""


class Problem(NamedTuple):
    """Rows of both sides and which belong together; 6 rows of y have no partner."""

    x: np.ndarray
    """`[40, 12]`, float32."""
    y: np.ndarray
    """`[46, 9]`, float32."""
    pairs: np.ndarray
    """`[14, 2]` anchors."""
    test_pairs: np.ndarray
    """`[10, 2]`."""


def problem(seed: int = 0) -> Problem:
    """Return the problem of a seed; row i of x belongs to row order[i] of y."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(N_Y, LATENT))
    order = rng.permutation(N_Y)
    x = latent[:N_X] @ rng.normal(size=(LATENT, DIM_X))
    y = np.empty((N_Y, DIM_Y))
    y[order] = latent @ rng.normal(size=(LATENT, DIM_Y))
    rows = np.stack([np.arange(N_X), order[:N_X]], axis=1)
    anchors, test = rows[:N_ANCHORS], rows[N_ANCHORS : N_ANCHORS + N_TEST]
    return Problem(x.astype(np.float32), y.astype(np.float32), anchors, test)


def fit(given: Problem, config: Config = CONFIG, **options: Any) -> AlignedModel:
    """Return the model of a problem, fitted without its test pairs."""
    options = {"test_pairs": given.test_pairs, **options}
    return AnchorDOT(config).fit(given.x, given.y, given.pairs, **options)


@functools.cache
def fitted() -> AlignedModel:
    """Return the model of problem 0, fitted once a session."""
    with jax.numpy_rank_promotion("raise"):
        return fit(problem())


def leaves(model: AlignedModel) -> dict[str, np.ndarray]:
    """Return a model's parameters by path."""
    found, _ = jax.tree.flatten_with_path(model.params)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in found}


def same_model(one: AlignedModel, other: AlignedModel) -> bool:
    """Return whether two models have the same parameters, bit by bit."""
    a, b = leaves(one), leaves(other)
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and np.array_equal(a[name], b[name])
        for name in a
    )


def with_info(model: AlignedModel, **changes: Any) -> AlignedModel:
    """Return the model with other facts or results."""
    return dataclasses.replace(model, **changes)


class StopAfter(Silent):
    """A listener that asks to stop after some epoch, and notes what it was told."""

    def __init__(self, epoch: int | None = None) -> None:
        self.stop = epoch
        self.epochs: list[int] = []

    def training(
        self, epoch: int, epochs: int, items: int, metrics: dict[str, float]
    ) -> None:
        """Note the epoch."""
        self.epochs.append(epoch)

    def should_stop(self) -> bool:
        """Return whether the epoch has come."""
        return self.epochs[-1:] == [self.stop]


def tree(folder: Path) -> dict[str, str]:
    """Return every path below a folder with a digest of its contents."""
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        )
        for path in sorted(folder.rglob("*"))
    }


def write_pairs(path: Path, pairs: Sequence[Sequence[Any]] | np.ndarray) -> Path:
    """Write a pairs file."""
    lines = ["x,y", *(f"{row_x},{row_y}" for row_x, row_y in pairs)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_files(folder: Path) -> None:
    """Write the planted problem: x.npy, y.npy, named.h5, pairs.csv, test.csv."""
    given = problem()
    np.save(folder / "x.npy", given.x)
    np.save(folder / "y.npy", given.y)
    with h5py.File(folder / "named.h5", "w") as file:
        file["x/image"] = given.x
        file["x/ids"] = [f"picture {i}" for i in range(len(given.x))]
        file["y/text"] = given.y
        file["y/ids"] = 1000 + np.arange(len(given.y))
    write_pairs(folder / "pairs.csv", given.pairs)
    write_pairs(folder / "test.csv", given.test_pairs)


def environment() -> dict[str, str]:
    """Return the environment in which a new interpreter finds this package."""
    root = Path(anchordot_jax.__file__).parents[1]
    return {**os.environ, "PYTHONPATH": str(root)}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return what a new interpreter did with these arguments."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
