"""Does the pair residual of held-out anchors predict test recall?

Command (about 5 minutes on 2 CPU cores; nothing but the bundled clip art is needed):

    python experiments/uot_gap_students.py

Clip art and titles: 100 held-out anchors and 400 test pairs are set aside, and models
are fitted on N of the other anchors with the two pools: AnchorDOT over N, gamma and eta
(20 epochs instead of 200), closed forms over N. Every model is diagnosed on the
held-out anchors alone and scored on the test pairs. Prints each model, and Spearman of
each held-out figure with the mean of the six test recalls: over all models, over
AnchorDOT's, and over AnchorDOT's at each N.
"""

import dataclasses
import itertools
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from anchordot_jax import AlignedModel, Config, DistillationConfig, load_openclipart
from anchordot_jax.alignment import fit_data
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.baselines.registry import METHODS
from anchordot_jax.data import protocol_split
from anchordot_jax.diagnostics.diagnosis import RECALLS, diagnose
from anchordot_jax.diagnostics.sensitivity import spearman
from anchordot_jax.fit_inputs import FitData

HELDOUT, TEST = 100, 400
CLOSED = ("procrustes", "ridge-x2y", "ridge-y2x", "cca", "ridge-cca", "csa-ridge")
FIGURES = (
    "pair residual",
    "pair cost",
    "mean gap",
    "strain",
    "total",
    "held-out recalls",
)


@dataclasses.dataclass(frozen=True)
class Args:
    """What to run."""

    out: Path = Path("runs/uot_gap_students.json")
    """File of the figures; models in it are not fitted again."""
    anchors: tuple[int, ...] = (50, 300)
    gammas: tuple[float, ...] = (0.25, 0.75, 1.25)
    etas: tuple[float, ...] = (0.01, 0.05)
    epochs: int = 20
    seed: int = 0


def main(args: Args) -> None:
    """Fit what is missing, then print the tables."""
    art = load_openclipart()
    x, y = art.image, art.text
    most = max(args.anchors)
    split = protocol_split(len(x), seed=args.seed, anchors=most + HELDOUT, test=TEST)
    held, given = split.anchors[:HELDOUT], split.anchors[HELDOUT:]
    pools = Pools(x[split.pool_x], y[split.pool_y])
    cells: dict[str, Any] = (
        json.loads(args.out.read_text()) if args.out.exists() else {}
    )
    jobs: list[tuple[str, int, tuple[float, float] | None]] = [
        ("anchordot", n, setting)
        for n, setting in itertools.product(
            args.anchors, itertools.product(args.gammas, args.etas)
        )
    ]
    jobs += [(name, n, None) for name in CLOSED for n in args.anchors]
    for method, n, setting in jobs:
        name = f"{method}, N = {n}"
        if setting is not None:
            name += f", gamma {setting[0]:g}, eta {setting[1]:g}"
        if name in cells:
            continue
        start = time.perf_counter()
        anchors = Anchors(x[given[:n, 0]], y[given[:n, 1]])
        model = fit(args, method, anchors, pools, setting)
        cells[name] = measure(model, x, y, held, split.test_pairs)
        cells[name] |= {"method": method, "N": n}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(cells, indent=1), encoding="utf-8")
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
    print_tables(cells)


def fit(
    args: Args,
    method: str,
    anchors: Anchors,
    pools: Pools,
    setting: tuple[float, float] | None,
) -> AlignedModel:
    """Return one fitted model."""
    if setting is not None:
        config = Config(
            recipe="paper",
            gamma=setting[0],
            eta=setting[1],
            distillation=DistillationConfig(epochs=args.epochs, warmup_steps=10),
        )
        return fit_data(FitData(*anchors, *pools), config).model
    known = METHODS[method]
    fitted = known.fit(
        anchors, pools, settings=known.settings, key=jax.random.key(args.seed)
    )
    if not isinstance(fitted, AlignedModel):
        raise TypeError(f"{method} embeds no rows")
    return fitted


def measure(
    model: AlignedModel,
    x: np.ndarray,
    y: np.ndarray,
    held: np.ndarray,
    test: np.ndarray,
) -> dict[str, float]:
    """Return the held-out figures and the test recall."""
    own = np.repeat(np.arange(len(held))[:, None], 2, axis=1)
    found = diagnose(
        model.embed_x(x[held[:, 0]]), model.embed_y(y[held[:, 1]]), own, probe=False
    )
    if found.pairs is None:
        raise ValueError("the diagnosis has no pairs")
    metrics = model.evaluate(x, y, test)
    return {
        "pair residual": found.pairs.pair_residual,
        "pair cost": found.pairs.pair_cost,
        "mean gap": found.mean_gap,
        "strain": found.pairs.strain,
        "total": found.terms.total,
        "held-out recalls": float(np.mean(list(found.pairs.recalls.values()))),
        "test recalls": float(np.mean([metrics[name] for name in RECALLS])),
    }


def print_tables(cells: dict[str, Any]) -> None:
    """Print the models, then the correlations."""
    heads = [*FIGURES, "test recalls"]
    print(
        "\n| model | " + " | ".join(heads) + " |\n" + "| --- " * (len(heads) + 1) + "|"
    )
    for name, cell in cells.items():
        print(f"| {name} | " + " | ".join(f"{cell[h]:.3f}" for h in heads) + " |")
    students = [cell for cell in cells.values() if cell["method"] == "anchordot"]
    groups = {"all models": list(cells.values()), "AnchorDOT": students}
    for n in sorted({cell["N"] for cell in students}):
        groups[f"AnchorDOT, N = {n}"] = [c for c in students if c["N"] == n]
        groups[f"all models, N = {n}"] = [c for c in cells.values() if c["N"] == n]
    print("\n| Spearman with test recalls | models | " + " | ".join(FIGURES) + " |")
    print("| --- " * (len(FIGURES) + 2) + "|")
    for name, group in groups.items():
        recalls = [cell["test recalls"] for cell in group]
        values = [spearman([cell[h] for cell in group], recalls) for h in FIGURES]
        print(
            f"| {name} | {len(group)} | "
            + " | ".join(f"{v:+.2f}" for v in values)
            + " |"
        )


if __name__ == "__main__":
    main(tyro.cli(Args))
