"""UOT-Gap on flickr8k: caption degradation, corrections, eps x rho, spheres.

Commands (the first makes runs/uot_gap/captions.h5; about 10 minutes on 2 CPU cores):

    python experiments/uot_gap_captions.py --data-folder DIR
    python experiments/uot_gap_tables.py --data-folder DIR

Protocol: flickr8k's split of seed 0 with 500 anchors and 2,000 test pairs. Photographs
and captions share a space by one of three maps fitted on the 500 anchors (AnchorDOT
with gamma 0.75 and eta 0.02 and the two pools of the rest; Procrustes; ridge regression
of captions on photographs). Five subsets of 1,000 test pairs are drawn at random; their
captions are made worse in five ways. Recall@1 is the mean of both directions. Writes
the tables to --out/tables.md and prints them.
"""

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from anchordot_jax import (
    AlignedModel,
    AnchorDOT,
    Config,
    open_embeddings,
    protocol_split,
)
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.baselines.registry import METHODS
from anchordot_jax.diagnostics import captions, corrections, pairs, sensitivity
from anchordot_jax.diagnostics.diagnosis import Diagnosis, diagnose
from anchordot_jax.diagnostics.spheres import sweep_spheres

METRICS: dict[str, Callable[[Diagnosis], float]] = {
    "mean gap": lambda d: d.mean_gap,
    "pair cost": lambda d: known(d).pair_cost,
    "pair residual": lambda d: known(d).pair_residual,
    "strain": lambda d: known(d).strain,
    "logit entropy": lambda d: d.logit_entropy,
    "total": lambda d: d.terms.total,
}
ALPHAS = (0.2, 0.4, 0.6)


@dataclasses.dataclass(frozen=True)
class Args:
    """What to run."""

    data_folder: Path
    """Folder of flickr8k.h5."""
    captions: Path = Path("runs/uot_gap/captions.h5")
    """File of uot_gap_captions.py."""
    out: Path = Path("runs/uot_gap")
    """Folder of the AnchorDOT model, the figures and the tables."""
    subsets: int = 5
    """Random subsets."""
    size: int = 1000
    """Pairs of a subset."""
    test: int = 2000
    """Test rows of the split."""


def known(found: Diagnosis) -> Any:
    """Return the pairs' part of a diagnosis that has pairs."""
    if found.pairs is None:
        raise ValueError("the diagnosis has no pairs")
    return found.pairs


def fit_maps(args: Args) -> dict[str, AlignedModel]:
    """Return the maps by name; AnchorDOT's is kept in --out."""
    x = open_embeddings(f"{args.data_folder / 'flickr8k.h5'}::image").read()
    y = open_embeddings(f"{args.data_folder / 'flickr8k.h5'}::text").read()
    split = protocol_split(len(x), seed=0, anchors=500, test=args.test)
    anchors = Anchors(x[split.anchors[:, 0]], y[split.anchors[:, 1]])
    pools = Pools(x[split.pool_x], y[split.pool_y])
    folder = args.out / "anchordot"
    if not folder.exists():
        config = Config(recipe="paper", gamma=0.75, eta=0.02)
        fitted = AnchorDOT(config).fit(
            x, y, split.anchors, pool_x=pools.x, pool_y=pools.y
        )
        fitted.save(folder)
    models = {"AnchorDOT": AlignedModel.load(folder)}
    for name, title in (("procrustes", "Procrustes"), ("ridge-x2y", "ridge")):
        method = METHODS[name]
        models[title] = method.fit(
            anchors, pools, settings=method.settings, key=jax.random.key(0)
        )
    return models


def load_conditions(args: Args) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the test rows' photographs, and their captions by condition."""
    rows = open_embeddings(f"{args.data_folder / 'flickr8k.h5'}::image")
    split = protocol_split(rows.shape[0], seed=0, anchors=500, test=args.test)
    made = {
        name: open_embeddings(f"{args.captions}::{name}").read()
        for name in captions.CONDITIONS
        if name != "random"
    }
    return rows.read(split.test_pairs[:, 0]), made


def subset(args: Args, seed: int) -> np.ndarray:
    """Return the positions among the test rows of one subset."""
    return np.random.default_rng(seed).choice(args.test, args.size, replace=False)


def condition_rows(
    made: dict[str, np.ndarray], chosen: np.ndarray, condition: str
) -> np.ndarray:
    """Return a subset's captions in one condition."""
    if condition == "random":
        return np.roll(made["full"][chosen], -1, axis=0)
    return made[condition][chosen]


def recall(found: Diagnosis) -> float:
    """Return recall@1, the mean of both directions."""
    recalls = known(found).recalls
    return (recalls["x2y/recall@1"] + recalls["y2x/recall@1"]) / 2


def figures(found: Diagnosis) -> dict[str, float]:
    """Return what the tables show of a diagnosis."""
    values = {name: metric(found) for name, metric in METRICS.items()}
    recalls = known(found).recalls
    return values | {
        "recall@1": recall(found),
        "recall@5": (recalls["x2y/recall@5"] + recalls["y2x/recall@5"]) / 2,
        "transport": found.terms.transport,
        "complexity": found.terms.complexity,
        "variation": found.terms.variation_x + found.terms.variation_y,
        "transport / mass": found.terms.unit_transport,
        "AUC": found.modality_auc or float("nan"),
        "converged": float(bool(found.solved.converged)),
    }


def degradation(
    args: Args, embedded: np.ndarray, texts: dict[str, np.ndarray]
) -> list[dict[str, dict[str, float]]]:
    """Return each subset's figures by condition."""
    every = np.repeat(np.arange(args.size)[:, None], 2, axis=1)
    found = []
    for seed in range(args.subsets):
        chosen = subset(args, seed)
        found.append(
            {
                condition: figures(
                    diagnose(
                        embedded[chosen],
                        condition_rows(texts, chosen, condition),
                        every,
                        probe=False,
                    )
                )
                for condition in captions.CONDITIONS
            }
        )
    return found


def correlations(cells: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return each metric's Spearman correlation with the drop of recall@1."""
    full = cells["full"]["recall@1"]
    drops = [full - cells[name]["recall@1"] for name in captions.CONDITIONS]
    return {
        metric: sensitivity.spearman(
            [cells[name][metric] for name in captions.CONDITIONS], drops
        )
        for metric in METRICS
    }


def sweep_correlations(
    args: Args,
    embedded: np.ndarray,
    texts: dict[str, np.ndarray],
    cells: dict[str, dict[str, float]],
) -> list[float]:
    """Return the pair residual's correlation at every (eps, rho), on subset 0."""
    chosen = subset(args, 0)
    x = embedded[chosen]
    residuals, solved = {}, {}
    for condition in captions.CONDITIONS:
        y = condition_rows(texts, chosen, condition)
        cost = float(pairs.pair_costs(x, y).mean())
        # A shift of the captions leaves the transport as it is.
        texts_of = "full" if condition == "random" else condition
        if texts_of not in solved:
            solved[texts_of] = sensitivity.sweep(x, y, together=False)
            print(
                f"{sum(point.converged for point in solved[texts_of])} of "
                f"{len(solved[texts_of])} converged, {texts_of}"
            )
        residuals[condition] = [
            cost - point.terms.unit_transport for point in solved[texts_of]
        ]
    full = cells["full"]["recall@1"]
    drops = [full - cells[name]["recall@1"] for name in captions.CONDITIONS]
    return [
        sensitivity.spearman(
            [residuals[name][k] for name in captions.CONDITIONS], drops
        )
        for k in range(len(residuals["full"]))
    ]


def correction_rows(
    args: Args, x: np.ndarray, y: np.ndarray
) -> dict[str, dict[str, float]]:
    """Return the figures of each correction on subset 0."""
    chosen = subset(args, 0)
    others = np.setdiff1d(np.arange(args.test), chosen)
    own_x, own_y = x[chosen], y[chosen]
    every = np.repeat(np.arange(args.size)[:, None], 2, axis=1)
    raw = diagnose(own_x, own_y, every)
    rows = {"raw": figures(raw)}
    pairs_of = {
        "mean shift": corrections.mean_shift(own_x, own_y),
        "Procrustes on the scored pairs": corrections.procrustes(
            own_x, own_y, own_x, own_y
        ),
        "Procrustes on other pairs": corrections.procrustes(
            own_x, own_y, x[others], y[others]
        ),
    }
    for alpha in ALPHAS:
        moved = corrections.barycentric(raw.x, raw.plan.barycentres, alpha)
        pairs_of[f"barycentric, alpha {alpha:g}"] = (moved, raw.y)
    for name, sides in pairs_of.items():
        rows[name] = figures(diagnose(*sides, every))
    return rows


def markdown(heads: list[str], rows: list[list[Any]]) -> str:
    """Return a table."""
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for row in rows:
        texts = [cell if isinstance(cell, str) else f"{cell:.3f}" for cell in row]
        lines.append("| " + " | ".join(texts) + " |")
    return "\n".join(lines)


def mean_and_deviation(values: list[float]) -> str:
    """Return `mean (standard deviation)`."""
    return f"{np.mean(values):.3f} ({np.std(values, ddof=1):.3f})"


def sphere_tables() -> str:
    """Return the synthetic study."""
    studies = {
        "separation, one spread": (
            [(angle, 1.0, 1.0) for angle in (0.0, 0.5, 1.0, 1.5)],
            False,
        ),
        "spread of y, one direction": (
            [(0.0, 1.0, spread) for spread in (0.25, 0.5, 1.0, 2.0, 4.0)],
            False,
        ),
        "spread of y, mirrored clouds": (
            [(0.0, 1.0, spread) for spread in (0.25, 0.5, 1.0, 2.0, 4.0)],
            True,
        ),
    }
    rows: list[list[Any]] = []
    for name, (settings, mirrored) in studies.items():
        for point in sweep_spheres(settings, mirrored=mirrored):
            terms = point.terms
            rows.append(
                [
                    name,
                    f"{point.separation:g}",
                    f"{point.spread_y:g}",
                    point.mean_gap,
                    terms.transport,
                    terms.complexity,
                    terms.variation_x,
                    terms.variation_y,
                    terms.mass,
                ]
            )
    heads = ["study", "angle", "spread of y", "mean gap", "transport", "complexity"]
    return markdown([*heads, "variation x", "variation y", "mass"], rows)


def main(args: Args) -> None:
    """Run everything and write the tables."""
    start = time.perf_counter()
    models = fit_maps(args)
    image, made = load_conditions(args)
    parts, kept = [], {}
    table_2: list[list[Any]] = []
    swept: list[list[Any]] = []
    for name, model in models.items():
        embedded = model.embed_x(image)
        texts = {condition: model.embed_y(rows) for condition, rows in made.items()}
        cells = degradation(args, embedded, texts)
        columns = [*METRICS, "recall@1"]
        parts += [
            f"Captions made worse, {name}, subset 0:\n",
            markdown(
                ["captions", *columns],
                [
                    [condition, *(values[c] for c in columns)]
                    for condition, values in cells[0].items()
                ],
            ),
            "",
        ]
        own = [correlations(one) for one in cells]
        table_2 += [
            [f"{name}, subset {seed}", *one.values()] for seed, one in enumerate(own)
        ]
        sweep = sweep_correlations(args, embedded, texts, cells[0])
        swept.append(
            [
                name,
                float(np.mean(np.abs(sweep))),
                float(np.median(np.abs(sweep))),
                f"{sum(abs(value) >= 0.8 for value in sweep)} of {len(sweep)}",
            ]
        )
        kept[name] = {"subsets": cells, "correlations": own, "sweep": sweep}
        if name == "AnchorDOT":
            rows = correction_rows(args, embedded, texts["full"])
            heads = ["mean gap", "pair cost", "pair residual", "total", "AUC"]
            heads += ["recall@1", "recall@5"]
            table_3 = markdown(
                ["correction", *heads],
                [[title, *(row[h] for h in heads)] for title, row in rows.items()],
            )
            kept["corrections"] = rows
        print(f"{name} done, {time.perf_counter() - start:.0f} s", flush=True)
    absolute = [
        [abs(float(row[1 + k])) for row in table_2] for k in range(len(METRICS))
    ]
    table_2.append(["mean absolute", *(mean_and_deviation(own) for own in absolute)])
    parts += [
        "Spearman with the drop of recall@1:\n",
        markdown(["map, subset", *METRICS], table_2),
        "\nThe same over eps x rho, pair residual, subset 0:\n",
        markdown(["map", "mean absolute", "median", ">= 0.8"], swept),
        "\nCorrections, AnchorDOT, subset 0:\n",
        table_3,
        "\nSpheres:\n",
        sphere_tables(),
    ]
    text = "\n".join(parts) + "\n"
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "tables.md").write_text(text, encoding="utf-8")
    (args.out / "figures.json").write_text(json.dumps(kept, indent=1), encoding="utf-8")
    print(text)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main(tyro.cli(Args))
