"""Batches into files: nothing lost or doubled, whatever happens on the way."""

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

import fake_encoders as fakes
from anchordot_jax import open_embeddings
from anchordot_jax.data import read_pairs
from anchordot_jax.encoders import extraction
from anchordot_jax.encoders.extraction import ExtractionConfig, extract
from anchordot_jax.encoders.journal import BATCHES, ROWS
from anchordot_jax.encoders.sources.opening import open_source
from anchordot_jax.errors import InputError

SILENT = fakes.Silent()
FILES = ("x.h5", "y.h5", "pairs.csv", "rejected.csv")


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Return a folder of 23 pictures with two captions each."""
    fakes.write_pictures(tmp_path / "pictures", 23)
    return tmp_path / "pictures"


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder, hidden ones too."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def rows_in(path: Path) -> list[list[str]]:
    """Return the rows of a CSV file."""
    with path.open(newline="") as stream:
        return list(csv.reader(stream))


def test_a_run_writes_both_sides_and_their_pairs(
    pictures: Path, tmp_path: Path
) -> None:
    """Rows, ids, pairs and image_index are those worked out from the pictures."""
    result = fakes.run(open_source(str(pictures)), tmp_path / "out", batch_size=4)
    assert sorted(contents(tmp_path / "out")) == sorted(FILES)

    x, y = (open_embeddings(tmp_path / "out" / f"{side}.h5") for side in "xy")
    assert (x.shape, y.shape, x.dtype) == ((23, 5), (46, 5), "float16")
    assert x.ids is not None
    assert y.ids is not None
    assert x.ids.tolist() == [f"p{i:04d}.png" for i in range(23)]
    assert y.ids.tolist()[:3] == ["p0000.png#0", "p0000.png#1", "p0001.png#0"]
    pixels = np.asarray(Image.open(pictures / "p0005.png"), np.float64)
    expected = np.array([*pixels.mean((0, 1)), pixels.std() + 1, 3])
    assert np.allclose(x.read([5])[0], expected / np.linalg.norm(expected), atol=5e-4)

    with h5py.File(tmp_path / "out" / "y.h5") as file:
        assert file["image_index"][:].tolist() == [i // 2 for i in range(46)]
        assert file["embeddings"].compression == "gzip"
        assert file["embeddings"].chunks == (46, 5)
        assert file.attrs["encoder"] == "fake-text"
        assert file.attrs["source_digest"].startswith("names-and-sizes:")
    pairs = read_pairs(tmp_path / "out" / "pairs.csv", x, y)
    assert pairs.tolist() == [[i // 2, i] for i in range(46)]
    assert result.pairs == {"pairs.csv": 46}


@pytest.mark.parametrize("die_at", [0, 3, 11])
def test_after_a_kill_the_file_is_that_of_an_uninterrupted_run(
    pictures: Path, tmp_path: Path, die_at: int
) -> None:
    """Kill -9 before the first batch, in the middle, at the last: the same bytes."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    fakes.run(open_source(str(pictures)), whole, batch_size=4)
    done = subprocess.run(
        [sys.executable, fakes.__file__, pictures, killed, str(die_at), "4", "both"],
        check=False,
    )
    assert done.returncode == -9
    assert not (killed / "y.h5").exists()

    result = fakes.run(open_source(str(pictures)), killed, batch_size=4)
    assert result.sides["x"].complete_before
    assert result.sides["y"].resumed_at == 4 * die_at
    assert contents(killed) == contents(whole)


@pytest.mark.parametrize("damage", ["torn line", "rows without their line", "torn row"])
def test_a_half_written_batch_is_done_again(
    pictures: Path, tmp_path: Path, damage: str
) -> None:
    """What a kill in the middle of a write leaves behind is cut off."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    fakes.run(open_source(str(pictures)), whole, batch_size=4, y=False)
    command = [sys.executable, fakes.__file__, pictures, killed, "3", "4", "one"]
    assert subprocess.run(command, check=False).returncode == -9
    journal = killed / ".x.partial"
    if damage == "torn line":
        lines = (journal / BATCHES).read_bytes()
        (journal / BATCHES).write_bytes(lines[:-9])
    else:
        with (journal / ROWS).open("ab") as stream:
            stream.write(b"\1" * (20 if damage == "rows without their line" else 3))
    fakes.run(open_source(str(pictures)), killed, batch_size=4, y=False)
    assert contents(killed) == contents(whole)


def test_a_thousand_rows_of_which_thirty_are_corrupt(tmp_path: Path) -> None:
    """970 good rows, and a list of 30 reasons."""
    folder = tmp_path / "pictures"
    fakes.write_pictures(folder, 1000, captions=1)
    for i in range(0, 300, 10):
        path = folder / f"p{i:04d}.png"
        whole = path.read_bytes()
        path.write_bytes((b"", b"not a picture", whole[: len(whole) // 2])[i % 3])
    result = fakes.run(open_source(str(folder)), tmp_path / "out", batch_size=32)
    x = open_embeddings(tmp_path / "out" / "x.h5")
    assert x.ids is not None
    assert x.shape == (970, 5)
    bad = [f"p{i:04d}.png" for i in range(0, 300, 10)]
    assert not set(bad) & set(x.ids.tolist())
    listed = rows_in(tmp_path / "out" / "rejected.csv")
    assert [row[1] for row in listed[1:]] == bad
    assert {row[2].partition(":")[0] for row in listed[1:]} == {
        "the image file is empty",
        "not an image file, or a damaged one",
        "damaged image",
    }
    # A caption whose picture is gone stays, without a partner.
    assert result.pairs == {"pairs.csv": 970}
    with h5py.File(tmp_path / "out" / "y.h5") as file:
        index = file["image_index"][:]
    assert len(index) == 1000
    assert (index == -1).sum() == 30
    assert np.array_equal(index[index >= 0], np.arange(970))


def test_strict_stops_at_the_first_bad_item_and_leaves_nothing(
    pictures: Path, tmp_path: Path
) -> None:
    """The sentence names the item and the reason."""
    (pictures / "p0009.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"p0009\.png of .* as x: not an image file"):
        fakes.run(open_source(str(pictures)), tmp_path / "out", strict=True)
    assert not (tmp_path / "out").exists()


def test_nothing_readable_is_an_error(pictures: Path, tmp_path: Path) -> None:
    """A source of which no item can be read makes no empty file."""
    for path in pictures.glob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(
        InputError, match=r"None of the 23 items .* p0000\.png: the image"
    ):
        fakes.run(open_source(str(pictures)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_same_command_again_says_that_it_is_complete(
    pictures: Path, tmp_path: Path
) -> None:
    """Nothing is encoded twice, and the files stay as they are."""
    (pictures / "p0009.png").write_bytes(b"no picture")
    fakes.run(open_source(str(pictures)), tmp_path / "out")
    before = contents(tmp_path / "out")
    result = fakes.run(open_source(str(pictures)), tmp_path / "out", die_at=0)
    assert all(side.complete_before for side in result.sides.values())
    assert result.sides["x"].refused[0].id == "p0009.png"
    assert contents(tmp_path / "out") == before


def test_a_side_added_later_gets_its_pairs(pictures: Path, tmp_path: Path) -> None:
    """One side first, then both: the same files as at once."""
    source = open_source(str(pictures))
    fakes.run(source, tmp_path / "both")
    fakes.run(source, tmp_path / "steps", y=False)
    fakes.run(source, tmp_path / "steps")
    assert contents(tmp_path / "steps") == contents(tmp_path / "both")


def test_the_second_side_may_come_first(pictures: Path, tmp_path: Path) -> None:
    """Captions alone, then both: they are not encoded again, and get their index."""
    source, out = open_source(str(pictures)), tmp_path / "out"
    extract(source, {"y": fakes.FakeEncoder("text")}, out, ExtractionConfig(), SILENT)
    with h5py.File(out / "y.h5") as file:
        assert "image_index" not in file
    result = fakes.run(source, out, die_at=0)
    assert result.sides["y"].complete_before
    assert result.pairs == {"pairs.csv": 46}
    with h5py.File(out / "y.h5") as file:
        assert file["image_index"][:].tolist() == [i // 2 for i in range(46)]
    assert fakes.run(source, out, die_at=0).sides["y"].complete_before


def test_other_settings_are_refused_not_mixed_in(
    pictures: Path, tmp_path: Path
) -> None:
    """A finished file, and an unfinished one, keep the settings they began with."""
    out = tmp_path / "out"
    source = open_source(str(pictures))
    fakes.run(source, out, y=False)
    with pytest.raises(InputError, match=r"dtype 'float16', now 'float32'"):
        fakes.run(source, out, y=False, dtype="float32")
    fakes.run(source, out, y=False, dtype="float32", restart=True)
    assert open_embeddings(out / "x.h5").dtype == "float32"

    begun = tmp_path / "begun"
    command = [sys.executable, fakes.__file__, pictures, begun, "2", "4", "one"]
    assert subprocess.run(command, check=False).returncode == -9
    before = contents(begun / ".x.partial")
    (pictures / "p0001.png").unlink()
    with pytest.raises(
        InputError, match="unfinished extraction with another source_dig"
    ):
        fakes.run(open_source(str(pictures)), begun, y=False, batch_size=4)
    assert contents(begun / ".x.partial") == before


class Hungry(fakes.FakeEncoder):
    """An encoder with memory for three items."""

    def encode(self, prepared: Any) -> Any:
        if len(prepared) > 3:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return super().encode(prepared)


def test_the_batch_size_backs_off_when_memory_runs_out(
    pictures: Path, tmp_path: Path
) -> None:
    """Halved until it fits, then kept; the rows are those of a small batch size."""
    source, listener = open_source(str(pictures)), fakes.Silent()
    hungry = Hungry("image")
    extract(
        source, {"x": hungry}, tmp_path / "a", ExtractionConfig(batch_size=16), listener
    )
    assert hungry.batches == [2] * 11 + [1]
    assert listener.warnings == [
        "memory ran out with 16 items at once; going on with 2"
    ]
    fakes.run(source, tmp_path / "b", batch_size=2, y=False)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_memory_for_not_even_one_item_is_the_librarys_error(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other errors, and the last one of memory, are not swallowed."""

    def encode(self: Any, prepared: Any) -> Any:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(fakes.FakeEncoder, "encode", encode)
    with pytest.raises(RuntimeError, match="out of memory"):
        fakes.run(open_source(str(pictures)), tmp_path / "out", y=False)


def test_rows_that_are_not_numbers_are_refused(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros, NaN, and values beyond float16 are reasons, not rows."""
    whole = fakes.FakeEncoder.encode

    def encode(self: Any, prepared: Any) -> Any:
        rows = whole(self, prepared)
        rows[1], rows[2, 0], rows[3, 0] = 0, np.nan, 1e6
        return rows

    monkeypatch.setattr(fakes.FakeEncoder, "encode", encode)
    source = open_source(str(pictures))
    unit = fakes.run(source, tmp_path / "unit", y=False)
    raw = fakes.run(source, tmp_path / "raw", y=False, unit_norm=False)
    assert [r.id for r in unit.sides["x"].refused] == ["p0001.png", "p0002.png"]
    assert [r.id for r in raw.sides["x"].refused] == ["p0002.png", "p0003.png"]
    assert "too large for the type" in raw.sides["x"].refused[0].reason


def test_a_foreign_file_in_the_way_is_kept(pictures: Path, tmp_path: Path) -> None:
    """An x.h5 of another origin is not overwritten."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "x.h5").write_bytes(b"mine")
    with pytest.raises(InputError, match="is in the way"):
        fakes.run(open_source(str(pictures)), out, y=False)
    assert contents(out) == {"x.h5": b"mine"}


def test_limit_and_threads_change_no_row(pictures: Path, tmp_path: Path) -> None:
    """The first entries only; one thread or many."""
    source = open_source(str(pictures))
    fakes.run(source, tmp_path / "a", limit=5, workers=1)
    fakes.run(source, tmp_path / "b", limit=5, workers=8)
    assert open_embeddings(tmp_path / "a" / "y.h5").shape == (10, 5)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.parametrize("name", ["batch_size", "workers", "limit"])
def test_sizes_below_one_are_refused(name: str) -> None:
    """The sentence names the option."""
    with pytest.raises(InputError, match=f"--{name.replace('_', '-')} must be"):
        ExtractionConfig(**{name: 0})


def test_sotalign_files_are_read(tmp_path: Path) -> None:
    """The dataset `embeddings` alone, float16 and gzip, is an embedding file."""
    rows = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float16)
    with h5py.File(tmp_path / "cc3m_concat.h5", "w") as file:
        file.create_dataset(
            "embeddings", data=rows, maxshape=(None, 4), compression="gzip"
        )
    assert np.array_equal(open_embeddings(tmp_path / "cc3m_concat.h5").read(), rows)
    assert extraction.REFUSED == "rejected.csv"
