"""`anchordot export`: the two encoders for programs without JAX."""

import dataclasses
from pathlib import Path
from typing import Literal

import tyro


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export:
    """Write both encoders as ONNX files or as a plain PyTorch module.

    What is written is run on random rows and compared with JAX; a difference of more
    than 1e-5 is refused.
    """

    model: tyro.conf.Positional[Path]
    """Run folder, model folder or hf:USER/NAME."""
    format: Literal["onnx", "torch"]
    """onnx: x.onnx and y.onnx. torch: model.safetensors and torch_students.py."""
    out: Path
    """Folder to write; a new or an empty one."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Export and return the exit code."""
        from anchordot_jax.cli import output
        from anchordot_jax.cli.models import load_model

        done = load_model(self.model).export(self.out, self.format)
        if self.json:
            values = {"out": str(done.folder), "files": done.names}
            output.print_json({**values, "largest_difference": done.difference})
            return 0
        print(f"{done.folder}: {', '.join(done.names)}")
        if done.difference is None:
            print("Not compared with JAX: torch is not installed here.")
        else:
            print(f"Largest difference from JAX on random rows: {done.difference:.1e}.")
        return 0
