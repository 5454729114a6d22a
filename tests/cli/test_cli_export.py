"""`anchordot export` and `push`: the hub is replaced by its library's local cache."""

import importlib
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from anchordot_jax import AlignedModel
from anchordot_jax.errors import InputError
from anchordot_jax.export import hub
from planted import Cli, leaves, same_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the hub's library, offline, whose commits land in its own local cache."""
    module = pytest.importorskip("huggingface_hub")
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))

    def create_commit(repo_id: str, operations: Any, **options: Any) -> Any:
        cached = tmp_path / "cache" / f"models--{repo_id.replace('/', '--')}"
        snapshot = cached / "snapshots" / COMMIT
        for operation in operations:
            path = snapshot / operation.path_in_repo
            path.parent.mkdir(parents=True, exist_ok=True)
            with operation.as_file() as stream:
                path.write_bytes(stream.read())
        (cached / "refs").mkdir()
        (cached / "refs" / "main").write_text(COMMIT, encoding="utf-8")
        return mock.Mock(commit_url=f"https://hub/{repo_id}/commit/{COMMIT}")

    # The specification makes a call with a wrong argument fail.
    api = mock.create_autospec(module.HfApi, instance=True)
    api.create_commit.side_effect = create_commit
    monkeypatch.setattr(module, "HfApi", lambda: api)
    return api


def test_a_pushed_model_loads_from_the_hub(
    library: Any, cli: Cli, fitted_files: Path, tmp_path: Path
) -> None:
    """Bit by bit, with its bank and results, offline, by name and by revision."""
    done = cli("push", "run", "someone/aligned", "--private")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("hf:someone/aligned: https://hub/")
    library.create_repo.assert_called_once_with(
        "someone/aligned", private=True, exist_ok=True
    )
    here = AlignedModel.load("run")
    for address in ("hf:someone/aligned", f"hf:someone/aligned@{COMMIT}"):
        there = AlignedModel.load(address)
        assert same_model(here, there)
        assert leaves(here)
        assert there.metrics == here.metrics
        assert np.array_equal(there.bank.x, here.bank.x)  # type: ignore[union-attr]
    snapshot = hub.fetch("hf:someone/aligned")
    card = (snapshot / "README.md").read_text(encoding="utf-8")
    assert 'AlignedModel.load("hf:someone/aligned")' in card
    embedded = cli(
        *("embed", "hf:someone/aligned", "--x", "x.npy", "--out", tmp_path / "e.npy")
    )
    assert embedded.code == 0
    assert np.array_equal(np.load(tmp_path / "e.npy"), here.embed_x(np.load("x.npy")))
    again = cli("push", "hf:someone/aligned", "other/copy")
    assert (again.code, again.err) == (0, "")
    assert same_model(AlignedModel.load("hf:other/copy"), here)


def test_a_repository_that_is_not_there_is_one_sentence(library: Any, cli: Cli) -> None:
    """Neither a wrong name nor a missing network shows a traceback."""
    for address in ("hf:someone/else", "hf:not a name", "hf:"):
        done = cli("embed", address, "--x", "x.npy", "--out", "e.npy")
        assert done.code == 2
        assert done.err.startswith(f"anchordot: error: {address} could not be fetched")
        assert done.err.count("\n") == 1


def test_a_refused_push_is_one_sentence(
    library: Any, cli: Cli, fitted_files: Path
) -> None:
    """What the hub says is passed on."""
    library.create_commit.side_effect = OSError("403 Forbidden")
    done = cli("push", "run", "someone/aligned")
    assert done.code == 2
    assert "could not be pushed to someone/aligned (OSError: 403" in done.err


def test_without_the_library_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loading by an address needs an optional library."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"pip install 'anchordot-jax\[export\]'"):
        AlignedModel.load("hf:someone/aligned")


def test_the_command_exports_a_run(
    cli: Cli, fitted_files: Path, tmp_path: Path
) -> None:
    """A run folder's model, with its results on the card; JSON for machines."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    done = cli("export", "run", "--format", "onnx", "--out", tmp_path / "out", "--json")
    assert (done.code, done.err) == (0, "")
    assert '"largest_difference": ' in done.out
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "onnxruntime.InferenceSession" in card
    assert "| x2y/recall@1 |" in card
    again = cli("export", "run", "--format", "onnx", "--out", tmp_path / "out")
    assert again.code == 2
    assert "is not an empty folder" in again.err
