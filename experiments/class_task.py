"""Images with known classes and prompts for them: what zero-shot tables classify.

`imagenet7` is the paper's case: one prompt "A photo of a CLASS" a class. Where its
files are not at hand, `openclipart` stands in: its folders are the classes, and a class
is the mean of the texts of some of its pieces, the way a class is the mean of several
prompts. Those pieces are the y pool of the draw, whose images are never classified, and
classified images are never anchors or in a pool of a model fitted on the same set.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fits import split_of

from anchordot_jax import InputError, load_dataset
from anchordot_jax.data.datasets import DATASETS

GROUPS = (
    "animals",
    "buildings",
    "food",
    "people",
    "plants",
    "tools",
    "transportation",
)
"""Folders of openclipart that name what is drawn; others say what it is for."""


class ClassTask(NamedTuple):
    """Raw embeddings of both sides with their classes."""

    images: np.ndarray
    """`[q, dx]`."""
    image_labels: np.ndarray
    prompts: np.ndarray
    """`[p, dy]`."""
    prompt_labels: np.ndarray
    names: tuple[str, ...]


def class_task(settings: Mapping[str, Any], folder: Path) -> ClassTask:
    """Return the images and prompts of the set `classes` for a model of a fit's cell.

    Raises:
        InputError: the set has no classes, or is absent.
    """
    name = settings["classes"]
    if name == "openclipart":
        return _clipart_task(settings, folder)
    loaded = load_dataset(name, folder)
    names = DATASETS[name].classes
    if not names:
        raise InputError(
            f"The data set {name} has no classes; --classes must be openclipart or "
            f"imagenet7."
        )
    return ClassTask(
        loaded.x.read(loaded.pairs[:, 0]),
        loaded.pairs[:, 1],
        loaded.y.read(),
        np.arange(len(names)),
        names,
    )


def _clipart_task(settings: Mapping[str, Any], folder: Path) -> ClassTask:
    loaded = load_dataset("openclipart", folder)
    x, y = loaded.read()
    if loaded.x.ids is None:
        raise InputError(f"{loaded.x.where} holds no ids, which name the classes.")
    groups = np.array([str(value).split("/")[0] for value in loaded.x.ids])
    labels = np.full(len(x), -1)
    for number, name in enumerate(GROUPS):
        labels[groups == name] = number
    # All rows of the halves: a smaller pool of the fit leaves prompts as they are.
    split = split_of({**settings, "pool": None, "overlap": 0.0}, len(x))
    own = settings["data"] == "openclipart"
    others = np.setdiff1d(np.arange(len(x)), split.pool_y)
    images = split.test_pairs[:, 0] if own else others
    images = images[labels[images] >= 0]
    prompts = split.pool_y[labels[split.pool_y] >= 0]
    return ClassTask(x[images], labels[images], y[prompts], labels[prompts], GROUPS)
