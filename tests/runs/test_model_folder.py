"""The model folder as files: written whole, read with its faults named."""

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from anchordot_jax import files
from anchordot_jax.errors import InputError
from anchordot_jax.runs.model_folder import FILES, read_model, write_model
from anchordot_jax.runs.tensors import tensor_digest
from planted import tree

TENSORS: dict[str, np.ndarray] = {
    "x.kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scale": np.array(1.5, np.float32),
}


def write(folder: Path, tensors: dict[str, np.ndarray] = TENSORS) -> None:
    """Write a model folder of some tensors."""
    write_model(folder, tensors, {"dim": 3}, {"results": {}}, "# card\n")


def test_contents_survive_a_round_trip(tmp_path: Path) -> None:
    """Tensors, facts and results come back; the schema is added."""
    write(tmp_path / "m")
    contents = read_model(tmp_path / "m")
    assert contents.config == {"schema": 1, "dim": 3}
    assert contents.metrics == {"schema": 1, "results": {}}
    assert contents.tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        np.testing.assert_array_equal(contents.tensors[name], tensor)
        assert contents.tensors[name].shape == tensor.shape
    assert set(tree(tmp_path / "m")) == FILES
    card = (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
    assert card == "# card\n"


def test_transposed_tensors_keep_their_values(tmp_path: Path) -> None:
    """A view that is not contiguous is stored by value, not by memory order."""
    write(tmp_path / "m", {"w": TENSORS["x.kernel"].T})
    stored = read_model(tmp_path / "m").tensors["w"]
    np.testing.assert_array_equal(stored, TENSORS["x.kernel"].T)


def test_equal_models_have_equal_bytes(tmp_path: Path) -> None:
    """The order in which tensors are given does not matter."""
    write(tmp_path / "a")
    write(tmp_path / "b", dict(reversed(TENSORS.items())))
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    with safe_open(tmp_path / "a" / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"sha256": tensor_digest(TENSORS)}


def test_values_that_json_lacks_leave_no_folder(tmp_path: Path) -> None:
    """A fact that cannot be written leaves nothing behind."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_model(tmp_path / "m", TENSORS, {"dim": float("inf")}, {}, "")
    assert tree(tmp_path) == {}


def test_a_file_is_no_model_folder(tmp_path: Path) -> None:
    """A file where the folder should be is said not to be one."""
    (tmp_path / "m").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match=r"^The model folder .*m does not exist\.$"):
        read_model(tmp_path / "m")


def test_a_newer_model_is_not_read(tmp_path: Path) -> None:
    """A schema above ours is refused with the way out."""
    write(tmp_path / "m")
    files.write_json(tmp_path / "m" / "config.json", {"schema": 9})
    with pytest.raises(InputError, match="has schema 9, and this version reads up to "):
        read_model(tmp_path / "m")
