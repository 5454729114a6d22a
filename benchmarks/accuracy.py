"""No accuracy lost: potentials against float64, and recall against plain settings.

    python benchmarks/accuracy.py --data-folder ../shared/data --out runs/benchmark

Potentials: the coupling of real pools, streamed and cached, against a NumPy float64
Sinkhorn iterated to an L1 error of 1e-11. Recall: AnchorDOT fitted with the reference
settings (plain Sinkhorn, streamed, tolerance 1e-5) and with the defaults, the same
seeds, splits and training. One JSON file a cell; finished ones are not run again, and
the same command goes on after a stop. About five minutes on two CPU cores with three
seeds.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import machine
import numpy as np
import tyro
from output import DOCS, number, one_sentence, table, tell, write_markdown
from problem import ETA, Size, check, draw, gamma_of
from processes import available_cores

from anchordot_jax import (
    AnchorDOT,
    Config,
    CouplingConfig,
    DistillationConfig,
    InputError,
    coordinate_maps,
    coordinates,
    files,
    fit_basis,
    load_dataset,
    protocol_split,
    solve_coupling,
)
from anchordot_jax.geometry import sampled_median_cost
from anchordot_jax.runs import cells
from anchordot_jax.runs.cells import Result, Settings

Array = np.ndarray[Any, Any]
REFERENCE = CouplingConfig(tolerance=1e-5, overrelaxation=1.0, cost_memory=0)
RECALLS = [f"{way}/recall@{k}" for way in ("x2y", "y2x") for k in (1, 5, 10)]
TOLERANCES = {"default": CouplingConfig().tolerance, "tight": 1e-6}
CONVERGED = 1e-11
BLOCK = 50
MOST = 20_000


@dataclasses.dataclass(frozen=True)
class Args:
    """What to compare."""

    data_folder: Path
    """Where the data sets' files lie."""
    out: Path
    """Folder of the finished cells."""
    data: tuple[str, ...] = ("chebi20", "flickr8k")
    rows: int = 2000
    """Rows of both pools, for the potentials."""
    anchors: int = 500
    test: int = 400
    """Test pairs, for the recall."""
    seeds: int = 5
    """Seeds 0, 1, ..."""
    epochs: int = 20
    """Passes over the pools, for the recall; the same for both settings."""
    dim: int = 1024
    """Dimension of the shared space."""
    docs: Path = DOCS
    """Folder of the results."""


def float64_potentials(
    cost: Array, epsilon: float, *, converged: float = CONVERGED
) -> tuple[Array, Array]:
    """Return Sinkhorn's f and g of uniform marginals, in float64 by NumPy.

    u = a / (K v), v = b / (K^T u) with K = exp((f + g - C)/epsilon), u and v absorbed
    into f and g every so many iterations.
    """
    n, m = cost.shape
    f, g = np.zeros(n), np.zeros(m)
    for _ in range(MOST // BLOCK):
        # The exact half-step: no row of K underflows.
        z = (g[None, :] - cost) / epsilon
        top = z.max(axis=1)
        f = -epsilon * (top + np.log(np.exp(z - top[:, None]).sum(axis=1)) + np.log(n))
        kernel = np.exp((f[:, None] + g[None, :] - cost) / epsilon)
        if np.abs(kernel.sum(axis=0) - 1 / m).sum() < converged:
            break
        v = np.ones(m)
        for _ in range(BLOCK):
            u = 1 / (n * (kernel @ v))
            v = 1 / (m * (u @ kernel))
        f, g = f + epsilon * np.log(u), g + epsilon * np.log(v)
    return f, g


def largest_difference(
    f: Array, g: Array, exact: tuple[Array, Array], epsilon: float
) -> float:
    """Return max |f - f64| / epsilon over both potentials, less the free constant."""
    shift = float(np.mean(f - exact[0]))
    differences = np.abs(f - shift - exact[0]), np.abs(g + shift - exact[1])
    return float(max(side.max() for side in differences)) / epsilon


def run(settings: Settings, folder: Path) -> Result:
    """Return one cell's figures."""
    values: dict[str, Any] = dict(settings)
    if values.pop("what") == "potentials":
        return potentials(folder, **values)
    return recall(folder, **values)


def potentials(folder: Path, data: str, rows: int, anchors: int) -> Result:
    """Return the largest differences of the potentials, in units of epsilon."""
    problem = draw(data, folder, Size(rows, rows), anchors)
    bases = fit_basis(problem.anchors_x), fit_basis(problem.anchors_y)
    maps = coordinate_maps(*bases, gamma_of(data))
    x, y = coordinates(problem.pool_x, problem.pool_y, maps)
    epsilon = ETA * float(sampled_median_cost(x, y, key=jax.random.key(0)))
    # The same float32 coordinates, from there on in float64.
    cost = 1 - np.asarray(x, np.float64) @ np.asarray(y, np.float64).T
    exact = float64_potentials(cost, epsilon)
    found: dict[str, float] = {}
    for form, memory in (("streamed", 0), ("cached", 4 * rows * rows)):
        for name, tolerance in TOLERANCES.items():
            config = CouplingConfig(cost_memory=memory, tolerance=tolerance)
            solved = solve_coupling(x, y, epsilon, config=config)
            f, g = (np.asarray(p, np.float64) for p in (solved.f, solved.g))
            found[f"{form}_{name}"] = largest_difference(f, g, exact, epsilon)
            found[f"{form}_{name}_error"] = float(solved.marginal_error)
    return found


def recall(
    folder: Path,
    data: str,
    seed: int,
    reference: bool,
    anchors: int,
    test: int,
    epochs: int,
    dim: int,
) -> Result:
    """Return the six recalls of one fit, in fractions."""
    x, y = load_dataset(data, folder).read()
    split = protocol_split(len(x), seed=seed, anchors=anchors, test=test)
    config = Config(
        recipe="paper",
        gamma=gamma_of(data),
        eta=ETA,
        seed=seed,
        bank_size=0,
        coupling=REFERENCE if reference else CouplingConfig(),
        distillation=DistillationConfig(epochs=epochs, dim=dim),
    )
    model = AnchorDOT(config).fit(
        x, y, split.anchors, pool_x=x[split.pool_x], pool_y=y[split.pool_y]
    )
    metrics = model.evaluate(x, y, split.test_pairs)
    return {name: float(metrics[name]) for name in RECALLS}


def main(args: Args) -> None:
    """Run what is missing, and write accuracy.json and accuracy.md."""
    with one_sentence():
        if args.seeds < 1:
            raise InputError(f"--seeds must be at least 1, got {args.seeds}.")
        for data in args.data:
            check(data, args.data_folder, args.anchors + args.test)
        about = machine.describe(len(available_cores()))
        common = {"data": args.data, "anchors": [args.anchors]}
        wanted = cells.grid("accuracy", what=["potentials"], **common, rows=[args.rows])
        wanted += cells.grid(
            "accuracy",
            what=["recall"],
            **common,
            seed=range(args.seeds),
            reference=[True, False],
            test=[args.test],
            epochs=[args.epochs],
            dim=[args.dim],
        )
        records = cells.run_cells(
            wanted,
            lambda settings: run(settings, args.data_folder),
            args.out,
            report=tell,
        )
        for record in records:
            if record["status"] != "done":
                raise InputError(f"{record['settings']}: {record['reason']}")
        results = {
            "machine": about,
            "rows": args.rows,
            "anchors": args.anchors,
            "test": args.test,
            "dim": args.dim,
            "epochs": args.epochs,
            "seeds": args.seeds,
            "potentials": potentials_of(records),
            "recall": differences(records),
        }
        files.write_json(args.docs / "accuracy.json", results)
        write_markdown("accuracy", page(results), args.docs)


def potentials_of(records: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the largest differences by data set."""
    return {
        record["settings"]["data"]: record["result"]
        for record in records
        if record["settings"]["what"] == "potentials"
    }


def differences(records: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return, by data set, both settings' mean recall in % and how they differ.

    The mean of the six recalls over the seeds; the deviation is that of the paired
    differences of single seeds.
    """
    found: dict[str, dict[bool, dict[int, float]]] = {}
    for record in records:
        own = record["settings"]
        if own["what"] == "recall":
            mean = 100 * float(np.mean([record["result"][name] for name in RECALLS]))
            by_seed = found.setdefault(own["data"], {True: {}, False: {}})
            by_seed[own["reference"]][own["seed"]] = mean
    told = {}
    for data, both in found.items():
        paired = [both[False][seed] - both[True][seed] for seed in both[True]]
        deviation = float(np.std(paired, ddof=1)) if len(paired) > 1 else 0.0
        told[data] = {
            "reference": float(np.mean(list(both[True].values()))),
            "defaults": float(np.mean(list(both[False].values()))),
            "difference": float(np.mean(paired)),
            "deviation": deviation,
        }
    return told


def page(results: dict[str, Any]) -> list[str]:
    """Return the parts of accuracy.md."""
    potential_rows = [
        (
            data,
            form,
            *(
                f"{number(own[f'{form}_{name}'], 2)} "
                f"({number(own[f'{form}_{name}_error'], 1)})"
                for name in TOLERANCES
            ),
        )
        for data, own in results["potentials"].items()
        for form in ("streamed", "cached")
    ]
    recall_rows = [
        (
            data,
            *(f"{own[name]:.2f}" for name in ("reference", "defaults")),
            f"{own['difference']:+.2f}",
            f"{own['deviation']:.2f}",
        )
        for data, own in results["recall"].items()
    ]
    return [
        machine.sentence(results["machine"]),
        f"Largest difference of a potential from the float64 reference, in units of "
        f"epsilon, on real pools of {results['rows']} rows a side with "
        f"{results['anchors']} anchors (in brackets the marginal error that the solve "
        "ended with):",
        table(
            (
                "data",
                "form",
                *(f"tolerance {t:g}" for t in TOLERANCES.values()),
            ),
            potential_rows,
        ),
        f"Mean of the six recalls in % on {results['test']} test pairs, "
        f"{results['anchors']} anchors, {results['seeds']} seeds, {results['epochs']} "
        f"epochs and {results['dim']} shared dimensions for both settings:",
        table(
            ("data", "reference settings", "defaults", "difference", "its deviation"),
            recall_rows,
        ),
    ]


if __name__ == "__main__":
    main(tyro.cli(Args))
