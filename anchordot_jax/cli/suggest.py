"""`anchordot suggest`: which items to pair next, before any label is known."""

import csv
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from anchordot_jax.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from anchordot_jax.matching.coverage import Cover

SideName = Literal["x", "y"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suggest:
    """Propose items whose partners a person should look up next.

    The items are of one side, or half of each where both files are given; finding the
    partner is the person's work. They are chosen to cover the files, without looking at
    any pair. Against random items k-means gained 1 to 4 points of recall on
    average, with as much spread over seeds (docs/suggested_anchors.md).
    """

    x: str
    """FILE or FILE::dataset of the one side's embeddings."""
    y: str | None = None
    """FILE of the other side; half of the items are then of this side."""
    count: int = 50
    """Items to propose."""
    rule: Literal["k-means", "k-centre", "random"] = "k-means"
    """k-means: typical items, one a cluster. k-centre: far from one another, which was
    level with random anchors on one data set and much worse on another."""
    pairs: Path | None = None
    """CSV of pairs that are known already (columns x,y): not proposed again. Needs
    --y."""
    pair_keys: Literal["auto", "rows", "ids"] = "auto"
    """How the values of the pairs file are read."""
    seed: int = 0
    """Of the random draws."""
    out: Path
    """CSV to write: side, item (id or row number), and how many items it stands for."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Choose, write and print, and return the exit code."""
        from anchordot_jax import data, files
        from anchordot_jax.cli import output

        files.check_output_file(self.out)
        sources = {"x": data.open_embeddings(self.x)}
        if self.y is not None:
            sources["y"] = data.open_embeddings(self.y)
        known = self._known(sources)
        if self.count < len(sources):
            raise InputError(
                f"--count must be at least {len(sources)}, one item a file, got "
                f"{self.count}."
            )
        shares = _shares(self.count, len(sources))
        covers, chance = {}, {}
        for (side, source), count in zip(sources.items(), shares, strict=True):
            covers[side], chance[side] = self._choose(source, count, known.get(side))
        rows = [
            [side, sources[side].row_name(int(row)), int(stands_for)]
            for side, cover in covers.items()
            for row, stands_for in zip(cover.rows, cover.covers, strict=True)
        ]
        with (
            files.replacing(self.out) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as file,
        ):
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["side", "item", "stands_for"])
            writer.writerows(rows)
        cosines = {side: cover.mean_cosine for side, cover in covers.items()}
        if self.json:
            said = {"out": str(self.out), "items": len(rows), "rule": self.rule}
            output.print_json(
                {**said, "mean_cosine": cosines, "mean_cosine_random": chance}
            )
            return 0
        print(f"{len(rows)} items: {self.out}")
        for side, value in cosines.items():
            print(
                f"{side}: an item's mean cosine to the nearest proposed one is "
                f"{value:.3f}, and {chance[side]:.3f} for a random choice."
            )
        return 0

    def _choose(
        self, source: Any, count: int, known: "np.ndarray | None"
    ) -> "tuple[Cover, float]":
        """Return the choice of one side, and what a random one would cover."""
        from anchordot_jax import data
        from anchordot_jax.matching.coverage import choose_cover

        rows = source.read()
        data.check_embeddings(rows, source.where)
        cover = choose_cover(rows, count, rule=self.rule, known=known, seed=self.seed)
        drawn = choose_cover(rows, count, rule="random", known=known, seed=self.seed)
        return cover, drawn.mean_cosine

    def _known(self, sources: dict[str, Any]) -> "dict[str, np.ndarray]":
        """Return the rows of each side that are in a known pair."""
        from anchordot_jax import data

        if self.pairs is None:
            return {}
        if "y" not in sources:
            raise InputError("--pairs needs --y, the file of the other side.")
        pairs = data.read_pairs(
            self.pairs, sources["x"], sources["y"], keys=self.pair_keys
        )
        return {"x": pairs[:, 0], "y": pairs[:, 1]}


def _shares(count: int, sides: int) -> list[int]:
    """Return the items of each side; an odd one goes to x."""
    return [count] if sides == 1 else [count - count // 2, count // 2]
