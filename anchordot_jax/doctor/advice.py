"""What an installation lacks or is set to, and what to do about it."""

import importlib.util
import os
import shutil
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from anchordot_jax.parallel.cores import available_cores
from anchordot_jax.runs.run_folder import environment


class Extra(NamedTuple):
    """An optional part: the modules it is made of, and what it is for."""

    modules: tuple[str, ...]
    use: str


EXTRAS: Mapping[str, Extra] = {
    "data": Extra(("pyarrow",), "reading .parquet files"),
    "images": Extra(("PIL",), "extracting images"),
    "molecules": Extra(("rdkit",), "extracting molecules"),
    "transformers": Extra(("transformers", "torch"), "encoders named hf:MODEL"),
    "timm": Extra(("timm", "torch"), "encoders named timm:MODEL"),
    "sentence-transformers": Extra(
        ("sentence_transformers", "torch"), "encoders named st:MODEL"
    ),
    "open-clip": Extra(("open_clip", "torch"), "encoders named open-clip:MODEL"),
    "faiss": Extra(("faiss",), "index --faiss"),
    "slurm": Extra(("submitit",), "experiments as jobs of Slurm"),
    "tensorboard": Extra(("tensorboardX",), "fit --log tensorboard"),
    "wandb": Extra(("wandb",), "fit --log wandb"),
    "export": Extra(
        ("onnx", "onnxruntime", "huggingface_hub"), "export to ONNX, push, hf:USER/NAME"
    ),
}

SLOWING = ("JAX_DISABLE_JIT", "JAX_DEBUG_NANS", "JAX_LOG_COMPILES")
OFF = ("", "0", "false")


class Findings(NamedTuple):
    """What this installation is."""

    environment: Mapping[str, Any]
    """Versions and devices, as `env.json` has them."""
    cores: int
    """Cores that this process may use."""
    nvidia: bool
    """Whether the machine has an NVIDIA driver."""
    matmul_precision: str | None
    """JAX's default precision of products, where it was set."""
    slowing: tuple[str, ...]
    """Variables that are set and slow JAX down."""
    missing: tuple[str, ...]
    """Extras of which a module is not installed."""


def findings() -> Findings:
    """Return what this installation is."""
    return Findings(
        environment=environment(),
        cores=available_cores(),
        nvidia=shutil.which("nvidia-smi") is not None,
        matmul_precision=jax.config.values["jax_default_matmul_precision"],
        slowing=tuple(
            name for name in SLOWING if os.environ.get(name, "").lower() not in OFF
        ),
        missing=tuple(name for name, extra in EXTRAS.items() if not _installed(extra)),
    )


def advice(found: Findings) -> list[str]:
    """Return what to do, one sentence each; none where nothing is to be gained."""
    lines = []
    backend = found.environment["backend"]
    if found.nvidia and backend == "cpu":
        lines.append(
            "An NVIDIA driver is here but JAX uses the CPU: install JAX's CUDA build, "
            "pip install -U 'jax[cuda12]', and unset JAX_PLATFORMS."
        )
    if backend == "cpu" and found.cores == 1:
        lines.append("Only one core may be used; a fit gains from every further one.")
    if found.environment["x64"]:
        lines.append(
            "JAX_ENABLE_X64 is on, which nothing here needs and which makes products "
            "several times slower on most devices; unset it."
        )
    if found.matmul_precision is not None:
        lines.append(
            f"jax_default_matmul_precision is {found.matmul_precision}: costs are "
            f"computed in full float32 all the same, the students' training is not."
        )
    lines += [f"{name} is set and slows JAX down; unset it." for name in found.slowing]
    if found.missing:
        uses = "; ".join(f"{name} ({EXTRAS[name].use})" for name in found.missing)
        lines.append(
            f"Optional and not installed: {uses}. Where one is needed: "
            f"pip install 'anchordot-jax[{found.missing[0]}]', or by its name."
        )
    return lines


def _installed(extra: Extra) -> bool:
    return all(importlib.util.find_spec(module) for module in extra.modules)
