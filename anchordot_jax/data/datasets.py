"""Data sets by name: where their files lie, how many pairs they have, how to get them.

Two layouts. `rows`: one HDF5 file in which row i of two datasets belongs together.
`extracted`: the folder that `anchordot extract` wrote, `x.h5`, `y.h5`, `pairs.csv` and
a `pairs-SPLIT.csv` for each official split. Of several captions an item keeps the
first, which is the protocol of the AnchorDOT paper (Section 4).
"""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from anchordot_jax.data.bundled import bundled_path
from anchordot_jax.data.pairs import read_pairs
from anchordot_jax.data.readers import open_embeddings
from anchordot_jax.data.source import EmbeddingSource
from anchordot_jax.errors import InputError

IMAGENET7 = ("cat", "dog", "man", "woman", "mountain", "shore", "snow")
"""The seven categories of the paper's Table 3, in the order of the prompts."""


class Rows(NamedTuple):
    """One HDF5 file of two datasets whose rows belong together."""

    file: str
    x: str
    y: str
    splits: Mapping[int, str] = {}
    """What the numbers of the dataset `split` mean; empty where there is none."""


class Entry(NamedTuple):
    """One data set that can be asked for by name."""

    what: str
    counts: Mapping[str, int]
    """Pairs in all (""), and in each official split."""
    get: str
    """What to download and how to make the files."""
    rows: Rows | None = None
    """None: the folder of the set's name, as `anchordot extract` writes it."""
    classes: tuple[str, ...] = ()
    """Of a set for zero-shot classification: the prompts' classes, in order."""


class DataSet(NamedTuple):
    """Embeddings of both sides, which rows belong together, and the official splits."""

    name: str
    x: EmbeddingSource
    y: EmbeddingSource
    pairs: NDArray[np.int64]
    """`[p, 2]` rows of x and y; each x row once, with its first partner."""
    splits: dict[str, NDArray[np.int64]]
    """Rows of `pairs` by official split; empty where the set has none."""

    def read(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the paired rows `[p, dx]` and `[p, dy]`; row i belongs together."""
        return self.x.read(self.pairs[:, 0]), self.y.read(self.pairs[:, 1])


_FLICKR = {0: "train", 1: "val", 2: "test", 3: "none"}
_CHEBI = {1: "validation", 2: "test"}
_KARPATHY = "the splits are those of Karpathy's caption_datasets.zip"

DATASETS: dict[str, Entry] = {
    "flickr8k": Entry(
        what="photographs and their first caption",
        counts={"": 7086, "train": 5247, "val": 878, "test": 880, "none": 81},
        get="flickr8k.h5 with the datasets image, text and split",
        rows=Rows("flickr8k.h5", "image", "text", _FLICKR),
    ),
    "chebi20": Entry(
        what="molecules (MiniMol) and descriptions, validation and test rows",
        counts={"": 5801, "validation": 2883, "test": 2918},
        get="chebi20.h5 with the datasets molecule, text and split",
        rows=Rows("chebi20.h5", "molecule", "text", _CHEBI),
    ),
    "chebi20-fp": Entry(
        what="molecules (fingerprints) and descriptions, validation and test rows",
        counts={"": 5801, "validation": 2883, "test": 2918},
        get="chebi20.h5 with the datasets molecule_fp, text and split",
        rows=Rows("chebi20.h5", "molecule_fp", "text", _CHEBI),
    ),
    "openclipart": Entry(
        what="clip art and its titles; ships with the package",
        counts={"": 2786},
        get="a complete installation of anchordot-jax",
        rows=Rows("openclipart.h5", "image", "text"),
    ),
    "flickr30k": Entry(
        what="photographs and their first caption",
        counts={"": 31014, "train": 29000, "val": 1014, "test": 1000},
        get="Flickr30k's images (a form of its authors) and dataset_flickr30k.json "
        f"({_KARPATHY}), then: anchordot extract dataset_flickr30k.json --images "
        "flickr30k-images --x dinov2-small --y minilm --out FOLDER/flickr30k",
    ),
    "mscoco": Entry(
        what="photographs and their first caption, COCO 2014",
        counts={
            "": 123287,
            "train": 82783,
            "restval": 30504,
            "val": 5000,
            "test": 5000,
        },
        get=f"COCO's train2014 and val2014 images and dataset_coco.json ({_KARPATHY}), "
        "then: anchordot extract dataset_coco.json --images coco --x dinov2-small "
        "--y minilm --out FOLDER/mscoco",
    ),
    "chebi20-full": Entry(
        what="molecules (MoLFormer-XL) and descriptions, all splits",
        counts={"": 33008, "train": 26407, "validation": 3301, "test": 3300},
        get="the folder ChEBI-20_data of blender-nlp/MolT5, then: anchordot extract "
        "ChEBI-20_data --x molformer-xl --y minilm --trust-remote-code --out "
        "FOLDER/chebi20-full",
    ),
    "cc3m": Entry(
        what="photographs and captions, as SOTAlign has them",
        counts={},
        get="PixParse's shards of CC3M with DreamLIP's captions, then: anchordot "
        "extract cc3m_recaptioned --format webdataset --x dinov3-large --y nv-embed-v2 "
        "--text-column raw_caption --raw --trust-remote-code --out FOLDER/cc3m",
    ),
    "imagenet7": Entry(
        what="ImageNet images of seven classes, for zero-shot classification",
        counts={"": 700},
        get=f"100 images in each of the folders {', '.join(IMAGENET7)} below "
        "imagenet7-images, and prompts.txt, a line 'A photo of a CLASS' for each in "
        "that order, then: anchordot extract imagenet7-images --x dinov2-small --out "
        "FOLDER/imagenet7 and anchordot extract prompts.txt --y minilm --out "
        "FOLDER/imagenet7-prompts",
        classes=IMAGENET7,
    ),
}


def load_dataset(
    name: str, folder: str | Path = ".", *, check_counts: bool = True
) -> DataSet:
    """Return a data set's embeddings, pairs and official splits.

    Args:
        name: one of `DATASETS`.
        folder: where the data sets' files lie; `openclipart` needs none.
        check_counts: whether other numbers of pairs than the official ones are an
            error. They differ where images could not be had any more.

    Raises:
        InputError: an unknown name; files that are missing (with what to download and
            where to put it), of another layout, or of other numbers of pairs.
    """
    entry = _find(name)
    folder = Path(folder)
    if entry.rows is not None:
        loaded = _load_rows(name, entry, entry.rows, folder)
    elif entry.classes:
        loaded = _load_classes(name, entry, folder)
    else:
        loaded = _load_extracted(name, entry, folder)
    if check_counts:
        _check_counts(loaded, entry)
    return loaded


def _find(name: str) -> Entry:
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(
            f"There is no data set {name!r}: {hint}Known are {', '.join(DATASETS)}."
        )
    return DATASETS[name]


def _load_rows(name: str, entry: Entry, rows: Rows, folder: Path) -> DataSet:
    path = folder / rows.file
    if name == "openclipart" and not path.is_file():
        path = bundled_path()
    _check_there(name, entry, path)
    x = open_embeddings(f"{path}::{rows.x}")
    y = open_embeddings(f"{path}::{rows.y}")
    if x.shape[0] != y.shape[0]:
        raise InputError(
            f"{x.where} has {x.shape[0]} rows and {y.where} {y.shape[0]}, but row i of "
            f"both must belong together. Needed: {entry.get}."
        )
    pairs = np.repeat(np.arange(x.shape[0], dtype=np.int64)[:, None], 2, axis=1)
    return DataSet(name, x, y, pairs, _numbered_splits(path, rows, len(pairs)))


def _numbered_splits(path: Path, rows: Rows, n: int) -> dict[str, NDArray[np.int64]]:
    """Return the pairs of each number of the dataset `split`."""
    if not rows.splits:
        return {}
    with h5py.File(path) as file:
        stored = file.get("split")
        numbers = None if not isinstance(stored, h5py.Dataset) else stored[:]
    if numbers is None or numbers.shape != (n,):
        raise InputError(f"{path} lacks the dataset split, a number for each row.")
    return {
        split: np.flatnonzero(numbers == number).astype(np.int64)
        for number, split in rows.splits.items()
    }


def _load_extracted(name: str, entry: Entry, folder: Path) -> DataSet:
    own = folder / name
    for file in ("x.h5", "y.h5", "pairs.csv"):
        _check_there(name, entry, own / file)
    x, y = open_embeddings(own / "x.h5"), open_embeddings(own / "y.h5")
    pairs = _first_partners(read_pairs(own / "pairs.csv", x, y))
    splits = {}
    for split in filter(None, entry.counts):
        path = own / f"pairs-{split}.csv"
        _check_there(name, entry, path)
        members = _first_partners(read_pairs(path, x, y))
        splits[split] = np.flatnonzero(np.isin(pairs[:, 0], members[:, 0]))
    return DataSet(name, x, y, pairs, splits)


def _first_partners(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first pair of each x row, in order."""
    _, first = np.unique(pairs[:, 0], return_index=True)
    return pairs[np.sort(first)]


def _load_classes(name: str, entry: Entry, folder: Path) -> DataSet:
    """Return images paired with their class's prompt; ids begin with the class."""
    images, prompts = folder / name / "x.h5", folder / f"{name}-prompts" / "y.h5"
    for path in (images, prompts):
        _check_there(name, entry, path)
    x, y = open_embeddings(images), open_embeddings(prompts)
    if y.shape[0] != len(entry.classes):
        raise InputError(
            f"{y.where} has {y.shape[0]} rows; needed is one prompt for each of "
            f"{', '.join(entry.classes)}, in that order."
        )
    if x.ids is None:
        raise InputError(f"{x.where} holds no ids, which name the images' classes.")
    numbers = {label: number for number, label in enumerate(entry.classes)}
    labels = [str(value).split("/")[0] for value in x.ids]
    unknown = [label for label in labels if label not in numbers]
    if unknown:
        raise InputError(
            f"{x.where} has images of the class {unknown[0]!r}; the classes are "
            f"{', '.join(entry.classes)}, the first part of each id."
        )
    pairs = [(row, numbers[label]) for row, label in enumerate(labels)]
    return DataSet(name, x, y, np.array(pairs, np.int64), {})


def _check_there(name: str, entry: Entry, path: Path) -> None:
    if not path.is_file():
        raise InputError(
            f"The data set {name} ({entry.what}) is not there: {path} is missing. "
            f"Needed: {entry.get}."
        )


def _check_counts(loaded: DataSet, entry: Entry) -> None:
    found = {"": len(loaded.pairs)} | {k: len(v) for k, v in loaded.splits.items()}
    for split, count in entry.counts.items():
        if found.get(split) != count:
            part = f"its split {split}" if split else "it"
            raise InputError(
                f"The data set {loaded.name} is not the official one: {part} has "
                f"{found.get(split, 0)} pairs, not {count}. Make the files anew, or "
                f"accept what is there (check_counts=False)."
            )
