"""The model that a verb is given."""

from pathlib import Path
from typing import TYPE_CHECKING

from anchordot_jax.errors import InputError

if TYPE_CHECKING:
    from anchordot_jax.model import AlignedModel


def load_model(folder: Path) -> "AlignedModel":
    """Return the model of a run folder or model folder.

    Raises:
        InputError: no model there, or one that scores by a matching rule: its
            embeddings alone are another method.
    """
    from anchordot_jax.model import AlignedModel

    model = AlignedModel.load(folder)
    if "rule" in model.info:
        raise InputError(
            f"{folder} scores by the rule {model.info['rule']!r}, which looks at all "
            f"items at once; use baselines.scorers.load_scorer in Python, or a model "
            f"without a rule."
        )
    return model
