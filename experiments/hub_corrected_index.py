"""Hub-corrected search in a stored index against the plain cosine.

Command (half a minute a cell on 2 CPU cores; finished cells are kept in --out):

    python experiments/hub_corrected_index.py --data-folder ../shared/data \
        --out runs/index

The model is the closed form that starts the refined recipe (a soft-matched CCA at ridge
4 and sharpness 6, nothing chosen), not the distilled students: 500 anchors (300 on
openclipart), 400 test pairs, the other rows halved into pools that share no item. The
banks are the two pools. Queries are the test items of one side, the gallery those of
the other; the gallery bank of the dual forms is the pool of the gallery's side.
"""

import dataclasses
import functools
import itertools
import time
from pathlib import Path

import jax
import numpy as np
import tyro
from results import finished_cells

from anchordot_jax import evaluation, load_dataset, profiles, protocol_split
from anchordot_jax.baselines.closed_form.soft_cca import fit_soft_cca
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.config import SoftCcaConfig
from anchordot_jax.fitted.gallery_index import FORMS, gallery_potentials

ANCHORS = {"flickr8k": 500, "chebi20": 500, "openclipart": 300}
TEST = 400
SETTINGS = SoftCcaConfig(
    ridge=4.0,
    balance=1.0,
    power=1.0,
    sharpness=6.0,
    ridge_ratio=0.12,
    balance_ratio=1.0,
    final_power=1.0,
)
"""Of the closed form."""
NAMES = ("recall@1", "recall@5", "recall@10", "hubness_skewness@10")


@dataclasses.dataclass(frozen=True)
class Args:
    """What to run."""

    data_folder: Path
    """Folder of flickr8k.h5, chebi20.h5 and openclipart.h5."""
    out: Path = Path("runs/index")
    """Folder of the finished cells, one JSON file each."""
    datasets: tuple[str, ...] = ("flickr8k", "chebi20", "openclipart")
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)


def unit(rows: np.ndarray) -> np.ndarray:
    """Return the rows scaled to unit norm."""
    return np.asarray(profiles.normalize(rows))


def run_cell(data_folder: Path, dataset: str, seed: int) -> dict[str, dict]:
    """Return the metrics of every form, both ways, and the seconds of the offsets."""
    x, y = map(unit, load_dataset(dataset, data_folder).read())
    split = protocol_split(len(x), seed=seed, anchors=ANCHORS[dataset], test=TEST)
    pools = Pools(x[split.pool_x], y[split.pool_y])
    model = fit_soft_cca(
        Anchors(x[split.anchors[:, 0]], y[split.anchors[:, 1]]),
        pools,
        settings=SETTINGS,
        key=jax.random.key(seed),
    )
    u, v = (
        model.embed_x(x[split.test_pairs[:, 0]]),
        model.embed_y(y[split.test_pairs[:, 1]]),
    )
    bank_x, bank_y = model.embed_x(pools.x), model.embed_y(pools.y)
    start = time.perf_counter()
    ways = {
        "x2y": (u, v, gallery_potentials(v, bank_x, bank_y)),
        "y2x": (v, u, gallery_potentials(u, bank_y, bank_x)),
    }
    seconds = time.perf_counter() - start
    results: dict[str, dict] = {form: {} for form in FORMS}
    own = np.arange(TEST)
    for (way, (queries, gallery, found)), form in itertools.product(
        ways.items(), FORMS
    ):
        retrieval = evaluation.retrieve(
            queries,
            gallery,
            own,
            scale=found[form].scale,
            offsets=found[form].offsets,
        )
        metrics = evaluation.retrieval.direction_metrics(retrieval)
        results[form] |= {f"{way}/{name}": metrics[name] for name in NAMES}
    results["cosine"]["seconds"] = seconds
    return results


def print_table(dataset: str, cells: list[dict[str, dict]]) -> None:
    """Print one data set's table."""
    keys = [f"{way}/{name}" for way in ("x2y", "y2x") for name in NAMES]
    recalls = [key for key in keys if "recall" in key]
    print(f"\n{dataset}, {len(cells)} seeds\n")
    heads = [key.replace("recall", "R").replace("hubness_", "") for key in keys]
    print("| form | " + " | ".join(heads) + " | mean recall | less cosine's |")
    print("| --- " * (len(keys) + 3) + "|")
    base = np.array([[c["cosine"][key] for key in recalls] for c in cells])
    for form in FORMS:
        table = np.array([[c[form][key] for key in keys] for c in cells])
        own = np.array([[c[form][key] for key in recalls] for c in cells])
        ahead = 100 * (own - base).mean(axis=1)
        spread = ahead.std(ddof=1) if len(cells) > 1 else 0.0
        figures = [
            f"{value:.2f}" if "skew" in key else f"{100 * value:.1f}"
            for key, value in zip(keys, table.mean(axis=0), strict=True)
        ]
        figures.append(f"{100 * own.mean():.1f}")
        figures.append(f"{ahead.mean():+.1f} ± {spread:.1f}")
        print(f"| {form} | " + " | ".join(figures) + " |")


def main(args: Args) -> None:
    """Run what is missing, then print the tables."""
    run = functools.partial(run_cell, args.data_folder)
    cells = finished_cells(args.out, args.datasets, args.seeds, run)
    for dataset in args.datasets:
        print_table(dataset, [cells[dataset, seed] for seed in args.seeds])


if __name__ == "__main__":
    main(tyro.cli(Args))
