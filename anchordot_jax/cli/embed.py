"""`anchordot embed`: an embedding file into the shared space."""

import dataclasses
from pathlib import Path
from typing import Literal

import tyro

from anchordot_jax.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embed:
    """Write a file's rows as unit-norm embeddings of the shared space."""

    model: tyro.conf.Positional[Path]
    """Run folder or model folder."""
    out: Path
    """File to write: .npy, .h5 or .safetensors; the last two carry ids along."""
    x: str | None = None
    """FILE of x embeddings (give this or --y)."""
    y: str | None = None
    """FILE of y embeddings (give this or --x)."""
    batch_size: int = 8192
    """Rows read and embedded at once."""
    dtype: Literal["float32", "float16"] = "float32"
    """Type of the numbers written."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Embed block by block and return the exit code."""
        from anchordot_jax import data
        from anchordot_jax.cli import output
        from anchordot_jax.cli.models import load_model

        if (self.x is None) == (self.y is None):
            raise InputError("Give exactly one of --x and --y, the side of the items.")
        if self.batch_size < 1:
            raise InputError(f"--batch-size must be at least 1, got {self.batch_size}.")
        side: Literal["x", "y"] = "x" if self.x is not None else "y"
        model = load_model(self.model)
        source = data.open_embeddings(str(self.x or self.y))
        model.check_rows(side, source)

        blocks = (
            block.astype(self.dtype)
            for block in model.embed_blocks(side, source, batch_size=self.batch_size)
        )
        shape = (source.shape[0], model.dim)
        data.write_embeddings(self.out, blocks, shape, dtype=self.dtype, ids=source.ids)
        if self.json:
            output.print_json({"out": str(self.out), "shape": shape, "side": side})
        else:
            print(f"{self.out}: {shape[0]} x {shape[1]} {self.dtype}, side {side}")
        return 0
