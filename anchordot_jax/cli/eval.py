"""`anchordot eval`: score a model on pairs."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import tyro

from anchordot_jax.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eval:
    """Score a model's retrieval on pairs, both ways.

    By the cosine, and beside it with hubs corrected, where the model keeps query banks
    or they are given.
    """

    model: tyro.conf.Positional[Path]
    """Run folder or model folder."""
    x: str
    """FILE of x embeddings."""
    y: str
    """FILE of y embeddings."""
    pairs: Path | None = None
    """CSV of pairs (columns x,y). Without it: the run's test pairs, else row i of x
    belongs to row i of y."""
    pair_keys: Literal["auto", "rows", "ids"] = "auto"
    """How the values of the pairs file are read."""
    bank_x: str | None = None
    """FILE of unpaired x items: corrects hubs in x -> y by an inverted softmax, instead
    of the bank kept with the model."""
    bank_y: str | None = None
    """FILE of unpaired y items: the same for y -> x."""
    json: bool = False
    """Print one JSON object instead of a table."""

    def run(self) -> int:
        """Print the metrics and return the exit code."""
        from anchordot_jax import data
        from anchordot_jax.cli import output
        from anchordot_jax.cli.models import load_model

        model = load_model(self.model)
        x, y = data.open_embeddings(self.x), data.open_embeddings(self.y)
        pairs, where = self._pairs(x, y)
        metrics = model.evaluate_both(
            x,
            y,
            pairs,
            bank_x=data.open_embeddings(self.bank_x) if self.bank_x else None,
            bank_y=data.open_embeddings(self.bank_y) if self.bank_y else None,
        )
        if self.json:
            output.print_json(metrics)
        else:
            output.print_metrics(f"{len(pairs)} pairs ({where})", metrics)
        return 0

    def _pairs(self, x: Any, y: Any) -> tuple[Any, str]:
        """Return the pairs to score and where they come from."""
        import numpy as np

        from anchordot_jax import data

        if self.pairs is not None:
            pairs = data.read_pairs(self.pairs, x, y, keys=self.pair_keys)
            if len(pairs) == 0:
                raise InputError(f"{self.pairs} lists no pairs to score.")
            return pairs, str(self.pairs)
        splits = self.model / "splits.json"
        if splits.is_file():
            pairs = data.read_split(splits).test_pairs
            if len(pairs):
                return pairs, "the run's test pairs"
        if x.shape[0] != y.shape[0]:
            raise InputError(
                f"{self.x} has {x.shape[0]} rows and {self.y} has {y.shape[0]}: say "
                f"which belong together with --pairs."
            )
        return np.repeat(np.arange(x.shape[0])[:, None], 2, axis=1), "row by row"
