"""Do suggested anchors beat random ones? Closed forms on two data sets.

Command (some seconds a cell on 2 CPU cores; finished cells are kept in --out):

    python experiments/suggested_anchors.py --data-folder ../shared/data \
        --out runs/suggested

400 random test pairs are put aside; of all other rows N are chosen as anchors by each
rule, on x alone or half on each side, before any pair is looked at. Their partners are
then looked up. Scored by ridge CCA (ridge 2, not tuned) and by Sinkhorn on the anchors'
profiles (gamma 0.75, eta 0.02) between the test items, with the mean of the six recalls
in %. An item that was chosen from both sides counts once, so that "both" has a few
anchors less than N.
"""

import dataclasses
import functools
import itertools
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import tyro
from results import finished_cells

from anchordot_jax import evaluation, load_dataset, profiles
from anchordot_jax.baselines.closed_form import cca
from anchordot_jax.evaluation.score_matrix import evaluate_scores
from anchordot_jax.matching.coverage import choose_cover
from anchordot_jax.matching.rules import RuleSettings, sinkhorn

COUNTS = (50, 100, 200)
TEST, GAMMA, ETA, RIDGE = 400, 0.75, 0.02, 2.0
CHOICES = [
    ("random", "x"),
    *itertools.product(("k-means", "k-centre"), ("x", "both")),
]
RECALLS = [f"{way}/recall@{k}" for way in ("x2y", "y2x") for k in (1, 5, 10)]
METHODS = {"cca": "ridge CCA", "sinkhorn": "profiles, Sinkhorn"}


@dataclasses.dataclass(frozen=True)
class Args:
    """What to run."""

    data_folder: Path
    """Folder of flickr8k.h5 and chebi20.h5."""
    out: Path = Path("runs/suggested")
    """Folder of the finished cells, one JSON file each."""
    datasets: tuple[str, ...] = ("flickr8k", "chebi20")
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)


def unit(rows: np.ndarray) -> np.ndarray:
    """Return the rows scaled to unit norm."""
    return np.asarray(profiles.normalize(rows))


def choose(
    x: np.ndarray, y: np.ndarray, rule: str, sides: str, count: int, seed: int
) -> np.ndarray:
    """Return the rows whose pairs are looked up."""
    if sides == "x":
        return choose_cover(x, count, rule=rule, seed=seed).rows
    first = choose_cover(x, count - count // 2, rule=rule, seed=seed).rows
    second = choose_cover(y, count // 2, rule=rule, seed=seed).rows
    return np.union1d(first, second)


def score_cca(x: np.ndarray, y: np.ndarray, tx: np.ndarray, ty: np.ndarray) -> dict:
    """Return the metrics of a ridge CCA of some anchors."""
    found = cca.cca_from_factors(
        cca.factorize(x, y), ridge_x=RIDGE, ridge_y=RIDGE, relative=True
    )
    weights = found.correlations[None, :]
    u = unit((tx - found.mean_x) @ (found.kernel_x * weights))
    v = unit((ty - found.mean_y) @ (found.kernel_y * weights))
    own = np.arange(len(tx))
    return evaluation.evaluate(u, v, own, own)


def score_sinkhorn(
    x: np.ndarray, y: np.ndarray, tx: np.ndarray, ty: np.ndarray
) -> dict:
    """Return the metrics of Sinkhorn on the profiles of some anchors."""
    maps = profiles.coordinate_maps(profiles.fit_basis(x), profiles.fit_basis(y), GAMMA)
    u, v = profiles.coordinates(tx, ty, maps)
    similarity = np.asarray(jnp.matmul(u, v.T))
    scores = sinkhorn(similarity, RuleSettings(eta=ETA))
    own = np.arange(len(tx))
    return evaluate_scores(scores.x2y, scores.y2x, own, own)


def run_cell(data_folder: Path, dataset: str, seed: int) -> dict[str, dict]:
    """Return the mean recalls of every rule, count and method."""
    x, y = map(unit, load_dataset(dataset, data_folder).read())
    order = np.random.default_rng(seed).permutation(len(x))
    test, rest = order[:TEST], order[TEST:]
    results = {}
    for count, (rule, sides) in itertools.product(COUNTS, CHOICES):
        rows = rest[choose(x[rest], y[rest], rule, sides, count, seed)]
        data = x[rows], y[rows], x[test], y[test]
        both = {"cca": score_cca(*data), "sinkhorn": score_sinkhorn(*data)}
        results[f"{count}/{rule}/{sides}"] = {
            "anchors": len(rows),
            **{
                name: 100 * float(np.mean([metrics[key] for key in RECALLS]))
                for name, metrics in both.items()
            },
        }
    return results


def print_table(dataset: str, method: str, cells: list[dict[str, dict]]) -> None:
    """Print the mean recall of each rule, and its paired difference to random."""
    print(f"\n{dataset}, {METHODS[method]}, {len(cells)} seeds\n")
    print("| anchors chosen | " + " | ".join(f"N = {n}" for n in COUNTS) + " |")
    print("| --- " * (len(COUNTS) + 1) + "|")
    for rule, sides in CHOICES:
        shown = []
        for count in COUNTS:
            own = np.array([c[f"{count}/{rule}/{sides}"][method] for c in cells])
            text = f"{own.mean():.1f}"
            if rule != "random":
                base = [c[f"{count}/random/x"][method] for c in cells]
                ahead = own - np.array(base)
                spread = ahead.std(ddof=1) if len(ahead) > 1 else 0.0
                text += f" ({ahead.mean():+.1f} ± {spread:.1f})"
            shown.append(text)
        name = rule if rule == "random" else f"{rule} on {sides}"
        print(f"| {name} | {' | '.join(shown)} |")


def main(args: Args) -> None:
    """Run what is missing, then print the tables."""
    run = functools.partial(run_cell, args.data_folder)
    cells = finished_cells(args.out, args.datasets, args.seeds, run)
    for dataset, method in itertools.product(args.datasets, METHODS):
        own = [cells[dataset, seed] for seed in args.seeds]
        print_table(dataset, method, own)


if __name__ == "__main__":
    main(tyro.cli(Args))
