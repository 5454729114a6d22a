"""What the figures of recall share: one method fitted on one draw of the paper's kind.

A draw sets aside 400 test pairs and `reserved` anchors, of which the first N are used,
so that test items and pools stay the same while N grows; the other rows are halved
into pools that share no item, of which `pool` rows each are kept. With an overlap o the
share o of the x pool has its partner in the y pool. Fitted models are kept in
OUT/models, so that scripts that are given one --out share them.

The short schedule, for a CPU, has students of 256 dimensions instead of 1,024, gamma
and eta as the paper chose them (Table 9) and the shorter schedules of the slowest
methods; the full one has the paper's settings, chosen by held-out anchors.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from results import Options

from anchordot_jax import Config, InputError, load_dataset, protocol_split
from anchordot_jax.baselines.protocol import Method, Scorer
from anchordot_jax.baselines.registry import find_methods
from anchordot_jax.baselines.scorers import load_scorer
from anchordot_jax.comparison.cell import choose_settings, score
from anchordot_jax.comparison.named import TEST
from anchordot_jax.comparison.problem import Problem, make_problem
from anchordot_jax.data.splits import Split
from anchordot_jax.evaluation.retrieval import Retrieval, direction_metrics
from anchordot_jax.runs import cells

EXPERIMENT = "fits"
MODELS = "models"
SHORT_DIM = 256
GAMMAS = {"chebi20": 1.0, "chebi20-fp": 1.0, "chebi20-full": 1.0}
"""The paper's gamma where it is not the usual one (Table 9)."""
GAMMA, ETA = 0.75, 0.02
SETTINGS = (
    "data",
    "method",
    "anchors",
    "reserved",
    "pool",
    "overlap",
    "schedule",
    "seed",
)
KEPT = ("recall@1", "recall@5", "recall@10", "mean_rank", "hubness_skewness@10")


@dataclasses.dataclass(frozen=True)
class FitOptions(Options):
    """What every figure of fits is told."""

    seeds: int = 3
    """Seeds 0, 1, ..."""
    full: bool = False
    """The paper's sizes and schedules; add --seeds 5 for its seeds too."""
    together: bool = False
    """Train AnchorDOT's students of all seeds as one program; sooner on an accelerator,
    not on a CPU. The numbers are those of the fits one by one, to float32 rounding."""

    @property
    def schedule(self) -> str:
        """The schedule's name in the cells' settings."""
        return "full" if self.full else "short"


@dataclasses.dataclass(frozen=True)
class PooledOptions(FitOptions):
    """What every figure of fits with pools of one size is told."""

    pool: int = 1000
    """Rows of each pool without --full."""

    @property
    def pools(self) -> list[int | None]:
        """The one size; None is all rows."""
        return [None if self.full else self.pool]


def fit_grid(
    options: FitOptions,
    *,
    data: Sequence[str],
    methods: Sequence[str],
    anchors: Sequence[int],
    pool: Sequence[int | None],
    reserved: int | None = None,
    overlap: Sequence[float] = (0.0,),
) -> list[cells.Cell]:
    """Return the cells of some fits, all seeds of one setting after another.

    Args:
        options: gives the seeds and the schedule.
        data: names of data sets.
        methods: names of methods.
        anchors: values of N.
        pool: rows of each pool; None is all of them.
        reserved: anchors that a draw sets aside; the largest N by default.
        overlap: shares of the x pool whose partner is in the y pool.

    Raises:
        InputError: an unknown method, or settings out of range.
    """
    kept = max(anchors) if reserved is None else reserved
    if min(anchors) < 2 or max(anchors) > kept:
        raise InputError(f"--anchors must be between 2 and {kept}, got {anchors}.")
    if any(size is not None and size < 2 for size in pool):
        raise InputError(f"--pool must be at least 2, got {pool}.")
    if not all(0 <= share <= 1 for share in overlap):
        raise InputError(f"--overlap must be between 0 and 1, got {overlap}.")
    return cells.grid(
        EXPERIMENT,
        data=data,
        method=[method.name for method in find_methods(methods)],
        anchors=anchors,
        reserved=[kept],
        pool=pool,
        overlap=[float(share) for share in overlap],
        schedule=[options.schedule],
        seed=range(options.seeds),
    )


def split_of(settings: Mapping[str, Any], n: int) -> Split:
    """Return the rows of a draw among n pairs.

    Raises:
        InputError: too few pairs.
    """
    seed, size = settings["seed"], settings["pool"]
    split = protocol_split(n, seed=seed, anchors=settings["reserved"], test=TEST)
    rng = np.random.default_rng(seed)
    # Kept rows are the first of one order: a larger pool holds the smaller ones.
    x, y = rng.permutation(split.pool_x)[:size], rng.permutation(split.pool_y)[:size]
    shared = round(settings["overlap"] * min(len(x), len(y)))
    return split._replace(
        anchors=split.anchors[: settings["anchors"]],
        pool_x=np.sort(x),
        pool_y=np.sort(np.concatenate([x[:shared], y[: len(y) - shared]])),
    )


def problem_of(settings: Mapping[str, Any], folder: Path) -> Problem:
    """Return the anchors, pools and test items of a cell.

    Raises:
        InputError: the data set is unknown, absent or too small.
    """
    x, y = load_dataset(settings["data"], folder).read()
    return make_problem(x, y, split_of(settings, len(x)))


def method_of(settings: Mapping[str, Any]) -> Method:
    """Return the cell's method with the settings of its schedule."""
    (method,) = find_methods([settings["method"]])
    if isinstance(method.settings, Config):
        # A query bank is not used here, and would be most of a stored model.
        plain = dataclasses.replace(method.settings, bank_size=0)
        method = dataclasses.replace(method, settings=plain)
    if settings["schedule"] == "full":
        return method
    short = dataclasses.replace(method.settings, **method.short)
    if isinstance(short, Config):
        if short.recipe == "refined":
            # Its students have the dimension of what they start from.
            return dataclasses.replace(method, settings=short)
        gamma = GAMMAS.get(settings["data"], GAMMA)
        short = dataclasses.replace(short, gamma=gamma, eta=ETA)
    if hasattr(short, "distillation"):
        students = dataclasses.replace(short.distillation, dim=SHORT_DIM)
        short = dataclasses.replace(short, distillation=students)
    return dataclasses.replace(method, settings=short)


def model_folder(settings: Mapping[str, Any], out: Path) -> Path:
    """Return where a fit is kept; other settings than the fit's do not matter."""
    own = {name: settings[name] for name in SETTINGS}
    file = cells.cell_path(out / MODELS, cells.Cell(EXPERIMENT, own))
    return file.with_suffix("")


def scorer_of(settings: Mapping[str, Any], problem: Problem, out: Path) -> Scorer:
    """Return the cell's fitted method; it is fitted and stored where it is not there.

    Raises:
        InputError: the method cannot run on such data.
    """
    folder = model_folder(settings, out)
    if folder.is_dir():
        return load_scorer(folder)
    method, seed = method_of(settings), settings["seed"]
    chosen = choose_settings(method, problem, method.settings, seed=seed)
    scorer = method.fit(
        problem.anchors,
        problem.pools,
        settings=chosen.settings,
        key=jax.random.key(seed),
    )
    scorer.save(folder)
    return load_scorer(folder)


def recalls(found: Mapping[str, Retrieval]) -> dict[str, float]:
    """Return both directions' recalls, ranks and hubness, and the mean recall@10."""
    each = {way: direction_metrics(retrieval) for way, retrieval in found.items()}
    values = {f"{way}/{name}": own[name] for way, own in each.items() for name in KEPT}
    tens = [own["recall@10"] for own in each.values()]
    return values | {"mean/recall@10": math.fsum(tens) / len(tens)}


def run(settings: Mapping[str, Any], *, folder: Path, out: Path) -> dict[str, float]:
    """Return the test recalls of a cell's fit, and the rows that its pools had."""
    problem = problem_of(settings, folder)
    scorer = scorer_of(settings, problem, out)
    sizes = {"pool_x": len(problem.pools.x), "pool_y": len(problem.pools.y)}
    return recalls(score(scorer, problem)) | sizes
