"""How well test items find their partners: recall, hubs, examples."""

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from anchordot_jax import evaluation, matching, profiles
from anchordot_jax.baselines import tuning
from anchordot_jax.baselines.closed_form import ridge_cca
from anchordot_jax.baselines.protocol import Anchors, Method, Pools
from anchordot_jax.baselines.trained import contrastive
from anchordot_jax.errors import InputError
from anchordot_jax.evaluation import Interval, Retrieval
from anchordot_jax.evaluation.score_matrix import retrieve_scores
from anchordot_jax.report import figures
from anchordot_jax.report.blocks import (
    Block,
    Caution,
    Example,
    Examples,
    Figure,
    Section,
    Table,
    Text,
)
from anchordot_jax.report.context import Context, Data, TestItems
from anchordot_jax.report.items import unread_pictures
from anchordot_jax.selection import Selection
from anchordot_jax.selection_curve import USUAL_GAMMA

KS = (1, 5, 10)
DIRECTIONS = {"x2y": "x → y", "y2x": "y → x"}
SHOWN = 4
"""Queries shown a direction."""
ANSWERS = 5
METHODS: dict[str, Method] = {
    method.name: method for method in (*ridge_cca.METHODS, *contrastive.METHODS)
}


class Both(NamedTuple):
    """A retrieval both ways."""

    x2y: Retrieval
    y2x: Retrieval


Recalls = Mapping[str, Interval]
"""By key, `x2y/recall@1` and so on."""


def recall_section(context: Context) -> Section:
    """Return recalls with intervals, beside chance and the baselines."""
    test, title = context.test, "Recall on the test pairs"
    if test is None or context.data is None:
        return Section("recall", title, [Text(context.no_test), *_stored(context)])
    rows: dict[str, Recalls] = {"this model": _recalls(_cosine(test, test.x, test.y))}
    corrected = _corrected(context, test)
    if corrected is not None:
        rows["this model, hubs corrected"] = _recalls(corrected)
    rows["ridge CCA"] = _baseline(context, context.data, "ridge-cca")
    if context.contrastive or _stored_baseline(context, "contrastive") is not None:
        rows["contrastive"] = _baseline(context, context.data, "contrastive")
    chance = _chance(test)
    keys = [f"{way}/recall@{k}" for way in DIRECTIONS for k in KS]
    table = [
        [name, *(_interval(recalls[key]) for key in keys)]
        for name, recalls in rows.items()
    ]
    table.append(["chance", *(f"{100 * chance[key]:.1f}" for key in keys)])
    heads = ["recall, %"] + [f"{DIRECTIONS[w]} R@{k}" for w in DIRECTIONS for k in KS]
    n_x, n_y = len(test.x), len(test.y)
    blocks: list[Block] = [
        *(Caution(text) for text in (*_at_chance(rows, chance), *_behind(rows))),
        Table(
            f"Queries find their partner among the first k; {n_x} items of x, {n_y} of "
            f"y. In brackets the 95 % bootstrap interval over queries",
            heads,
            table,
        ),
    ]
    for way, label in DIRECTIONS.items():
        key = f"{way}/recall@10"
        drawn = {name: _percent(recalls[key]) for name, recalls in rows.items()}
        svg = figures.intervals(
            drawn, x_label=f"{label}: recall@10, %", rule=100 * chance[key]
        )
        means = ", ".join(f"{name} {mean:.1f}" for name, (mean, _, _) in drawn.items())
        blocks.append(
            Figure(
                f"recall-{way}",
                svg,
                f"{label}: recall@10 in %, with 95 % intervals.",
                f"{label} recall@10 in %: {means}; chance {100 * chance[key]:.1f}.",
            )
        )
    if "contrastive" not in rows:
        blocks.append(Text("Contrastive training beside it: --contrastive."))
    blocks.append(
        Text(
            "The intervals say how the figures would vary with other test items; "
            "other anchors move them too. Ridge CCA is fitted to the anchors alone, "
            "its ridge chosen on held-out anchors."
        )
    )
    return Section("recall", title, blocks)


def _stored(context: Context) -> list[Block]:
    """Return the recalls that the fit stored, where the files are gone."""
    metrics = (context.run.load_result("test") or {}).get("metrics")
    keys = [f"{way}/recall@{k}" for way in DIRECTIONS for k in KS]
    if not isinstance(metrics, dict) or not all(key in metrics for key in keys):
        return []
    if not all(isinstance(metrics[key], int | float) for key in keys):
        raise InputError(
            f"{context.run.path / 'results/test.json'} does not hold a fit's recalls; "
            f"delete it for a report without them."
        )
    rows = [[key, f"{100 * metrics[key]:.1f}"] for key in keys]
    return [Table("Stored by the fit", ["recall", "%"], rows)]


def _at_chance(rows: Mapping[str, Recalls], chance: Mapping[str, float]) -> list[str]:
    """Return where the model is not above chance beyond doubt, in sentences."""
    said = []
    for way, label in DIRECTIONS.items():
        key = f"{way}/recall@10"
        own = rows["this model"][key]
        if own.low <= chance[key]:
            said.append(
                f"The model's recall@10 {label} may be chance: its 95 % interval is "
                f"{100 * own.low:.1f} to {100 * own.high:.1f} %, and chance is "
                f"{100 * chance[key]:.1f} %."
            )
    return said


def _behind(rows: Mapping[str, Recalls]) -> list[str]:
    """Return where a baseline is ahead, in sentences."""
    means = {
        name: float(np.mean([recall.mean for recall in recalls.values()]))
        for name, recalls in rows.items()
    }
    own = max(mean for name, mean in means.items() if name.startswith("this"))
    return [
        f"{name} is ahead of the model on these test pairs: mean recall "
        f"{100 * mean:.1f} % against {100 * own:.1f} %."
        for name, mean in means.items()
        if not name.startswith("this") and mean > own
    ]


def hubness_section(context: Context) -> Section:
    """Return how often each gallery item is in a top 10, before and after."""
    test, title = context.test, "Hubs, before and after"
    if test is None or context.data is None:
        return Section("hubness", title, [Text(context.no_test)])
    gamma = context.chosen.gamma if isinstance(context.chosen, Selection) else None
    gamma = USUAL_GAMMA if gamma is None else gamma
    known = {
        "profiles, untrained": _cosine(
            test, *_profiles(context.data, test, gamma, center=context.config.center)
        ),
        "model": _cosine(test, test.x, test.y),
    }
    corrected = _corrected(context, test)
    if corrected is not None:
        known["hubs corrected"] = corrected
    blocks: list[Block] = []
    rows = []
    for way, label in DIRECTIONS.items():
        counts = {name: getattr(both, way).k_occurrence for name, both in known.items()}
        skews = {name: evaluation.skewness(own) for name, own in counts.items()}
        svg = figures.histograms(
            counts, x_label="times in a query's top 10", y_label="gallery items"
        )
        said = ", ".join(f"{name} {value:.2f}" for name, value in skews.items())
        blocks.append(
            Figure(
                f"hubness-{way}",
                svg,
                f"{label}: how often each gallery item is among a query's first 10.",
                f"{label}: histogram of the 10-occurrence. Skewness: {said}.",
            )
        )
        rows += [
            [f"{label}, {name}", f"{skews[name]:.2f}", str(int((own == 0).sum()))]
            for name, own in counts.items()
        ]
    heads = ["ranking", "skewness", "items never found"]
    caption = "Hubness: 0 is even; large is a few items being everybody's match"
    blocks.append(Table(caption, heads, rows))
    blocks.append(Text(f"Profiles: of the anchors, gamma {gamma:g}, no training."))
    return Section("hubness", title, blocks)


def examples_section(context: Context) -> Section:
    """Return some queries with their nearest items, from well found to badly."""
    test, data, title = context.test, context.data, "Examples of retrieval"
    if test is None or data is None:
        return Section("examples", title, [Text(context.no_test)])
    blocks: list[Block] = [
        Text(
            f"{SHOWN} test queries a direction, at even steps from the best found to "
            f"the worst; the first {ANSWERS} answers by the cosine."
        )
    ]
    if not (data.viewer_x.known or data.viewer_y.known):
        blocks.append(
            Text(
                "Items are named by id or row. --texts-x, --texts-y, --images and "
                "--smiles show what they are."
            )
        )
    paired = test.paired
    rows_x, rows_y = paired.query_rows, paired.gallery_rows
    ways = {
        "x2y": (test.x, test.y, paired.positives_x2y, data.viewer_x, data.viewer_y),
        "y2x": (test.y, test.x, paired.positives_y2x, data.viewer_y, data.viewer_x),
    }
    rows = {"x2y": (rows_x, rows_y), "y2x": (rows_y, rows_x)}
    both = _cosine(test, test.x, test.y)
    found: list[Examples] = []
    for way, (queries, gallery, positives, asked, answering) in ways.items():
        ranks = evaluation.expected_rank(getattr(both, way))
        shown = _even_steps(ranks)
        top = matching.top_k(queries[shown], gallery, ANSWERS)
        examples = []
        for query, indices, scores in zip(shown, top.indices, top.scores, strict=True):
            right = set(positives[query].tolist())
            answers = [
                answering.item(
                    int(rows[way][1][j]), note=f"cosine {score:.2f}", right=j in right
                )
                for j, score in zip(indices, scores, strict=True)
            ]
            own = asked.item(int(rows[way][0][query]))
            title_of = f"Right answer at rank {ranks[query]:.0f} of {len(gallery)}"
            examples.append(Example(title_of, own, answers))
        found.append(Examples(DIRECTIONS[way], examples))
    return Section("examples", title, [*blocks, *unread_pictures(found), *found])


def _even_steps(ranks: np.ndarray) -> np.ndarray:
    order = np.argsort(ranks, kind="stable")
    steps = np.linspace(0, len(order) - 1, min(SHOWN, len(order)))
    return np.asarray(order[np.round(steps).astype(int)])


def _cosine(test: TestItems, x: np.ndarray, y: np.ndarray) -> Both:
    return Both(
        evaluation.retrieve(x, y, test.paired.positives_x2y),
        evaluation.retrieve(y, x, test.paired.positives_y2x),
    )


def _unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(profiles.normalize(rows))


def _corrected(context: Context, test: TestItems) -> Both | None:
    """Return the retrieval by the model's own banks, where it keeps some."""
    if test.offsets_x2y is None or test.offsets_y2x is None:
        return None
    paired, scale = test.paired, context.model.bank_scale
    return Both(
        evaluation.retrieve(
            test.x,
            test.y,
            paired.positives_x2y,
            scale=scale,
            offsets=test.offsets_x2y,
        ),
        evaluation.retrieve(
            test.y,
            test.x,
            paired.positives_y2x,
            scale=scale,
            offsets=test.offsets_y2x,
        ),
    )


def _profiles(
    data: Data, test: TestItems, gamma: float, *, center: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the test items' coordinates whose product is the profiles' cosine."""
    fit = data.known.fit
    maps = profiles.coordinate_maps(
        profiles.fit_basis(fit.anchors_x, center=center),
        profiles.fit_basis(fit.anchors_y, center=center),
        gamma,
    )
    x, y = profiles.coordinates(test.raw_x, test.raw_y, maps)
    return np.asarray(x), np.asarray(y)


def _baseline(context: Context, data: Data, name: str) -> Recalls:
    """Return a baseline's recalls, fitted once and kept in the run's results."""
    stored = _stored_baseline(context, name)
    if stored is not None:
        return stored
    fit, test = data.known.fit, data.test
    if test is None:
        raise ValueError("a baseline is scored on test items")
    anchors = Anchors(_unit(fit.anchors_x), _unit(fit.anchors_y))
    pools = Pools(*map(_unit, fit.whole_pools("A baseline")))
    method, key = METHODS[name], jax.random.key(context.config.seed)
    chosen = tuning.choose(method, anchors, pools, settings=method.settings, key=key)
    model = method.fit(anchors, pools, settings=chosen.settings, key=key)
    scores = model.scores(test.raw_x, test.raw_y)
    recalls = _recalls(
        Both(
            retrieve_scores(scores.x2y, test.paired.positives_x2y),
            retrieve_scores(scores.y2x, test.paired.positives_y2x),
        )
    )
    values: dict[str, Any] = {name: list(own) for name, own in recalls.items()}
    # A run that cannot be written to has its report all the same, only not kept.
    with contextlib.suppress(OSError):
        context.run.save_result(f"report-{name}", {"method": name, "recalls": values})
    return recalls


def _stored_baseline(context: Context, name: str) -> Recalls | None:
    """Return a baseline's stored recalls; None where there are none, or damaged."""
    try:
        stored = context.run.load_result(f"report-{name}") or {}
    except InputError:
        return None
    recalls = stored.get("recalls")
    keys = [f"{way}/recall@{k}" for way in DIRECTIONS for k in KS]
    if not isinstance(recalls, dict) or not all(
        _is_share(recalls.get(k)) for k in keys
    ):
        return None
    return {key: Interval(*recalls[key]) for key in keys}


def _is_share(values: Any) -> bool:
    """Return whether values are an interval of a recall: three numbers of 0 to 1."""
    return (
        isinstance(values, list)
        and len(values) == len(Interval._fields)
        and all(isinstance(v, int | float) and 0 <= v <= 1 for v in values)
    )


def _recalls(both: Both) -> Recalls:
    return {
        f"{way}/recall@{k}": evaluation.bootstrap_mean(
            evaluation.hits_at_k(getattr(both, way), k)
        )
        for way in DIRECTIONS
        for k in KS
    }


def _chance(test: TestItems) -> dict[str, float]:
    """Return the recalls of a random order, for each query's number of partners."""
    found = {}
    for way, positives, gallery in (
        ("x2y", test.paired.positives_x2y, test.y),
        ("y2x", test.paired.positives_y2x, test.x),
    ):
        counts = (positives >= 0).sum(axis=1)
        for k in KS:
            own = [evaluation.chance_recall(len(gallery), int(c), k) for c in counts]
            found[f"{way}/recall@{k}"] = float(np.mean(own))
    return found


def _percent(interval: Interval) -> tuple[float, float, float]:
    return 100 * interval.mean, 100 * interval.low, 100 * interval.high


def _interval(interval: Interval) -> str:
    mean, low, high = _percent(interval)
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"
