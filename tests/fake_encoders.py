"""An encoder without a library, a silent listener, and a folder of small pictures.

Run as a program, it extracts with that encoder and kills itself at a given batch.
"""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anchordot_jax.encoders.base import Kind, text_of
from anchordot_jax.encoders.extraction import ExtractionConfig, Result, extract
from anchordot_jax.encoders.images import decode
from anchordot_jax.encoders.sources.base import Source
from anchordot_jax.encoders.sources.opening import open_source

DIM = 5


class FakeEncoder:
    """Rows that depend on the item alone: mean colours, or counts of letters."""

    dim = DIM

    def __init__(self, kind: Kind, *, version: str = "1", die_at: int = -1) -> None:
        self.kind: Kind = kind
        self.facts: Mapping[str, str] = {"encoder": f"fake-{kind}", "revision": version}
        self.batches: list[int] = []
        self._die_at = die_at

    def prepare(self, value: Any) -> Any:
        return text_of(value) if self.kind != "image" else np.asarray(decode(value))

    def encode(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        if len(self.batches) == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.batches.append(len(prepared))
        if self.kind == "image":
            rows = [[*p.mean((0, 1)), p.std() + 1, p.shape[0]] for p in prepared]
        else:
            rows = [[1 + text.count(letter) for letter in "aeiou"] for text in prepared]
        return np.array(rows, np.float32)


class Silent:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int, int | None]] = []
        self.done: list[tuple[str, int, int, int]] = []
        self.warnings: list[str] = []

    def begin(self, side: str, done: int, total: int | None) -> None:
        self.begun.append((side, done, total))

    def advance(self, side: str, done: int, rows: int, refused: int) -> None:
        self.done.append((side, done, rows, refused))

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def write_pictures(folder: Path, count: int, captions: int = 2) -> None:
    """Write small pictures `pNNNN.png` of random colours, with captions beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    draws = np.random.default_rng(7)
    for i in range(count):
        pixels = draws.integers(0, 256, (3, 4, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"p{i:04d}.png")
        lines = [
            f"picture {i} of {'aeiou'[k]} {'ou' * (i % 7)}" for k in range(captions)
        ]
        (folder / f"p{i:04d}.txt").write_text("\n".join(lines))


def run(
    source: Source, out: Path, *, die_at: int = -1, y: bool = True, **settings: Any
) -> Result:
    """Extract with the fakes; the last side kills itself at the batch `die_at`."""
    last = FakeEncoder("text" if y else "image", die_at=die_at)
    encoders: dict[str, Any] = {"x": FakeEncoder("image")} if y else {}
    encoders["y" if y else "x"] = last
    return extract(source, encoders, out, ExtractionConfig(**settings), Silent())


if __name__ == "__main__":
    pictures, folder, batch, batch_size, both = sys.argv[1:]
    run(
        open_source(pictures),
        Path(folder),
        die_at=int(batch),
        y=both == "both",
        batch_size=int(batch_size),
    )
