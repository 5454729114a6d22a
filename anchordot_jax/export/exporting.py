"""A model folder for programs without JAX, checked against JAX where it is written.

`onnx`: x.onnx and y.onnx. `torch`: model.safetensors, by the names of a PyTorch state
dictionary, and torch_students.py, the module that it belongs to. Both have a card,
README.md.
"""

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import safetensors.numpy

from anchordot_jax import files
from anchordot_jax.errors import InputError
from anchordot_jax.export import onnx_graph
from anchordot_jax.extras import needs
from anchordot_jax.runs import card
from anchordot_jax.students import Params, bind

Format = Literal["onnx", "torch"]

TOLERANCE = 1e-5
"""Largest difference of an embedding's entries from JAX's that is let through."""

CHECKED_ROWS = 64

MODULE = "torch_students.py"

ONNX_CODE = """\
import onnxruntime

x = onnxruntime.InferenceSession("x.onnx")
y = onnxruntime.InferenceSession("y.onnx")
(shared_x,) = x.run(None, {"embeddings": rows_x})  # float32, [n, d]
(shared_y,) = y.run(None, {"embeddings": rows_y})
scores = shared_x @ shared_y.T"""

TORCH_CODE = """\
from torch_students import load  # the file beside this one

students = load("this-folder")
scores = students.x(rows_x) @ students.y(rows_y).T"""

Embed = Callable[[str, np.ndarray], np.ndarray]
"""(side, rows) -> embeddings, by the exported files."""


class Export(NamedTuple):
    """What was written, and how far it is from JAX."""

    folder: Path
    names: tuple[str, ...]
    difference: float | None
    """Largest difference on random rows; None where the library is not installed."""


def export_students(
    folder: Path,
    fmt: Format,
    params: Params,
    *,
    info: Mapping[str, Any],
    metrics: Mapping[str, Any],
) -> Export:
    """Write both students in another format and return how they compare with JAX.

    Args:
        folder: made anew; one that holds anything is refused.
        fmt: `onnx` or `torch`.
        params: the students' parameters.
        info: how the model was made, for the card.
        metrics: results on held-out pairs, for the card.

    Raises:
        InputError: the folder cannot be written to or is not empty, a library is
            missing, or the written students differ from JAX by more than 1e-5.
    """
    if fmt not in get_args(Format):
        raise InputError(f"The format must be onnx or torch, got {fmt!r}.")
    files.check_writable(folder.parent)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not an empty folder; choose another.")
    write, code = (
        (_write_onnx, ONNX_CODE) if fmt == "onnx" else (_write_torch, TORCH_CODE)
    )
    with files.replacing_folder(folder) as temporary:
        embed = write(temporary, params)
        difference = None if embed is None else largest_difference(params, embed)
        if difference is not None and not difference <= TOLERANCE:
            raise InputError(
                f"The {fmt} students differ from JAX's by {difference:.2g}, more than "
                f"{TOLERANCE:g}; nothing was written."
            )
        text = card.model_card(info, metrics, code=code)
        (temporary / "README.md").write_text(text, encoding="utf-8")
        names = tuple(sorted(path.name for path in temporary.iterdir()))
    return Export(folder, names, difference)


def largest_difference(params: Params, embed: Embed) -> float:
    """Return max |exported - JAX| over random rows of both sides, a zero row too."""
    differences = []
    for side in ("x", "y"):
        d = np.shape(params[side]["linear"]["kernel"])[0]
        rows = np.random.default_rng(0).normal(size=(CHECKED_ROWS, d))
        rows[0] = 0
        given = rows.astype(np.float32)
        ours = np.asarray(getattr(bind(params), side)(given))
        differences.append(float(np.abs(embed(side, given) - ours).max()))
    return float(np.max(differences))


def torch_state(params: Params) -> dict[str, np.ndarray]:
    """Return the parameters by the names and in the layout of PyTorch's modules."""
    state = {"log_scale": np.asarray(params["log_scale"], np.float32)}
    for side in ("x", "y"):
        norm, linear = params[side]["norm"], params[side]["linear"]
        weight = np.ascontiguousarray(np.transpose(linear["kernel"]))
        state |= {
            f"{side}.norm.weight": np.asarray(norm["scale"]),
            f"{side}.norm.bias": np.asarray(norm["bias"]),
            f"{side}.linear.weight": weight,
            f"{side}.linear.bias": np.asarray(linear["bias"]),
        }
    return state


def _write_onnx(folder: Path, params: Params) -> Embed:
    onnx = needs("onnx", extra="export", what="The ONNX format")
    runtime = needs("onnxruntime", extra="export", what="Checking the ONNX format")
    scale = float(np.exp(params["log_scale"]))
    sessions = {}
    for side in ("x", "y"):
        path = folder / f"{side}.onnx"
        onnx.save(onnx_graph.student_graph(params[side], logit_scale=scale), path)
        sessions[side] = runtime.InferenceSession(
            path, providers=["CPUExecutionProvider"]
        )

    def embed(side: str, rows: np.ndarray) -> np.ndarray:
        (embedded,) = sessions[side].run(None, {onnx_graph.INPUT: rows})
        return np.asarray(embedded)

    return embed


def _write_torch(folder: Path, params: Params) -> Embed | None:
    metadata = {"format": "pt"}
    safetensors.numpy.save_file(
        torch_state(params), folder / "model.safetensors", metadata=metadata
    )
    source = Path(__file__).with_name(MODULE).read_text(encoding="utf-8")
    (folder / MODULE).write_text(source, encoding="utf-8")
    if importlib.util.find_spec("torch") is None:
        return None
    torch = needs("torch", extra="transformers", what="Checking the torch format")
    students = importlib.import_module(f"{__package__}.torch_students").load(folder)

    def embed(side: str, rows: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(getattr(students, side)(torch.from_numpy(rows)))

    return embed
