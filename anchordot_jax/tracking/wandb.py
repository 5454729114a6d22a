"""A run of Weights & Biases, kept in RUN/wandb.

WANDB_MODE=offline needs neither network nor login; `wandb sync` uploads it later. A
resumed fit continues the same run by its stored id.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchordot_jax import files
from anchordot_jax.errors import InputError, reason
from anchordot_jax.extras import needs

PROJECT = "anchordot"


def _library() -> Any:
    return needs("wandb", extra="wandb", what="--log wandb")


class WeightsAndBiases:
    """Sends figures to one run; each stage has a step of its own."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        library = _library()
        try:
            self._run = library.init(
                project=PROJECT,
                name=folder.resolve().name,
                id=_run_id(folder / "wandb"),
                resume="allow",
                dir=str(folder),
                config=dict(config),
                settings=library.Settings(console="off", silent=True),
            )
        except (library.Error, OSError) as error:
            raise InputError(
                f"Weights & Biases did not start ({reason(error)}); run `wandb login`, "
                f"or set WANDB_MODE=offline and `wandb sync` later."
            ) from error
        for stage in ("coupling", "distillation"):
            self._run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")

    @staticmethod
    def check() -> None:
        """Raise InputError unless the library is there."""
        _library()

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Send a stage's figures at a step."""
        named = {f"{stage}/{name}": value for name, value in values.items()}
        self._run.log({**named, f"{stage}/step": step})

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


def _run_id(folder: Path) -> str:
    """Return the stored id of the run; a new one is stored first."""
    path = folder / "run.json"
    if not path.is_file():
        files.write_json(path, {"id": secrets.token_hex(4)})
    stored = files.read_json(path, f"The folder {folder}").get("id")
    if not isinstance(stored, str) or not stored.isalnum():
        raise InputError(f"{path} holds no run id; delete it to begin a new run.")
    return stored
