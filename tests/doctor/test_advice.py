"""Each finding that costs time or a feature becomes one sentence, and no other does."""

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from anchordot_jax.doctor import advice as module
from anchordot_jax.doctor.advice import EXTRAS, Findings, advice, findings

ENVIRONMENT: dict[str, Any] = {"backend": "cpu", "x64": False}
SOUND = Findings(ENVIRONMENT, 8, False, None, (), ())


def test_a_sound_installation_needs_no_advice() -> None:
    """Nothing to gain, nothing said."""
    assert advice(SOUND) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (SOUND._replace(nvidia=True), r"pip install -U 'jax\[cuda12\]'"),
        (SOUND._replace(cores=1), "Only one core"),
        (SOUND._replace(environment={**ENVIRONMENT, "x64": True}), "JAX_ENABLE_X64"),
        (SOUND._replace(matmul_precision="tensorfloat32"), "is tensorfloat32"),
        (SOUND._replace(slowing=("JAX_DISABLE_JIT",)), "JAX_DISABLE_JIT is set"),
        (SOUND._replace(missing=("data",)), r"\.parquet.*anchordot-jax\[data\]"),
        (SOUND._replace(missing=("faiss", "wandb")), r"faiss \(.*; wandb \("),
    ],
)
def test_each_finding_has_its_sentence(found: Findings, said: str) -> None:
    """One sentence, which says what to do."""
    (line,) = advice(found)
    assert re.search(said, line)


def test_a_gpu_in_use_needs_no_advice() -> None:
    """An NVIDIA driver and JAX on it are how it should be."""
    on_gpu = SOUND._replace(nvidia=True, environment={**ENVIRONMENT, "backend": "gpu"})
    assert advice(on_gpu) == []


def test_the_findings_are_those_of_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Variables are read as JAX does; an extra is missing if any of its modules is."""
    monkeypatch.setenv("JAX_DEBUG_NANS", "1")
    monkeypatch.setenv("JAX_DISABLE_JIT", "0")
    present = importlib.util.find_spec
    monkeypatch.setattr(
        module.importlib.util,
        "find_spec",
        lambda name: None if name == "pyarrow" else present(name),
    )
    monkeypatch.setattr(module.shutil, "which", lambda name: "/usr/bin/" + name)
    found = findings()
    assert found.slowing == ("JAX_DEBUG_NANS",)
    assert "data" in found.missing
    assert found.nvidia
    assert found.cores >= 1


def test_the_extras_are_those_of_the_project() -> None:
    """Every extra that is advised exists."""
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    declared = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    assert EXTRAS.keys() <= declared["optional-dependencies"].keys()
