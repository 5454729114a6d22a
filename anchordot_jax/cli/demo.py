"""`anchordot demo`: a fit on the bundled clip art, beside chance and a rival."""

import dataclasses
import time
from typing import TYPE_CHECKING, Any, Literal

from anchordot_jax.errors import InputError

if TYPE_CHECKING:
    from anchordot_jax.config import Config
    from anchordot_jax.fit_inputs import FitData


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demo:
    """Fit bundled pictures to their titles from 300 pairs, and compare."""

    seed: int = 0
    """Fixes the split and every random draw."""
    anchors: int = 300
    """Pairs given to the fit."""
    test: int = 400
    """Pairs scored."""
    recipe: Literal["paper", "refined"] = "refined"
    """As in `anchordot fit`."""
    quiet: bool = False
    """No progress bars."""
    json: bool = False
    """Print one JSON object instead of tables."""

    def run(self) -> int:
        """Fit all methods, print their recalls, and return the exit code."""
        from anchordot_jax.alignment import fit_data
        from anchordot_jax.baselines.trained.contrastive import fit_contrastive
        from anchordot_jax.cli.progress import TerminalListener
        from anchordot_jax.config import Config
        from anchordot_jax.data import load_openclipart, protocol_split
        from anchordot_jax.evaluation import chance_recall
        from anchordot_jax.fit_inputs import FitData

        if self.test < 1:
            raise InputError(f"--test must be at least 1, got {self.test}.")
        config = Config(recipe=self.recipe, seed=self.seed)
        art = load_openclipart()
        x, y = art.image, art.text
        split = protocol_split(
            len(x), seed=self.seed, anchors=self.anchors, test=self.test
        )
        data = FitData(
            anchors_x=x[split.anchors[:, 0]],
            anchors_y=y[split.anchors[:, 1]],
            pool_x=x[split.pool_x],
            pool_y=y[split.pool_y],
        )
        if not self.json:
            print(
                f"Open Clip Art: {len(data.anchors_x)} pairs of a picture (x) and its "
                f"title (y), {len(data.pool_x)} other pictures, {len(data.pool_y)} "
                f"other titles, no item in both; {len(split.test_pairs)} test pairs."
            )
        with TerminalListener(quiet=self.quiet or self.json) as listener:
            result = fit_data(data, config, listener=listener)
        seconds = dict(result.seconds)
        start = time.perf_counter()
        rivals = {
            f"contrastive, {name}": fit_contrastive(
                data.anchors_x, data.anchors_y, config, steps=steps
            )
            for name, steps in _contrastive_lengths(config, data).items()
        }
        seconds["contrastive fits"] = time.perf_counter() - start
        found = result.model.evaluate_both(x, y, split.test_pairs)
        chance = {
            f"{way}/recall@{k}": chance_recall(self.test, 1, k)
            for way in ("x2y", "y2x")
            for k in (1, 5, 10)
        }
        rows = {
            "chance": chance,
            **{
                name: rival.evaluate(x, y, split.test_pairs)
                for name, rival in rivals.items()
            },
            "AnchorDOT": {name: found[name] for name in chance},
            "AnchorDOT, hubs corrected": {
                name: found[f"bank/{name}"] for name in chance
            },
        }
        self._print(rows, seconds, result)
        return 0

    def _print(
        self, rows: dict[str, dict[str, float]], seconds: dict[str, float], result: Any
    ) -> None:
        from anchordot_jax.cli import output
        from anchordot_jax.recipes.refined import chosen_settings

        chosen = chosen_settings(result.selection)
        if self.json:
            output.print_json(
                {
                    "methods": rows,
                    "seconds": seconds,
                    **chosen,
                }
            )
            return
        output.print_recalls(f"{self.test} held-out pairs", rows)
        print(f"{output.settings_line(chosen)}. {result.selection.reason}")
        print(
            "Seconds: "
            + ", ".join(f"{stage} {value:.1f}" for stage, value in seconds.items())
            + "."
        )


def _contrastive_lengths(config: "Config", data: "FitData") -> dict[str, int]:
    """Return the steps of two contrastive fits on the same pairs.

    One has as many epochs as the paper's recipe, each a single chunk of anchors; the
    other has as many gradient steps.
    """
    from anchordot_jax.distillation import plan_chunks

    settings = config.distillation
    sizes = len(data.pool_x), len(data.pool_y), len(data.anchors_x)
    steps = settings.epochs * plan_chunks(*sizes, settings.chunk_size).steps
    return {f"{count} steps": count for count in (settings.epochs, steps)}
