"""`anchordot index`, and `search` in what it stored, as a stranger types them."""

import json
from pathlib import Path

import pytest

from anchordot_jax import files as sealing
from planted import Cli, tree

SEARCH = ("search", "run", "--queries", "x.npy", "--k", "3", "--json")


@pytest.fixture
def index(fitted_files: Path, cli: Cli, tmp_path: Path) -> Path:
    """Return the index of all y rows, in the fitted folder's run."""
    outcome = cli("index", "run", "--gallery", "y.npy", "--out", tmp_path / "index")
    assert outcome.code == 0, outcome.err
    assert "46 items" in outcome.out
    assert "dual-sinkhorn" in outcome.out
    return tmp_path / "index"


def test_search_by_index_is_search_by_gallery(index: Path, cli: Cli) -> None:
    """By the cosine, and by the bank of the same items at the index's own beta."""
    fresh = json.loads(cli(*SEARCH, "--gallery", "y.npy").out)["results"]
    stored = json.loads(cli(*SEARCH, "--index", index, "--form", "cosine").out)
    assert stored["form"] == "cosine"
    for one, other in zip(fresh, stored["results"], strict=True):
        assert one["matches"] == other["matches"]
        assert one["scores"] == pytest.approx(other["scores"], abs=1e-6)


def test_corrected_scores_have_the_cosines_beside(index: Path, cli: Cli) -> None:
    for form in ("inverted-softmax", "sinkhorn", "dual-inverted-softmax"):
        outcome = cli(*SEARCH, "--index", index, "--form", form)
        assert outcome.code == 0, outcome.err
        for row in json.loads(outcome.out)["results"]:
            assert row["scores"] == sorted(row["scores"], reverse=True)
            assert max(map(abs, row["cosines"])) <= 1 + 1e-5


def test_ids_are_kept(fitted_files: Path, cli: Cli, tmp_path: Path) -> None:
    made = cli(
        *("index", "run", "--gallery", "named.h5::y/text", "--out", tmp_path / "i"),
        *("--bank", "x.npy", "--json"),
    )
    assert made.code == 0, made.err
    assert json.loads(made.out)["items"] == 46
    found = json.loads(cli(*SEARCH, "--index", tmp_path / "i").out)["results"]
    assert all(1000 <= item < 1046 for row in found for item in row["matches"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "Give --gallery or --index"),
        (["--index", "{index}", "--gallery", "y.npy"], "Give --gallery or --index"),
        (["--index", "none"], "The index none does not exist"),
        (["--index", "{index}", "--bank", "model"], "--bank belongs to --gallery"),
        (["--index", "{index}", "--side", "y"], "is for queries of side x"),
    ],
)
def test_a_bad_search_is_one_sentence(
    index: Path, cli: Cli, more: list[str], message: str
) -> None:
    outcome = cli(*SEARCH, *(word.format(index=index) for word in more))
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_another_models_index_is_refused(index: Path, cli: Cli) -> None:
    config = json.loads((index / "config.json").read_text())
    del config[sealing.SEAL]
    other = sealing.sealed({**config, "model": "f" * 16})
    (index / "config.json").write_text(json.dumps(other))
    outcome = cli(*SEARCH, "--index", index)
    assert outcome.code == 2
    assert "was made with another model" in outcome.err


@pytest.mark.parametrize("name", ["config.json", "ids.json", "index.safetensors"])
def test_a_flipped_byte_is_refused(index: Path, cli: Cli, name: str) -> None:
    """Wherever it is, the seal itself included."""
    whole = (index / name).read_bytes()
    seal = whole.find(b"sha256")
    # Tensors whose seal has lost its name are still those that were written.
    named = [seal + 2] if name.endswith(".json") else []
    for place in (len(whole) // 3, *named, seal + 20, len(whole) - 4):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        (index / name).write_bytes(bytes(damaged))
        outcome = cli(*SEARCH, "--index", index)
        assert outcome.code == 2, (name, place)
        assert outcome.err.count("\n") == 1
        assert outcome.out == ""


def test_an_index_replaces_nothing_but_an_index(
    fitted_files: Path, index: Path, cli: Cli
) -> None:
    """Its own earlier form only; a foreign file beside it is reason enough."""
    make = ("index", "run", "--gallery", "y.npy", "--out", index)
    assert cli(*make).code == 0
    (index / "notes.txt").write_text("mine")
    before = tree(index)
    outcome = cli(*make)
    assert outcome.code == 2
    assert "is not an index, or holds other files too" in outcome.err
    assert tree(index) == before


def test_a_faiss_file_within_the_index_is_refused(
    fitted_files: Path, cli: Cli, tmp_path: Path
) -> None:
    """The folder is replaced as a whole, and such a file with it."""
    out = tmp_path / "index"
    outcome = cli(
        *("index", "run", "--gallery", "y.npy", "--out", out),
        *("--faiss", out / "gallery.faiss"),
    )
    assert outcome.code == 2
    assert "is in the index folder" in outcome.err
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--gallery", "x.npy"], "takes rows of 9 numbers"),
        (["--gallery", "none.npy"], "none.npy does not exist"),
        (["--gallery", "y.npy", "--bank", "y.npy"], "takes rows of 12 numbers"),
    ],
)
def test_a_bad_gallery_is_one_sentence(
    fitted_files: Path, cli: Cli, more: list[str], message: str
) -> None:
    before = tree(fitted_files)
    outcome = cli("index", "run", *more, "--out", "index")
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert tree(fitted_files) == before
