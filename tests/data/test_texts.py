"""One text a row, from each kind of file."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from anchordot_jax.data import open_embeddings, read_texts
from anchordot_jax.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with embeddings of three rows, with and without ids."""
    np.save(tmp_path / "plain.npy", np.eye(3, dtype=np.float32))
    with h5py.File(tmp_path / "named.h5", "w") as file:
        file["rows"] = np.eye(3, dtype=np.float32)
        file["id"] = ["a", "b", "c"]
        file["text"] = ["one", "two", "drei, vier"]
        file["number"] = np.arange(3)
    (tmp_path / "lines.txt").write_text("one\ntwo\ndrei, vier\n")
    (tmp_path / "short.txt").write_text("one\n")
    (tmp_path / "order.csv").write_text('caption,n\none,1\ntwo,2\n"drei, vier",3\n')
    (tmp_path / "ids.tsv").write_text("id\ttext\nc\tdrei, vier\nz\tno\na\tone\n")
    (tmp_path / "foreign.csv").write_text("id,text\ny,one\n")
    (tmp_path / "other.csv").write_text("id,words\na,one\n")
    return tmp_path


@pytest.mark.parametrize("name", ["lines.txt", "order.csv", "named.h5::text"])
def test_row_by_row(folder: Path, name: str) -> None:
    source = open_embeddings(f"{folder / 'plain.npy'}")
    found = read_texts(f"{folder / name}", source)
    assert found == {0: "one", 1: "two", 2: "drei, vier"}


def test_only_a_line_end_ends_a_text(folder: Path) -> None:
    """A caption may hold what Unicode also calls a line separator."""
    texts = ["one\u2028more", "two\x85more", "three\x0cmore"]
    (folder / "odd.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    source = open_embeddings(f"{folder / 'plain.npy'}")
    assert read_texts(f"{folder / 'odd.txt'}", source) == dict(enumerate(texts))


def test_ids_say_which_row(folder: Path) -> None:
    source = open_embeddings(f"{folder / 'named.h5'}::rows")
    assert read_texts(f"{folder / 'ids.tsv'}", source) == {0: "one", 2: "drei, vier"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.txt", "does not exist"),
        ("short.txt", "one text for each of the 3 rows"),
        ("plain.npy", "got .npy"),
        ("named.h5", "needs the name of its texts"),
        ("named.h5::number", "does not hold strings"),
        ("other.csv", "none of the columns text, caption"),
        ("foreign.csv", "No id of"),
    ],
)
def test_bad_texts_are_refused(folder: Path, name: str, message: str) -> None:
    source = open_embeddings(f"{folder / 'named.h5'}::rows")
    with pytest.raises(InputError, match=message):
        read_texts(f"{folder / name}", source)
