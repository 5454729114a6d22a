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
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import tyro
from results import one_sentence

from anchordot_jax import (
    Config,
    DistillationConfig,
    files,
    open_embeddings,
    protocol_split,
)
from anchordot_jax.alignment import fit_data, selection_key
from anchordot_jax.data import Split
from anchordot_jax.fit_inputs import FitData
from anchordot_jax.row_masses import row_weights
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
ETA, SHARE = 0.02, 0.3
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


INTRODUCTION = """\
# Pools of two distributions

500 anchors, 400 test pairs, pools that share no item; then foreign rows are added to
the x pool until they are 30 % of it: molecules of no description (chebi20), clip art
(flickr8k). eta 0.02 and a fixed gamma. Made by

    python experiments/foreign_pool.py --data-folder DIR

with `--pool 1000 --dim 256` where a heading says so, which is sooner done.

*foreign weight* is the mean mass of the foreign rows over that of the own, *AUC* how
often an own row has more mass than a foreign one (0.5 is chance). The choice sees
held-out anchors only, which rank among more items where there are foreign rows. Recall
in %, mean (standard deviation) over the seeds; *against balanced* is the paired
difference to the balanced plan of the same pools.
"""


@dataclasses.dataclass(frozen=True)
class Args:
    """What to run."""

    data_folder: Path
    """Folder of the embedding files."""
    out: Path = Path("runs/foreign")
    """Folder of the finished cells, one JSON file each."""
    docs: Path = Path("docs")
    """Folder of foreign_pool.csv and foreign_pool.md."""
    datasets: tuple[str, ...] = tuple(DATASETS)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    share: float = SHARE
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
            recipe="paper",
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
        what = {"dataset": dataset, "seed": seed, "setting": name, "pool": args.pool}
        share = "" if args.share == SHARE else f"-{args.share:g}"
        what |= {"share": args.share} if share else {}
        # A choice needs no students.
        what |= {} if name in CHOICES else {"dim": args.dim}
        size = "-".join(str(what[key]) for key in ("pool", "dim") if key in what)
        plain = name.replace(",", "").replace(" ", "_")
        path = args.out / f"{dataset}-{seed}-{plain}-{size}{share}.json"
        if not path.exists():
            run = choose_cell if name in CHOICES else fit_cell
            cell = run(load_case(args, dataset, seed), name)
            files.write_json(path, {**what, **cell})
            print(f"{path} written", flush=True)


def read_cells(folder: Path) -> list[dict]:
    """Return the finished cells, and for each choice the cells of what it chose."""
    paths = sorted(folder.glob("*.json"))
    cells = [files.read_json(path, f"The cell {path}") for path in paths]
    # Tables are of the usual share; others are kept for who asked for them.
    cells = [cell for cell in cells if cell.get("share", SHARE) == SHARE]
    chosen = {
        (c["dataset"], c["seed"], c["pool"]): c["rho"]
        for c in cells
        if c["setting"] == AUTO
    }
    for cell in list(cells):
        key = cell["dataset"], cell["seed"], cell["pool"]
        if cell["setting"] in FITS and FITS[cell["setting"]][0] and key in chosen:
            rho = chosen[key]
            if cell["setting"] == (BALANCED if rho is None else f"rho {rho:g}"):
                cells.append({**cell, "setting": AUTO})
    return cells


def mean_recall(cell: dict) -> float:
    """Return the mean of the six recalls, in %."""
    return 100 * float(np.mean([cell["metrics"][key] for key in RECALLS]))


def recall_table(cells: list[dict]) -> list[str]:
    """Return the recalls of one data set, pool size and dimension in Markdown."""
    heads = ["pools", "seeds", *(name.replace("recall", "R") for name in RECALLS)]
    heads += ["mean of six", "against balanced", "foreign weight", "AUC"]
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    balanced = {c["seed"]: mean_recall(c) for c in cells if c["setting"] == BALANCED}
    for name in (CLEAN, *(name for name in FITS if name != CLEAN), AUTO):
        own = sorted((c for c in cells if c["setting"] == name), key=by_seed)
        if not own:
            continue
        figures = [", ".join(str(c["seed"]) for c in own)]
        figures += [spread([100 * c["metrics"][key] for c in own]) for key in RECALLS]
        figures.append(spread([mean_recall(c) for c in own]))
        gains = [
            mean_recall(c) - balanced[c["seed"]] for c in own if c["seed"] in balanced
        ]
        figures.append(spread(gains, sign="+") if gains and name != BALANCED else "")
        for key in ("foreign_weight", "foreign_auc"):
            values = [c[key] for c in own if key in c]
            figures.append(f"{np.mean(values):.2f}" if values else "")
        lines.append(f"| {name} | " + " | ".join(figures) + " |")
    return [*lines, ""]


def choice_table(cells: list[dict]) -> list[str]:
    """Return the held-out ranks of one data set and pool size in Markdown."""
    lines = ["| pools | seed | no rho | rho 1 | rho 0.3 | rho 0.1 | chosen |"]
    lines.append("| --- " * 7 + "|")
    for cell in sorted(cells, key=by_seed):
        ranks = [f"{c['log_rank']:.3f}" for c in cell["curve"]]
        chosen = "none" if cell["rho"] is None else f"{cell['rho']:g}"
        name = "30 % foreign" if CHOICES[cell["setting"]] else "no foreign rows"
        row = [name, str(cell["seed"]), *ranks, chosen]
        lines.append("| " + " | ".join(row) + " |")
    return [*lines, ""]


def by_seed(cell: dict) -> tuple[str, int]:
    """Return what cells are sorted by."""
    return cell["setting"], cell["seed"]


def spread(values: list[float], sign: str = "") -> str:
    """Return mean and standard deviation over the seeds."""
    deviation = f" ({np.std(values, ddof=1):.1f})" if len(values) > 1 else ""
    return f"{np.mean(values):{sign}.1f}{deviation}"


def write_tables(args: Args) -> None:
    """Write the tables, and the recalls of every cell that is there."""
    cells = read_cells(args.out)
    ranked = [c for c in cells if "curve" in c]
    scored = [c for c in cells if "metrics" in c]
    lines = [INTRODUCTION]
    for dataset, pool in sorted({(c["dataset"], c["pool"] or 0) for c in ranked}):
        lines += [f"## {dataset}, {size(pool)}: mean log rank of 150 held-out", ""]
        lines += choice_table(of(ranked, dataset, pool))
    kinds = {(c["dataset"], c["pool"] or 0, c["dim"]) for c in scored}
    for dataset, pool, dim in sorted(kinds):
        lines += [f"## {dataset}, {size(pool)}, {dim} dimensions: test recall", ""]
        lines += recall_table([c for c in of(scored, dataset, pool) if c["dim"] == dim])
    text = "\n".join(lines)
    print(text)
    with files.replacing(args.docs / "foreign_pool.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    columns = ["dataset", "seed", "pool", "dim", "setting", "mass", "foreign_weight"]
    rows = [
        [c.get(k, "") for k in columns]
        + [f"{c['metrics'][key]:.6g}" for key in RECALLS]
        for c in sorted(scored, key=by_seed)
    ]
    with (
        files.replacing(args.docs / "foreign_pool.csv") as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        csv.writer(file, lineterminator="\n").writerows([[*columns, *RECALLS], *rows])


def of(cells: list[dict], dataset: str, pool: int) -> list[dict]:
    """Return the cells of a data set and pool size."""
    return [c for c in cells if (c["dataset"], c["pool"] or 0) == (dataset, pool)]


def size(pool: int) -> str:
    """Return how large the pools are, in words."""
    return f"{pool:,} own rows a pool" if pool else "all rows"


def main(args: Args) -> None:
    """Run what is missing, then write the tables."""
    args.out.mkdir(parents=True, exist_ok=True)
    with one_sentence():
        if not args.only_tables:
            run_missing(args)
        write_tables(args)


if __name__ == "__main__":
    main(tyro.cli(Args))
