"""The documents, and a folder of small files that have the names used in them."""

from pathlib import Path

import h5py
import jax
import numpy as np
import pytest

from anchordot_jax.cli.main import main
from planted import write_pairs

N, DIM, LATENT, ANCHORS, TEST = 60, 12, 6, 20, 20
FIT = "fit --x images.h5 --y texts.npy --pairs pairs.csv --test-pairs test.csv"


def write_h5(path: Path, rows: np.ndarray, name: str) -> None:
    """Write an embedding file with ids."""
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "w") as file:
        file["embeddings"] = rows
        file["ids"] = [f"{name}-{i}" for i in range(len(rows))]


def write_documented_files(folder: Path) -> None:
    """Write two linear views of one latent space under all names of the documents.

    Row i of one side belongs to row i of the other.
    """
    random = np.random.default_rng(0)
    latent = random.normal(size=(N, LATENT))
    views = (latent @ random.normal(size=(LATENT, DIM)) for _ in "xy")
    x, y = ((v + random.normal(size=v.shape)).astype(np.float32) for v in views)
    rows = np.stack([np.arange(N)] * 2, axis=1)
    ids = [(f"x-{i}", f"y-{i}") for i in range(N)]
    anchors, test = slice(0, ANCHORS), slice(ANCHORS, ANCHORS + TEST)
    np.save(folder / "images.npy", x)
    np.save(folder / "texts.npy", y)
    np.save(folder / "pairs.npy", rows[anchors])
    for name in ("images.h5", "new_images.h5"):
        with h5py.File(folder / name, "w") as file:
            file["embeddings"] = x
    with h5py.File(folder / "texts.h5", "w") as file:
        file["embeddings"] = y
    write_pairs(folder / "pairs.csv", rows[anchors])
    write_pairs(folder / "test.csv", rows[test])
    captions = "".join(f"caption {i}\n" for i in range(N))
    (folder / "captions.csv").write_text(f"caption\n{captions}", encoding="utf-8")
    (folder / "photos").mkdir(exist_ok=True)
    # What `extract` leaves: ids, and pairs by id.
    for name in ("embeddings", "art", "flickr30k"):
        write_h5(folder / name / "x.h5", x, "x")
        write_h5(folder / name / "y.h5", y, "y")
    write_h5(folder / "queries" / "y.h5", y[:6], "query")
    write_pairs(folder / "art" / "pairs.csv", ids)
    write_pairs(folder / "few-hundred-pairs.csv", ids[anchors])
    write_pairs(folder / "flickr30k" / "pairs-test.csv", ids[test])


@pytest.fixture(scope="session")
def documented_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run of the documented fit."""
    folder = tmp_path_factory.mktemp("documented")
    write_documented_files(folder)
    with pytest.MonkeyPatch.context() as patch, jax.numpy_rank_promotion("raise"):
        patch.chdir(folder)
        if main([*FIT.split(), "--out", "run"]) != 0:
            raise RuntimeError("the fit that other commands use failed")
    return folder / "run"


@pytest.fixture
def documented_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of the small files, which is the working folder."""
    write_documented_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
