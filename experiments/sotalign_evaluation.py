"""SOTAlign's own evaluation: retrieval, zero-shot classes, mutual neighbours, noise.

    python experiments/sotalign_evaluation.py --data flickr8k chebi20 \
        --data-folder ../shared/data

Four parts, which share their cells:

- retrieval: recall among the 400 test pairs;
- neighbours: the share of 10 nearest neighbours that both sides have in common, of the
  frozen encoders (as SOTAlign's probe, on up to 1,024 pairs) and of the test pairs
  before and after alignment;
- noise: a share of the anchors is mismatched before anything is fitted or chosen
  (SOTAlign's P_NOISE corrupts its teacher's pairs alone: the row "teacher only");
- pools: the unpaired pools are cut to fewer rows.

Zero-shot classification runs where classes exist: `--classes imagenet7` with models of
a data set of the same encoders, and on openclipart, whose folders are classes. No
prompt can be encoded there, so that a class is the mean of its titles in the y pool;
the labels of pictures are never seen.

SOTAlign's README prints no figures; AnchorDOT's Table 1 has a SOTAlign row, which
`table1_image_text.py` prints. Expected here: ridge CCA close to SOTAlign, and all
methods falling with the noise, the contrastive fit by most.

With the default sizes about 40 minutes on 2 CPU cores, most of them SOTAlign's: pools
of 1,000 rows, shorter schedules, 3 seeds. `--full` takes whole pools, the methods' own
schedules and 5 seeds, most of a day on a CPU.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import tyro
from findings import Finding, difference, judge, write_findings
from results import (
    COLOURS,
    MARKERS,
    Options,
    mean_and_deviation,
    new_figure,
    one_sentence,
    run_grid,
    save_figure,
    write_results,
)

from anchordot_jax import Config, DistillationConfig, InputError, load_dataset
from anchordot_jax.baselines.plans.couplings import limit_pools
from anchordot_jax.baselines.protocol import Method, Scorer
from anchordot_jax.baselines.registry import METHODS, find_methods
from anchordot_jax.baselines.sotalign.noise import corrupt_pairs
from anchordot_jax.comparison.cell import choose_settings, score, settings_of
from anchordot_jax.comparison.named import named_problem
from anchordot_jax.comparison.problem import Problem
from anchordot_jax.data.datasets import DATASETS
from anchordot_jax.data.splits import protocol_split
from anchordot_jax.evaluation import (
    class_embeddings,
    classify,
    mutual_knn_alignment,
)
from anchordot_jax.evaluation.retrieval import direction_metrics
from anchordot_jax.model import AlignedModel
from anchordot_jax.runs import cells

NAME = "sotalign_evaluation"
COMPARED = ("sotalign", "ridge-cca", "anchordot", "anchordot-refined", "contrastive")
TEACHER_ONLY = "sotalign, teacher only"
NOISES = (0.0, 0.1, 0.25, 0.5)
POOLS = (100, 300)
"""Rows of each pool, beside the largest."""
LARGEST = 1000
PROBED = 1024
NEIGHBOURS = 10
SHORT_EPOCHS = 100
Part = Literal["retrieval", "noise", "pools"]


@dataclasses.dataclass(frozen=True)
class Args(Options):
    """What to run."""

    data: tuple[str, ...] = ("flickr8k", "chebi20")
    """Data sets by name; noise and pools run on the first."""
    anchors: int = 500
    """N."""
    methods: tuple[str, ...] = COMPARED
    """Names of `anchordot compare --methods list`."""
    parts: tuple[Part, ...] = ("retrieval", "noise", "pools")
    pool: int = LARGEST
    """Rows of each pool at most."""
    classes: str = ""
    """A data set of classes, such as imagenet7, to classify beside."""
    seeds: int = 3
    full: bool = False
    """Whole pools, whole schedules and 5 seeds, in the place of --pool and --seeds."""


def run(settings: Mapping[str, Any], *, folder: Path) -> dict[str, Any]:
    """Return recalls, mutual neighbours and, where there are classes, accuracies."""
    data, seed = settings["data"], settings["seed"]
    problem = named_problem(data, folder, anchors=settings["anchors"], seed=seed)
    key_pools, key_noise = jax.random.split(jax.random.key(seed))
    if settings["pool"]:
        limited = limit_pools(problem.pools, settings["pool"], key=key_pools)
        problem = problem._replace(pools=limited)
    method, fixed = _method(settings)
    if settings["method"] != TEACHER_ONLY:
        wrong = corrupt_pairs(problem.anchors, settings["noise"], key=key_noise)
        problem = problem._replace(anchors=wrong)
    scorer = _fit(method, fixed, problem, seed=seed)
    result = _retrieval(scorer, problem) | probe(data, folder)
    if isinstance(scorer, AlignedModel):
        result |= _neighbours(scorer, problem)
        result |= _classified(scorer, settings, folder)
    return result


def _method(settings: Mapping[str, Any]) -> tuple[Method, Any]:
    """Return a cell's method and the settings that it starts from."""
    teacher_only = settings["method"] == TEACHER_ONLY
    method = METHODS["sotalign" if teacher_only else settings["method"]]
    fixed = settings_of(method, short=settings["short"])
    if settings["short"] and isinstance(fixed, Config) and fixed.recipe == "paper":
        schedule = DistillationConfig(epochs=SHORT_EPOCHS, warmup_steps=SHORT_EPOCHS)
        fixed = dataclasses.replace(fixed, distillation=schedule)
    if teacher_only:
        fixed = dataclasses.replace(fixed, p_noise=settings["noise"])
    return method, fixed


def _fit(method: Method, fixed: Any, problem: Problem, *, seed: int) -> Scorer:
    """Return the method fitted with settings chosen by held-out anchors."""
    chosen = choose_settings(method, problem, fixed, seed=seed).settings
    return method.fit(
        problem.anchors, problem.pools, settings=chosen, key=jax.random.key(seed)
    )


def _retrieval(scorer: Scorer, problem: Problem) -> dict[str, Any]:
    found = {way: direction_metrics(own) for way, own in score(scorer, problem).items()}
    recalls = {
        f"{way}/recall@{k}": own[f"recall@{k}"]
        for way, own in found.items()
        for k in (1, 5, 10)
    }
    ten = [own["recall@10"] for own in found.values()]
    return recalls | {"recall@10": float(np.mean(ten))}


def _neighbours(model: AlignedModel, problem: Problem) -> dict[str, float]:
    """Return the mutual neighbours of the test pairs, before and after."""
    x, y = problem.test_x, problem.test_y
    return {
        "mutual_knn/before": mutual_knn_alignment(x, y, NEIGHBOURS),
        "mutual_knn/after": mutual_knn_alignment(
            model.embed_x(x), model.embed_y(y), NEIGHBOURS
        ),
    }


def probe(data: str, folder: Path) -> dict[str, float]:
    """Return the mutual neighbours of the frozen encoders, and those of chance."""
    x, y = load_dataset(data, folder).read()
    rows = np.random.default_rng(0).permutation(len(x))[:PROBED]
    return {
        "probe/pairs": len(rows),
        "probe/mutual_knn": mutual_knn_alignment(x[rows], y[rows], NEIGHBOURS),
        "probe/chance": NEIGHBOURS / (len(rows) - 1),
    }


def _classified(
    model: AlignedModel, settings: Mapping[str, Any], folder: Path
) -> dict[str, float]:
    """Return top-1 and top-5 accuracy where there are classes, and chance."""
    if settings["classes"]:
        loaded = load_dataset(settings["classes"], folder)
        if not DATASETS[settings["classes"]].classes:
            raise InputError(f"The data set {settings['classes']} has no classes.")
        prompts = loaded.y.read()
        return accuracies(
            model.embed_x(loaded.x.read(loaded.pairs[:, 0])),
            model.embed_y(prompts),
            loaded.pairs[:, 1],
        )
    if settings["data"] == "openclipart":
        return _folders(model, settings, folder)
    return {}


def _folders(
    model: AlignedModel, settings: Mapping[str, Any], folder: Path
) -> dict[str, float]:
    """Return the accuracies on clip art, whose classes are the drawings' folders."""
    loaded = load_dataset("openclipart", folder)
    x, y = loaded.read()
    names = [str(loaded.x.row_name(row)).split("/")[0] for row in range(len(x))]
    labels = np.unique(names, return_inverse=True)[1]
    split = protocol_split(
        len(x), seed=settings["seed"], anchors=settings["anchors"], test=400
    )
    # Few classes have no title in the pool: their test items are left out.
    known, prompts = np.unique(labels[split.pool_y], return_inverse=True)
    classes = class_embeddings(model.embed_y(y[split.pool_y]), prompts, len(known))
    tested = split.test_pairs[:, 0]
    kept = tested[np.isin(labels[tested], known)]
    return accuracies(
        model.embed_x(x[kept]), classes, np.searchsorted(known, labels[kept])
    )


def accuracies(
    items: np.ndarray, classes: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
    """Return top-1 and top-5 accuracy, beside what needs no model."""
    found = classify(items, classes, labels)
    return {
        "zero_shot/top1": found.top1,
        "zero_shot/top5": found.top5,
        "zero_shot/chance": 1 / len(classes),
        "zero_shot/most_frequent": float(found.counts.max() / len(labels)),
    }


def grids(args: Args) -> dict[Part, list[cells.Cell]]:
    """Return the cells of each part; those that parts have in common are the same."""
    pool, seeds = (0, 5) if args.full else (args.pool, args.seeds)
    axes = {
        "anchors": [args.anchors],
        "short": [not args.full],
        "classes": [args.classes],
        "seed": range(seeds),
    }
    first, methods = args.data[:1], args.methods
    teacher_only = [TEACHER_ONLY] if "sotalign" in methods else []
    with_pools = [m for m in methods if METHODS[m].needs.pools]
    sizes = [*(size for size in POOLS if not pool or size < pool), pool]

    def grid(data: Sequence[str], names: Sequence[str], **own: Any) -> list[cells.Cell]:
        return cells.grid(NAME, data=data, method=names, **own, **axes)

    every: dict[Part, list[cells.Cell]] = {
        "retrieval": grid(args.data, methods, noise=[0.0], pool=[pool]),
        "noise": [
            *grid(first, methods, noise=NOISES, pool=[pool]),
            *grid(first, teacher_only, noise=NOISES[1:], pool=[pool]),
        ],
        "pools": grid(first, with_pools, noise=[0.0], pool=sizes),
    }
    return {part: every[part] for part in args.parts}


def main(args: Args) -> None:
    """Run what is missing, then write table, figure and findings."""
    with one_sentence():
        find_methods(args.methods)
        if not args.data or not args.parts:
            raise InputError("Name at least one data set and one part.")
    parts = grids(args)
    paths = {
        part: [cells.cell_path(args.out, cell) for cell in grid]
        for part, grid in parts.items()
    }
    once = {
        path: cell
        for part, grid in parts.items()
        for path, cell in zip(paths[part], grid, strict=True)
    }
    records = run_grid(
        list(once.values()), functools.partial(run, folder=args.data_folder), args
    )
    write_results(NAME, records, args.docs)
    found = dict(zip(once, records, strict=True))
    own = {part: [found[path] for path in paths[part]] for part in parts}
    plot(own, args)
    print_tables(records, own.get("retrieval", []), args)
    write_findings(NAME, findings(own, args), args.docs)


def plot(own: Mapping[Part, list[dict[str, Any]]], args: Args) -> None:
    """Draw recall by method, over the noise, and over the pools' size."""
    drawn: list[tuple[Part, str]] = [("retrieval", data) for data in args.data]
    drawn += [("noise", args.data[0]), ("pools", args.data[0])]
    drawn = [(part, data) for part, data in drawn if part in own]
    figure, panels = new_figure(len(drawn), height=3.6)
    for axes, (part, data) in zip(panels, drawn, strict=True):
        if part == "retrieval":
            _draw_methods(axes, own[part], data, args.methods)
            continue
        axis = "noise" if part == "noise" else "pool"
        means = mean_and_deviation(own[part], ("method", axis), "recall@10")
        names = [*args.methods, *([TEACHER_ONLY] if part == "noise" else [])]
        for number, name in enumerate(names):
            # With no wrong pair the teacher's variant is SOTAlign itself.
            same = "sotalign" if name == TEACHER_ONLY else name
            points = sorted(
                (value, *found)
                for (method, value), found in means.items()
                if method == name or (method == same and value == 0 and axis == "noise")
            )
            if not points:
                continue
            # A pool of 0 rows stands for all of them: draw it as the largest.
            largest = 2 * max(value for value, _, _ in points)
            whole = axis == "pool"
            axes.errorbar(
                [largest if whole and not value else value for value, _, _ in points],
                [100 * mean for _, mean, _ in points],
                [100 * deviation for _, _, deviation in points],
                color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)],
                label=name,
                linewidth=1,
            )
        axes.set_title(f"{data}: recall@10, %", fontsize=8)
        label = "share of wrong pairs" if axis == "noise" else "rows of each pool"
        axes.set_xlabel(label, fontsize=8)
        axes.legend(fontsize=6)
    save_figure(figure, NAME, args.docs)


def _draw_methods(
    axes: Any, records: Sequence[Mapping[str, Any]], data: str, methods: Sequence[str]
) -> None:
    for side, way in enumerate(("x2y", "y2x")):
        means = mean_and_deviation(records, ("data", "method"), f"{way}/recall@10")
        known = [
            (i, means[data, m]) for i, m in enumerate(methods) if (data, m) in means
        ]
        axes.bar(
            [i + 0.4 * side for i, _ in known],
            [100 * mean for _, (mean, _) in known],
            0.4,
            yerr=[100 * deviation for _, (_, deviation) in known],
            color=COLOURS[side],
            label=way,
            error_kw={"linewidth": 0.8},
        )
    places = [i + 0.2 for i in range(len(methods))]
    axes.set_xticks(places, methods, rotation=30, fontsize=7, ha="right")
    axes.set_title(f"{data}: recall@10, %", fontsize=8)
    axes.legend(fontsize=7)


def print_tables(
    records: Sequence[Mapping[str, Any]],
    compared: Sequence[Mapping[str, Any]],
    args: Args,
) -> None:
    """Print the probe, and each method's recalls, neighbours and accuracies."""
    for data in args.data:
        probed = [
            r["result"]
            for r in records
            if r["status"] == "done" and r["settings"]["data"] == data
        ]
        if probed:
            print(
                f"{data}: frozen encoders, {probed[0]['probe/pairs']} pairs, mutual "
                f"{NEIGHBOURS}-NN {probed[0]['probe/mutual_knn']:.3f}, chance "
                f"{probed[0]['probe/chance']:.3f}"
            )
    names = [f"{way}/recall@{k}" for way in ("x2y", "y2x") for k in (1, 5, 10)]
    names += ["mutual_knn/before", "mutual_knn/after", "zero_shot/top1"]
    print("| data | method | " + " | ".join(names) + " |")
    print("| --- " * (len(names) + 2) + "|")
    means = {n: mean_and_deviation(compared, ("data", "method"), n) for n in names}
    for data, method in means[names[0]]:
        shown = [
            f"{100 * own[data, method][0]:.1f} ({100 * own[data, method][1]:.1f})"
            if (data, method) in own
            else "-"
            for own in means.values()
        ]
        print(f"| {data} | {method} | " + " | ".join(shown) + " |")


def findings(own: Mapping[Part, list[dict[str, Any]]], args: Args) -> list[Finding]:
    """Return what the parts that were run say of the papers' statements."""
    unit = "recall@10, points"
    found = []
    compared = (
        ("SOTAlign outperforms the linear map of its pairs.", "sotalign", "ridge-cca"),
        ("SOTAlign outperforms the contrastive fit.", "sotalign", "contrastive"),
        ("AnchorDOT outperforms SOTAlign.", "anchordot", "sotalign"),
    )
    for claim, first, second in compared:
        differences = [
            difference(
                own.get("retrieval", []),
                {"data": data, "method": first},
                {"data": data, "method": second},
                "recall@10",
                what=f"{data}: {first} less {second}",
                scale=100,
            )
            for data in args.data
        ]
        found.append(judge(claim, differences, stated="higher", unit=unit))
    noisy = [
        difference(
            own.get("noise", []),
            {"method": name, "noise": 0.25},
            {"method": name, "noise": 0.0},
            "recall@10",
            what=f"{args.data[0]}, {name}: a quarter of wrong pairs less none",
            scale=100,
        )
        for name in args.methods
    ]
    found.append(judge("Wrong pairs lower recall.", noisy, stated="lower", unit=unit))
    sizes = [record["settings"]["pool"] for record in own.get("pools", [])]
    if sizes:
        # 0 stands for whole pools.
        least = min(size for size in sizes if size)
        most = 0 if 0 in sizes else max(sizes)
        grown = [
            difference(
                own["pools"],
                {"method": name, "pool": most},
                {"method": name, "pool": least},
                "recall@10",
                what=f"{args.data[0]}, {name}: {most or 'all'} pool rows less {least}",
                scale=100,
            )
            for name in args.methods
        ]
        found.append(
            judge("Recall grows with the pools.", grown, stated="higher", unit=unit)
        )
    return [finding for finding in found if finding.differences]


if __name__ == "__main__":
    main(tyro.cli(Args))
