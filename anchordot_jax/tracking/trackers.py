"""Where a fit's figures go, by name: `tensorboard`, `wandb`.

Both write below the run folder. Figures are grouped by stage, each with a step of its
own: Sinkhorn iterations for `coupling`, epochs for `distillation`, none for `test`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from anchordot_jax.errors import InputError
from anchordot_jax.tracking.tensorboard import TensorBoard
from anchordot_jax.tracking.wandb import WeightsAndBiases


class Tracker(Protocol):
    """Takes a fit's figures."""

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Take a stage's figures at a step."""

    def close(self) -> None:
        """Write what is left."""


TRACKERS: Mapping[str, Callable[[Path, Mapping[str, Any]], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
}


def tracker_names(words: Sequence[str]) -> tuple[str, ...]:
    """Return the trackers that some words name, commas between them or not.

    Raises:
        InputError: an unknown name, or a library that is not installed.
    """
    names = [name.strip() for word in words for name in word.split(",") if name.strip()]
    for name in names:
        if name not in TRACKERS:
            raise InputError(
                f"--log knows {' and '.join(TRACKERS)}, got {name!r}; metrics.jsonl is "
                f"always written."
            )
        TRACKERS[name].check()  # type: ignore[attr-defined]
    return tuple(dict.fromkeys(names))


def open_trackers(
    names: Sequence[str], folder: Path, config: Mapping[str, Any]
) -> list[Tracker]:
    """Return opened trackers that write below a run folder.

    Args:
        names: see `tracker_names`.
        folder: the run folder.
        config: the fit's settings, shown beside its figures.

    Raises:
        InputError: a tracker that does not start.
    """
    return [TRACKERS[name](folder, config) for name in names]
