"""Images with known classes and prompts for them: what zero-shot tables classify.

`imagenet7` is the paper's case: one prompt "A photo of a CLASS" a class. Two sets stand
in where its files are not at hand; a class is the mean of texts of other items of that
class there, the way a class is the mean of several prompts. `flickr8k`: photographs of
the paper's categories but the cat, of which there are too few; a photograph is of a
class where three or more of its five captions name it, and no other class. Its captions
are read from flickr8k_captions.tsv.gz. `openclipart`: the folders of seven kinds.

Prompts are of the y pool of the draw, whose images are never classified; classified
images are no anchor and in no pool of a model fitted on the same set.
"""

import collections
import csv
import gzip
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fits import split_of

from anchordot_jax import InputError, load_dataset
from anchordot_jax.data.datasets import DATASETS

WORDS = {
    "dog": {"dog", "dogs", "puppy", "puppies"},
    "man": {"man", "men"},
    "woman": {"woman", "women", "lady", "ladies"},
    "mountain": {"mountain", "mountains"},
    "shore": {"shore", "beach", "ocean", "sea"},
    "snow": {"snow", "snowy"},
}
"""Words of a caption that name a class of photographs."""
MOST = 3
"""Captions, of five, that name a photograph's class."""
CAPTIONS = "flickr8k_captions.tsv.gz"
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

    rows: np.ndarray
    """Rows of the images in the set."""
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
        return _stand_in(settings, folder, _folders(folder), GROUPS)
    if name == "flickr8k":
        return _stand_in(settings, folder, _named(folder), tuple(WORDS))
    loaded = load_dataset(name, folder)
    names = DATASETS[name].classes
    if not names:
        raise InputError(
            f"The data set {name} has no classes; --classes must be flickr8k, "
            f"openclipart or imagenet7."
        )
    return ClassTask(
        loaded.pairs[:, 0],
        loaded.x.read(loaded.pairs[:, 0]),
        loaded.pairs[:, 1],
        loaded.y.read(),
        np.arange(len(names)),
        names,
    )


def _stand_in(
    settings: Mapping[str, Any],
    folder: Path,
    labels: np.ndarray,
    names: tuple[str, ...],
) -> ClassTask:
    """Return the rows of a stand-in that have a class; labels are -1 elsewhere."""
    x, y = load_dataset(settings["classes"], folder).read()
    if len(labels) != len(x):
        raise InputError(
            f"{settings['classes']} has {len(x)} rows and classes for {len(labels)}; "
            f"take both from one source."
        )
    # All rows of the halves: a smaller pool of the fit leaves prompts as they are.
    split = split_of({**settings, "pool": None, "overlap": 0.0}, len(x))
    own = settings["data"] == settings["classes"]
    others = np.setdiff1d(np.arange(len(x)), split.pool_y)
    images = split.test_pairs[:, 0] if own else others
    images = images[labels[images] >= 0]
    prompts = split.pool_y[labels[split.pool_y] >= 0]
    return ClassTask(
        images, x[images], labels[images], y[prompts], labels[prompts], names
    )


def _folders(folder: Path) -> np.ndarray:
    """Return the number in GROUPS of each piece's folder, -1 for the others."""
    source = load_dataset("openclipart", folder).x
    if source.ids is None:
        raise InputError(f"{source.where} holds no ids, which name the classes.")
    numbers = {name: number for number, name in enumerate(GROUPS)}
    return np.array([numbers.get(str(own).split("/")[0], -1) for own in source.ids])


def _named(folder: Path) -> np.ndarray:
    """Return the number in WORDS of what each photograph's captions name, or -1."""
    path = folder / CAPTIONS
    if not path.is_file():
        raise InputError(
            f"{path} is missing: classes of flickr8k are read from its captions, with "
            f"the columns image_row and caption; or choose another --classes."
        )
    named: dict[int, collections.Counter[str]] = {}
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            words = set(re.findall(r"[a-z]+", row["caption"].lower()))
            counts = named.setdefault(int(row["image_row"]), collections.Counter())
            counts.update(name for name, own in WORDS.items() if own & words)
    labels = np.full(max(named) + 1, -1)
    for image, counts in named.items():
        often = [name for name, count in counts.items() if count >= MOST]
        if len(often) == 1:
            labels[image] = list(WORDS).index(often[0])
    return labels
