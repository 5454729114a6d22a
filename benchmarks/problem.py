"""The benchmarks' inputs: anchors, pools, profiles and epsilon, as files on the disk.

Rows are real: of the data set's pairs a random N are the anchors (permutation of seed
0), every other row may be in a pool, and flickr8k's y side has all of its captions, but
the anchors' own. chebi20's x side has the unpaired extra molecules too, where they are.
A pool that wants more rows than there are is filled up: each further row is the
normalised mix u p + (1 - u) q of two real rows of its side, u uniform.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import jax
import numpy as np

from anchordot_jax import (
    InputError,
    coordinate_maps,
    coordinates,
    files,
    fit_basis,
    load_dataset,
    open_embeddings,
    profile,
)
from anchordot_jax.data.datasets import DATASETS
from anchordot_jax.geometry import sampled_median_cost

Array = np.ndarray[Any, Any]
GAMMAS = {"chebi20": 1.0}
GAMMA = 0.75
ETA = 0.02
EXTRA_MOLECULES = "extra_molecules.h5"


class Size(NamedTuple):
    """Rows of both pools."""

    n: int
    m: int

    def __str__(self) -> str:
        return f"{self.n} x {self.m}"


class Problem(NamedTuple):
    """Anchors and pools of both sides, float32 with unit rows."""

    anchors_x: Array
    anchors_y: Array
    pool_x: Array
    pool_y: Array


class Stored(NamedTuple):
    """Where a problem's arrays lie, and its numbers."""

    ours: Path
    """Anchors and pools."""
    rivals: Path
    """Unit-norm profiles phi of both pools, `[n, N]` and `[m, N]`."""
    epsilon: float
    gamma: float
    r: int
    """Coordinates that the profiles' cosines take."""


def parse_size(text: str) -> Size:
    """Return the pools' sizes of `3600` or `5000x35000`.

    Raises:
        InputError: it is neither.
    """
    if not re.fullmatch(r"\d+(x\d+)?", text) or min(map(int, text.split("x"))) < 2:
        raise InputError(
            f"A size is a number of rows of at least 2, as in 3600, or two of them, as "
            f"in 5000x35000; got {text!r}."
        )
    n, _, m = text.partition("x")
    return Size(int(n), int(m or n))


def draw(data: str, folder: Path, size: Size, anchors: int) -> Problem:
    """Return the anchors and pools of one problem.

    Raises:
        InputError: an unknown or missing data set, or more anchors than it has.
    """
    check(data, folder, anchors)
    x, y = load_dataset(data, folder).read()
    order = np.random.default_rng(0).permutation(len(x))
    chosen, rest = order[:anchors], order[anchors:]
    more_x, more_y = _unpaired(data, folder, chosen)
    generator = np.random.default_rng(1)
    return Problem(
        unit(x[chosen]),
        unit(y[chosen]),
        _filled(np.concatenate([x[rest], more_x]), size.n, generator),
        _filled(np.concatenate([y[rest], more_y]), size.m, generator),
    )


def check(data: str, folder: Path, anchors: int) -> None:
    """Raise InputError unless the data set is there and has enough pairs."""
    pairs = len(load_dataset(data, folder).pairs)
    if not 2 <= anchors <= pairs - 2:
        raise InputError(
            f"{data} has {pairs} pairs, of which 2 to {pairs - 2} can be anchors; "
            f"--anchors asks for {anchors}."
        )


def unit(rows: Array) -> Array:
    """Return the rows scaled to unit norm, float32."""
    rows = np.asarray(rows, np.float32)
    scaled: Array = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled


def gamma_of(data: str) -> float:
    """Return the degree of whitening that the data set is benchmarked with."""
    return GAMMAS.get(data, GAMMA)


def store(data: str, folder: Path, size: Size, anchors: int, *, out: Path) -> Stored:
    """Return where a problem is stored; it is made where it is missing.

    epsilon is 0.02 of the cost's median, one number for all implementations.
    """
    own = out / f"{data}-{size.n}x{size.m}-{anchors}"
    told = own / "problem.json"
    if not told.is_file():
        with files.replacing_folder(own) as temporary:
            _write(temporary, draw(data, folder, size, anchors), gamma_of(data))
    values = files.read_json(told, "The problem")
    return Stored(own / "pools.npz", own / "profiles.npz", **values)


def _write(folder: Path, problem: Problem, gamma: float) -> None:
    np.savez(folder / "pools.npz", **problem._asdict())
    bases = fit_basis(problem.anchors_x), fit_basis(problem.anchors_y)
    z_x, z_y = coordinates(
        problem.pool_x, problem.pool_y, coordinate_maps(*bases, gamma)
    )
    median = sampled_median_cost(z_x, z_y, key=jax.random.key(0))
    np.savez(
        folder / "profiles.npz",
        x=unit(np.asarray(profile(problem.pool_x, bases[0], gamma))),
        y=unit(np.asarray(profile(problem.pool_y, bases[1], gamma))),
    )
    values = {"epsilon": ETA * float(median), "gamma": gamma, "r": z_x.shape[1]}
    files.write_json(folder / "problem.json", values)


def _unpaired(data: str, folder: Path, anchors: Array) -> tuple[Array, Array]:
    """Return further real rows of both sides that belong to no pair of the set."""
    rows = DATASETS[data].rows
    if data == "flickr8k" and rows is not None:
        path = folder / rows.file
        with h5py.File(path) as file:
            owner = np.asarray(file["image_index"])
        captions = open_embeddings(f"{path}::text_all").read()
        # The first caption of an image is the one of its pair.
        _, first = np.unique(owner, return_index=True)
        others = np.setdiff1d(np.arange(len(owner)), first)
        return _none(1280), captions[others]
    x, y = load_dataset(data, folder).read()
    extra = folder / EXTRA_MOLECULES
    if data.startswith("chebi20") and rows is not None and extra.is_file():
        return open_embeddings(f"{extra}::{rows.x}").read(), _none(y.shape[1])
    return _none(x.shape[1]), _none(y.shape[1])


def _none(columns: int) -> Array:
    return np.zeros((0, columns), np.float32)


def _filled(rows: Array, count: int, generator: np.random.Generator) -> Array:
    """Return so many unit rows, in random order; mixed ones where they run out."""
    rows = unit(rows[generator.permutation(len(rows))][:count])
    missing = count - len(rows)
    first, second = generator.integers(0, len(rows), (2, missing))
    share = generator.uniform(size=(missing, 1)).astype(np.float32)
    mixed = unit(share * rows[first] + (1 - share) * rows[second])
    return np.concatenate([rows, mixed])
