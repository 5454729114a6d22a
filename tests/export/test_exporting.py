"""Exported students: run by onnxruntime and torch, they are JAX's to 1e-5."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from anchordot_jax import AlignedModel
from anchordot_jax.errors import InputError
from anchordot_jax.export import onnx_graph
from anchordot_jax.maps.linear import linear_side
from anchordot_jax.students import init_params


def trained(dim_x: int = 384, dim_y: int = 70, dim: int = 96) -> AlignedModel:
    """Return a model of realistic width whose norms and biases are not trivial."""
    params = init_params(dim_x, dim_y, dim, key=jax.random.key(3))
    draws = np.random.default_rng(3)
    moved = jax.tree.map(
        lambda leaf: np.asarray(leaf) + draws.normal(0, 0.1, leaf.shape), params
    )
    params = jax.tree.map(lambda leaf: leaf.astype(np.float32), moved)
    return AlignedModel(params=params, info={"method": "anchordot", "dim": dim})


def rows_of(dim: int, n: int) -> np.ndarray:
    """Return rows of very different lengths."""
    draws = np.random.default_rng(n)
    return (draws.normal(size=(n, dim)) * 10.0 ** draws.uniform(-6, 6, (n, 1))).astype(
        np.float32
    )


def by_hand(side: dict[str, Any], rows: np.ndarray) -> np.ndarray:
    """Return the student's formula in float64."""
    x = rows.astype(np.float64)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    x = x * side["norm"]["scale"] + side["norm"]["bias"]
    x = x @ np.asarray(side["linear"]["kernel"], np.float64) + side["linear"]["bias"]
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("n", [1, 33])
def test_onnx_students_are_those_of_jax(tmp_path: Path, n: int) -> None:
    """Any number of rows of any length, both sides, and the formula by hand."""
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    model = trained()
    done = model.export(tmp_path / "out", "onnx")
    assert done.names == ("README.md", "x.onnx", "y.onnx")
    assert done.difference is not None
    assert done.difference <= 1e-5
    for side, embed in (("x", model.embed_x), ("y", model.embed_y)):
        session = runtime.InferenceSession(tmp_path / "out" / f"{side}.onnx")
        rows = rows_of(getattr(model, f"dim_{side}"), n)
        (found,) = session.run(None, {"embeddings": rows})
        assert found.dtype == np.float32
        assert np.abs(found - embed(rows)).max() <= 1e-5
        assert np.abs(found - by_hand(model.params[side], rows)).max() <= 1e-5
        properties = session.get_modelmeta().custom_metadata_map
        assert float(properties["logit_scale"]) == pytest.approx(model.logit_scale)


def test_torch_students_are_those_of_jax_without_this_package(tmp_path: Path) -> None:
    """The folder's own module loads them with neither JAX nor this package."""
    pytest.importorskip("torch")
    model = trained()
    done = model.export(tmp_path / "out", "torch")
    assert done.names == ("README.md", "model.safetensors", "torch_students.py")
    assert done.difference is not None
    assert done.difference <= 1e-5
    x, y = rows_of(384, 20), rows_of(70, 20)
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    code = (
        "import sys, numpy, torch; from torch_students import load\n"
        "rows, students = numpy.load('../rows.npz'), load('.')\n"
        "with torch.no_grad():\n"
        "    found = {s: getattr(students, s)(torch.from_numpy(rows[s])).numpy()\n"
        "             for s in 'xy'}\n"
        "numpy.savez('../found.npz', scale=students.log_scale.exp().item(), **found)\n"
        "print({'jax', 'anchordot_jax'} & {*sys.modules})"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "out",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout == "set()\n", ran.stderr
    found = np.load(tmp_path / "found.npz")
    assert np.abs(found["x"] - model.embed_x(x)).max() <= 1e-5
    assert np.abs(found["y"] - model.embed_y(y)).max() <= 1e-5
    assert found["scale"] == pytest.approx(model.logit_scale, rel=1e-6)


def test_a_graph_that_differs_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flax's own epsilon in the graph is found by the comparison."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(onnx_graph, "LAYER_NORM_EPSILON", 1e-3)
    with pytest.raises(InputError, match=r"differ from JAX's by .*nothing was written"):
        trained().export(tmp_path / "out", "onnx")
    assert list(tmp_path.iterdir()) == []


def test_torch_files_are_written_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing needs no torch; the comparison is then left out, and that is said."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = trained(12, 9, 8).export(tmp_path / "out", "torch")
    assert done.difference is None
    assert "model.safetensors" in done.names


def test_only_students_are_exported(tmp_path: Path) -> None:
    """Another kind of map is refused by its name, and nothing is written."""
    side = linear_side(np.eye(4))
    model = AlignedModel(
        params={"x": side, "y": side}, info={"method": "cca", "map": {"kind": "linear"}}
    )
    with pytest.raises(InputError, match=r"holds linear maps \(method cca\)"):
        model.export(tmp_path / "out", "onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without onnx the sentence says which extra brings it."""
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"onnx.*pip install 'anchordot-jax\[export\]"):
        trained(12, 9, 8).export(tmp_path / "deep" / "out", "onnx")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    """From Python, where no parser checks it."""
    with pytest.raises(InputError, match="must be onnx or torch, got 'tf'"):
        trained(12, 9, 8).export(tmp_path, "tf")  # type: ignore[arg-type]
