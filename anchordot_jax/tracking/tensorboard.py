"""Event files for TensorBoard, in RUN/tensorboard/STAGE."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchordot_jax.dotted import flatten
from anchordot_jax.extras import needs


def _library() -> Any:
    return needs("tensorboardX", extra="tensorboard", what="--log tensorboard")


class TensorBoard:
    """Writes one curve a figure; a resumed fit replaces what it repeats."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._folder = folder / "tensorboard"
        self._config = config
        self._writers: dict[str, Any] = {}

    @staticmethod
    def check() -> None:
        """Raise InputError unless the library is there."""
        _library()

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Write a stage's figures at a step, to the disk at once."""
        writer = self._writers.get(stage)
        if writer is None:
            # TensorBoard hides what an interrupted run wrote from this step on.
            writer = _library().SummaryWriter(
                str(self._folder / stage), purge_step=step
            )
            settings = flatten(self._config)
            lines = [f"    {name}: {value}" for name, value in settings.items()]
            writer.add_text("settings", "\n".join(lines), step)
            self._writers[stage] = writer
        for name, value in values.items():
            writer.add_scalar(f"{stage}/{name}", value, step)
        writer.flush()

    def close(self) -> None:
        """Close the event files."""
        for writer in self._writers.values():
            writer.close()
