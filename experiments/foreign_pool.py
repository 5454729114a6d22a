"""Pools of two distributions: does a rho help where 30 % of one pool is foreign?

Command (a folder of chebi20.h5, extra_molecules.h5, flickr8k.h5 and openclipart.h5;
finished cells are kept in --out and skipped the next time):

    python experiments/foreign_pool.py --data-folder ../shared/data --out runs/foreign

Protocol: 500 anchors, 400 test pairs, the other rows halved into an x pool and a y pool
that share no item. Rows of another source are then added to the x pool until they are
30 % of it: molecules in no description's set, or clip art among photographs. gamma is 1
on chebi20 and 0.75 on flickr8k, eta 0.02. "auto" is the rho that held-out anchors
choose; no test item is seen before. Recall in %, ties count in expectation.
"""

import csv
import dataclasses
import itertools
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import tyro

from anchordot_jax import (
    Config,
    DistillationConfig,
    files,
    open_embeddings,
    protocol_split,
)
from anchordot_jax.alignment import fit_data, selection_key
from anchordot_jax.coupling import row_weights
from anchordot_jax.data import Split
from anchordot_jax.fit_inputs import FitData
from anchordot_jax.selection import select

DATASETS = {
    "chebi20": (
        "chebi20.h5::molecule",
        "chebi20.h5::text",
        "extra_molecules.h5::molecule",
        1.0,
    ),
    "flickr8k": (
        "flickr8k.h5::image",
        "flickr8k.h5::text",
        "openclipart.h5::image",
        0.75,
    ),
}
ETA = 0.02
CLEAN, BALANCED, AUTO = "no foreign rows, balanced", "balanced", "rho auto"
FITS: dict[str, tuple[bool, float | None]] = {
    BALANCED: (True, None),
    CLEAN: (False, None),
    **{f"rho {rho:g}": (True, rho) for rho in (0.3, 1.0, 0.1)},
}
"""What is fitted: whether the x pool has foreign rows, and rho."""
CHOICES = {AUTO: True, "no foreign rows, rho auto": False}
"""What held-out anchors choose rho for: whether the x pool has foreign rows."""
RECALLS = [f"{way}/recall@{k}" for way in ("x2y", "y2x") for k in (1, 5, 10)]


@dataclasses.dataclass(frozen=True)
class Args:
    """What to run."""

    data_folder: Path
    """Folder of the embedding files."""
    out: Path = Path("runs/foreign")
    """Folder of the finished cells, one JSON file each."""
    docs: Path = Path("docs")
    """Folder of foreign_pool.csv and foreign_pool_tables.md."""
    datasets: tuple[str, ...] = tuple(DATASETS)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    share: float = 0.3
    """Share of the x pool that is foreign."""
    pool: int | None = None
    """Own rows of each pool, drawn at random; fewer are sooner done. None: all."""
    dim: int = 1024
    """Dimension of the students' shared space; a smaller one is sooner done."""
    only_tables: bool = False
    """Run nothing; tabulate what is there."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One data set and seed."""

    x: np.ndarray
    y: np.ndarray
    split: Split
    pool_x: np.ndarray
    pool_y: np.ndarray
    foreign: np.ndarray
    gamma: float
    seed: int
    dim: int

    def data(self, foreign: bool) -> FitData:
        """Return the anchors and the pools, the foreign rows after the x pool's own."""
        others = self.foreign if foreign else self.foreign[:0]
        anchors = self.split.anchors
        return FitData(
            anchors_x=self.x[anchors[:, 0]],
            anchors_y=self.y[anchors[:, 1]],
            pool_x=np.concatenate([self.pool_x, others]),
            pool_y=self.pool_y,
        )

    def config(self, rho: float | str | None) -> Config:
        """Return the paper's recipe with a rho."""
        return Config(
            gamma=self.gamma,
            eta=ETA,
            rho=rho,
            seed=self.seed,
            bank_size=0,
            distillation=DistillationConfig(dim=self.dim),
        )


def load_case(args: Args, dataset: str, seed: int) -> Case:
    """Return the data of one seed; the foreign rows are drawn by it too."""
    *names, gamma = DATASETS[dataset]
    x, y, others = (open_embeddings(f"{args.data_folder / n}").read() for n in names)
    split = protocol_split(len(x), seed=seed, anchors=500, test=400)
    random = np.random.default_rng(seed)
    pool_x = x[random.permutation(split.pool_x)[: args.pool]]
    pool_y = y[random.permutation(split.pool_y)[: args.pool]]
    count = round(len(pool_x) * args.share / (1 - args.share))
    foreign = others[random.permutation(len(others))[:count]]
    return Case(x, y, split, pool_x, pool_y, foreign, gamma, seed, args.dim)


def fit_cell(case: Case, name: str) -> dict:
    """Return the recalls of one fit, and what its plan does with foreign rows."""
    foreign, rho = FITS[name]
    data = case.data(foreign)
    result = fit_data(data, case.config(rho))
    cell = {
        "metrics": result.model.evaluate(case.x, case.y, case.split.test_pairs),
        "sinkhorn_iterations": int(result.coupling.n_iterations),
        "converged": bool(result.coupling.converged),
        "seconds": result.seconds,
    }
    weights, _ = row_weights(result.coupling)
    if weights is not None and result.coupling.mass is not None:
        n = len(case.pool_x)
        own, others = np.asarray(weights[:n]), np.asarray(weights[n:])
        cell |= {
            "mass": float(result.coupling.mass),
            "foreign_weight": float(others.mean() / own.mean()),
            # How well the weight tells the two sources apart; 0.5 is chance.
            "foreign_auc": float(
                np.searchsorted(np.sort(others), own).mean() / len(others)
            ),
        }
    return cell


def choose_cell(case: Case, name: str) -> dict:
    """Return the rho that held-out anchors choose, and every candidate's ranks."""
    data, config = case.data(CHOICES[name]), case.config("auto")
    chosen = select(
        jnp.asarray(data.anchors_x),
        jnp.asarray(data.anchors_y),
        data.pool_x,
        data.pool_y,
        config,
        key=selection_key(config),
    )
    curve = [
        {"rho": c.rho, "log_rank": c.log_rank, "standard_error": c.standard_error}
        for c in chosen.curve
    ]
    return {"rho": chosen.rho, "n_heldout": chosen.n_heldout, "curve": curve}


def run_missing(args: Args) -> None:
    """Run every cell that is not there yet, all seeds of one setting after another."""
    for name, dataset, seed in itertools.product(
        (*CHOICES, *FITS), args.datasets, args.seeds
    ):
        path = cell_path(args, dataset, seed, name)
        if not path.exists():
            run = choose_cell if name in CHOICES else fit_cell
            files.write_json(path, run(load_case(args, dataset, seed), name))
            print(f"{path} written", flush=True)


def cell_path(args: Args, dataset: str, seed: int, name: str) -> Path:
    """Return where a cell is kept."""
    # A choice needs no students.
    size = "all" if args.pool is None else f"{args.pool}"
    dim = "" if name in CHOICES else f"-{args.dim}"
    plain = name.replace(",", "").replace(" ", "_")
    return args.out / f"{dataset}-{seed}-{plain}-{size}{dim}.json"


def read_cells(args: Args, dataset: str) -> dict[str, dict[int, dict]]:
    """Return the finished cells by setting and seed; "rho auto" has its fit's recalls.

    Where it chose a rho without foreign rows, that has no fit of its own.
    """
    cells: dict[str, dict[int, dict]] = {}
    for name, seed in itertools.product((*FITS, *CHOICES), args.seeds):
        path = cell_path(args, dataset, seed, name)
        if path.exists():
            cells.setdefault(name, {})[seed] = json.loads(path.read_text("utf-8"))
    for seed, cell in cells.get(AUTO, {}).items():
        fit = BALANCED if cell["rho"] is None else f"rho {cell['rho']:g}"
        cell |= cells.get(fit, {}).get(seed, {})
    return cells


def mean_recall(cell: dict) -> float:
    """Return the mean of the six recalls, in %."""
    return 100 * float(np.mean([cell["metrics"][key] for key in RECALLS]))


def fitted(cells: dict[str, dict[int, dict]], name: str) -> dict[int, dict]:
    """Return the seeds of a setting whose recalls are known."""
    return {k: c for k, c in cells.get(name, {}).items() if "metrics" in c}


def table(dataset: str, cells: dict[str, dict[int, dict]]) -> list[str]:
    """Return one data set's table in Markdown."""
    heads = ["pools", "seeds", *(name.replace("recall", "R") for name in RECALLS)]
    heads += ["mean of six", "less balanced", "foreign weight", "AUC"]
    lines = [f"## {dataset}", "", "| " + " | ".join(heads) + " |"]
    lines.append("| --- " * len(heads) + "|")
    balanced = fitted(cells, BALANCED)
    for name in (*FITS, AUTO):
        known = fitted(cells, name)
        if not known:
            continue
        figures = [", ".join(str(seed) for seed in known)]
        figures += [
            spread([100 * c["metrics"][key] for c in known.values()]) for key in RECALLS
        ]
        figures.append(spread([mean_recall(c) for c in known.values()]))
        both = known.keys() & balanced.keys()
        gains = [mean_recall(known[k]) - mean_recall(balanced[k]) for k in both]
        figures.append(spread(gains, sign="+") if gains and name != BALANCED else "")
        for key in ("foreign_weight", "foreign_auc"):
            values = [c[key] for c in known.values() if key in c]
            figures.append(f"{np.mean(values):.2f}" if values else "")
        lines.append(f"| {name} | " + " | ".join(figures) + " |")
    for name in CHOICES:
        chosen = {seed: cell["rho"] for seed, cell in cells.get(name, {}).items()}
        texts = [f"{k}: {'none' if v is None else f'{v:g}'}" for k, v in chosen.items()]
        lines += ["", f"Chosen by seed, {name}: {', '.join(texts)}."]
    return [*lines, ""]


def spread(values: list[float], sign: str = "") -> str:
    """Return mean and standard deviation over the seeds."""
    deviation = f" ({np.std(values, ddof=1):.1f})" if len(values) > 1 else ""
    return f"{np.mean(values):{sign}.1f}{deviation}"


def write_tables(args: Args) -> None:
    """Write the tables, and the recalls of every cell that is there."""
    rows, lines = [], []
    for dataset in args.datasets:
        cells = read_cells(args, dataset)
        if fitted(cells, BALANCED):
            lines += table(dataset, cells)
        for name in (*FITS, AUTO):
            for seed, cell in fitted(cells, name).items():
                recalls = [f"{cell['metrics'][key]:.6g}" for key in RECALLS]
                extra = [cell.get(k, "") for k in ("rho", "mass", "foreign_weight")]
                rows.append([dataset, seed, name, *extra, *recalls])
    text = "\n".join(lines)
    print(text)
    with files.replacing(args.docs / "foreign_pool_tables.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    heads = ["dataset", "seed", "pools", "rho", "mass", "foreign_weight", *RECALLS]
    with (
        files.replacing(args.docs / "foreign_pool.csv") as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        csv.writer(file, lineterminator="\n").writerows([heads, *rows])


def main(args: Args) -> None:
    """Run what is missing, then write the tables."""
    args.out.mkdir(parents=True, exist_ok=True)
    if not args.only_tables:
        run_missing(args)
    write_tables(args)


if __name__ == "__main__":
    main(tyro.cli(Args))
