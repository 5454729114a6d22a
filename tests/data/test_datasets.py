"""Data sets by name: both layouts, official splits, and what is said when absent."""

from pathlib import Path

import h5py
import numpy as np
import pytest

import reference
from anchordot_jax.data.datasets import DATASETS, IMAGENET7, load_dataset
from anchordot_jax.errors import InputError


def write_side(path: Path, ids: list[str], dim: int) -> np.ndarray:
    """Write unit rows with ids as `anchordot extract` does; return the rows."""
    rows = reference.unit_rows(len(ids), dim, seed=len(ids)).astype(np.float16)
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["embeddings"] = rows
        file["ids"] = np.array(ids, object)
    return np.asarray(rows, np.float32)


def write_pairs(path: Path, pairs: list[tuple[str, str]]) -> None:
    """Write a pairs file."""
    path.write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in pairs))


def write_flickr30k(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Write four photographs of two captions each in the extracted layout."""
    own = folder / "flickr30k"
    photos = ["d.jpg", "a.jpg", "c.jpg", "b.jpg"]
    captions = [f"{photo}#{k}" for photo in photos for k in range(2)]
    x = write_side(own / "x.h5", photos, 5)
    y = write_side(own / "y.h5", captions, 3)
    pairs = [(photo, f"{photo}#{k}") for photo in photos for k in range(2)]
    write_pairs(own / "pairs.csv", pairs)
    write_pairs(own / "pairs-train.csv", pairs[:4])
    write_pairs(own / "pairs-val.csv", pairs[4:6])
    write_pairs(own / "pairs-test.csv", pairs[6:])
    return x, y


def test_an_extracted_folder_keeps_each_items_first_caption(tmp_path: Path) -> None:
    x, y = write_flickr30k(tmp_path)
    loaded = load_dataset("flickr30k", tmp_path, check_counts=False)
    assert loaded.pairs.tolist() == [[0, 0], [1, 2], [2, 4], [3, 6]]
    assert {k: v.tolist() for k, v in loaded.splits.items()} == {
        "train": [0, 1],
        "val": [2],
        "test": [3],
    }
    own_x, own_y = loaded.read()
    np.testing.assert_array_equal(own_x, x)
    np.testing.assert_array_equal(own_y, y[::2])


def test_other_counts_than_the_official_ones_are_refused(tmp_path: Path) -> None:
    write_flickr30k(tmp_path)
    with pytest.raises(InputError, match=r"it has 4 pairs, not 31014.*check_counts"):
        load_dataset("flickr30k", tmp_path)


@pytest.mark.parametrize("missing", ["x.h5", "pairs.csv", "pairs-val.csv"])
def test_a_missing_file_says_what_to_download(tmp_path: Path, missing: str) -> None:
    write_flickr30k(tmp_path)
    (tmp_path / "flickr30k" / missing).unlink()
    with pytest.raises(InputError, match=r"Karpathy.*--out FOLDER/flickr30k") as caught:
        load_dataset("flickr30k", tmp_path, check_counts=False)
    assert str(tmp_path / "flickr30k" / missing) in str(caught.value)


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "openclipart"])
def test_every_absent_set_says_what_is_needed(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"The data set {name} .*Needed: .{{20}}"):
        load_dataset(name, tmp_path)


def test_the_bundled_set_needs_no_folder(tmp_path: Path) -> None:
    loaded = load_dataset("openclipart", tmp_path)
    assert loaded.pairs.shape == (2786, 2)
    assert loaded.splits == {}
    assert loaded.y.shape == (2786, 384)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean flickr30k"):
        load_dataset("flickr30", ".")


def test_classes_are_the_first_part_of_the_ids(tmp_path: Path) -> None:
    ids = [f"{label}/{k}.jpg" for label in ("snow", "cat") for k in range(2)]
    write_side(tmp_path / "imagenet7" / "x.h5", ids, 5)
    prompts = [f"A photo of a {label}" for label in IMAGENET7]
    write_side(tmp_path / "imagenet7-prompts" / "y.h5", prompts, 3)
    loaded = load_dataset("imagenet7", tmp_path, check_counts=False)
    assert loaded.pairs.tolist() == [[0, 6], [1, 6], [2, 0], [3, 0]]


@pytest.mark.parametrize(
    ("ids", "prompts", "message"),
    [
        (["cow/1.jpg"], 7, "images of the class 'cow'"),
        (["cat/1.jpg"], 6, "6 rows; needed is one prompt for each of cat, dog"),
    ],
)
def test_other_classes_are_refused(
    tmp_path: Path, ids: list[str], prompts: int, message: str
) -> None:
    write_side(tmp_path / "imagenet7" / "x.h5", ids, 5)
    names = [str(k) for k in range(prompts)]
    write_side(tmp_path / "imagenet7-prompts" / "y.h5", names, 3)
    with pytest.raises(InputError, match=message):
        load_dataset("imagenet7", tmp_path)


def test_rows_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "chebi20.h5", "w") as file:
        file["molecule"] = reference.unit_rows(5, 4, seed=0)
        file["text"] = reference.unit_rows(6, 3, seed=1)
    with pytest.raises(InputError, match=r"has 5 rows and .* 6, but row i of both"):
        load_dataset("chebi20", tmp_path)


def test_a_file_without_splits_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "chebi20.h5", "w") as file:
        file["molecule"] = reference.unit_rows(5, 4, seed=0)
        file["text"] = reference.unit_rows(5, 3, seed=1)
    with pytest.raises(InputError, match="lacks the dataset split"):
        load_dataset("chebi20", tmp_path)


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["flickr8k", "chebi20", "chebi20-fp"])
def test_the_files_at_hand_are_the_official_ones(real_data: Path, name: str) -> None:
    loaded = load_dataset(name, real_data)
    members = np.concatenate(list(loaded.splits.values()))
    np.testing.assert_array_equal(np.sort(members), np.arange(len(loaded.pairs)))
    x, y = loaded.read()
    assert len(x) == len(y) == DATASETS[name].counts[""]
