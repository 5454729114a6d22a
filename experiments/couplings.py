"""What Figures 8 to 10 share: a coupling's plan and its students on the same rows.

A coupling is solved twice: between the test items of both sides, whose plan ranks them
(as Figure 4 does), and between random rows of the pools, the same for all couplings,
whose plan is distilled; the students rank the same test items. Only the cost or the
structure term differs: eta, students, schedule and seeds do not. Cells of the three
figures are shared where their settings agree.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from results import COLOURS, Options, mean_and_deviation

from anchordot_jax import InputError
from anchordot_jax.baselines.plans import couplings
from anchordot_jax.baselines.plans.couplings import Plan
from anchordot_jax.baselines.plans.distil import distil_plan
from anchordot_jax.baselines.plans.settings import (
    BridgeSettings,
    FusedSettings,
    KeypointSettings,
)
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.comparison.cell import score
from anchordot_jax.comparison.named import named_problem
from anchordot_jax.config import DistillationConfig
from anchordot_jax.costs.bridge import bridge_cost
from anchordot_jax.evaluation.retrieval import Retrieval, direction_metrics
from anchordot_jax.evaluation.score_matrix import retrieve_scores
from anchordot_jax.runs import cells

NAME = "couplings"
ETA = 0.02
GAMMAS = {"chebi20": 1.0, "chebi20-fp": 1.0, "chebi20-full": 1.0}
"""The paper's Table 9; 0.75 for other data."""
LEVELS = ("plan", "students")
METRICS = ("recall@1", "recall@5", "recall@10", "hubness_skewness@10")

Settings = BridgeSettings | KeypointSettings | FusedSettings


@dataclasses.dataclass(frozen=True)
class Couplings(Options):
    """What the three figures are told."""

    data: tuple[str, ...] = ("flickr8k", "chebi20")
    """Data sets by name."""
    anchors: int = 500
    """N."""
    seeds: int = 3
    pool: int = 1000
    """Random rows of each pool that are coupled and distilled."""
    epochs: int = 100
    """Of the students, in chunks of up to 2,000 rows."""
    full: bool = False
    """The paper's schedule and seeds and up to 10,000 rows of each pool (2,000 in
    Figure 10), in the place of --pool, --epochs and --seeds."""

    def sized(self, *, full_pool: int = 10_000) -> "Couplings":
        """Return the options with the sizes that --full asks for."""
        if not self.full:
            return self
        return dataclasses.replace(self, pool=full_pool, epochs=200, seeds=5)


def grid(
    args: Couplings,
    coupling: str,
    *,
    etas: Sequence[float] = (ETA,),
    alphas: Sequence[float | None] = (None,),
    taus: Sequence[float | str | None] = (None,),
    students: bool = True,
) -> list[cells.Cell]:
    """Return a coupling's cells.

    Args:
        args: data sets, sizes, seeds.
        coupling: "profile", AnchorDOT's own; "bridge"; "keypoint"; or "fused".
        etas: epsilon over the median cost.
        alphas: weights of the linear term, of "fused" alone.
        taus: temperatures, of "keypoint" alone; auto: chosen by held-out anchors.
        students: whether to distil the plan.
    """
    return cells.grid(
        NAME,
        data=args.data,
        anchors=[args.anchors],
        pool=[args.pool],
        epochs=[args.epochs if students else 0],
        coupling=[coupling],
        eta=etas,
        alpha=alphas,
        tau=taus,
        seed=range(args.seeds),
    )


def run(settings: Mapping[str, Any], *, folder: Path) -> dict[str, Any]:
    """Return recalls and skewness of the plan and, with epochs, of its students."""
    problem = named_problem(
        settings["data"], folder, anchors=settings["anchors"], seed=settings["seed"]
    )
    key_pools, key_tau, key_students = jax.random.split(
        jax.random.key(settings["seed"]), 3
    )
    pools = couplings.limit_pools(problem.pools, settings["pool"], key=key_pools)
    chosen = _settings(settings)
    if isinstance(chosen, KeypointSettings) and chosen.tau == "auto":
        chosen, _ = couplings.choose_tau(
            problem.anchors, pools, settings=chosen, key=key_tau
        )
    tests = Pools(problem.test_x, problem.test_y)
    found = plan_of(problem.anchors, tests, chosen)
    log_plan = np.asarray(found.log_plan)
    result: dict[str, Any] = {
        "tau_used": getattr(chosen, "tau", None),
        "plan/converged": found.facts["converged"],
        **_metrics(
            "plan",
            {
                "x2y": retrieve_scores(log_plan, problem.positives_x2y),
                "y2x": retrieve_scores(log_plan.T, problem.positives_y2x),
            },
        ),
    }
    if not settings["epochs"]:
        return result
    between = plan_of(problem.anchors, pools, chosen)
    model = distil_plan(
        settings["coupling"],
        problem.anchors,
        pools,
        between.log_plan,
        settings=chosen,
        distillation_config=chosen.distillation,
        key=key_students,
    )
    return (
        result
        | {"students/converged": between.facts["converged"]}
        | _metrics("students", score(model, problem))
    )


def _settings(settings: Mapping[str, Any]) -> Settings:
    """Return the coupling's settings of a cell."""
    coupling, epochs = settings["coupling"], settings["epochs"]
    shared: dict[str, Any] = {
        "eta": settings["eta"],
        "pool_limit": None,
        "distillation": DistillationConfig(
            epochs=max(epochs, 1), warmup_steps=min(200, max(epochs, 1))
        ),
    }
    if coupling == "bridge":
        return BridgeSettings(**shared)
    if coupling == "keypoint":
        return KeypointSettings(tau=settings["tau"], **shared)
    if coupling not in ("profile", "fused"):
        raise InputError(f"There is no coupling {coupling!r}.")
    return FusedSettings(
        alpha=1.0 if coupling == "profile" else settings["alpha"],
        gamma=GAMMAS.get(settings["data"], 0.75),
        **shared,
    )


def plan_of(anchors: Anchors, pools: Pools, settings: Settings) -> Plan:
    """Return the plan between the rows of both sides.

    Fused Gromov-Wasserstein with alpha = 1 is AnchorDOT's own coupling.
    """
    if isinstance(settings, BridgeSettings):
        distances = couplings.anchor_distances(anchors, pools)
        cost = bridge_cost(*distances, own_mean=settings.own_mean)
        return couplings.solve_plan(cost, settings)
    if isinstance(settings, KeypointSettings):
        return couplings.keypoint_plan(anchors, pools, settings)
    return couplings.fused_plan(anchors, pools, settings)


def _metrics(level: str, ways: Mapping[str, Retrieval]) -> dict[str, float]:
    """Return the metrics of both ways, and the mean of both."""
    found = {way: direction_metrics(retrieval) for way, retrieval in ways.items()}
    result = {
        f"{level}/{way}/{name}": own[name]
        for way, own in found.items()
        for name in METRICS
    }
    means = {
        f"{level}/{name}": float(np.mean([own[name] for own in found.values()]))
        for name in METRICS
    }
    return result | means


def draw_bars(
    axes: Any, records: Sequence[Mapping[str, Any]], data: str, metric: str
) -> None:
    """Draw one metric of each coupling, plan and students, both ways."""
    scale = 100 if metric.startswith("recall") else 1
    places = [(level, way) for level in LEVELS for way in ("x2y", "y2x")]
    names = list(dict.fromkeys(r["settings"]["coupling"] for r in records))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        found = [
            mean_and_deviation(records, ("data", "coupling"), f"{level}/{way}/{metric}")
            for level, way in places
        ]
        known = [
            (i, own[data, name]) for i, own in enumerate(found) if (data, name) in own
        ]
        axes.bar(
            [i + width * number for i, _ in known],
            [scale * mean for _, (mean, _) in known],
            width,
            yerr=[scale * deviation for _, (_, deviation) in known],
            color=COLOURS[number],
            label=name,
            error_kw={"linewidth": 0.8},
        )
    labels = [f"{level}\n{way}" for level, way in places]
    axes.set_xticks(
        [i + 0.4 - width / 2 for i in range(len(places))], labels, fontsize=7
    )
    axes.margins(y=0.25)
    shown = "recall@10, %" if scale == 100 else "skewness of $N_{10}$"
    axes.set_title(f"{data}: {shown}", fontsize=8)


def draw_sweep(
    axes: Any,
    records: Sequence[Mapping[str, Any]],
    data: str,
    axis: str,
    *,
    label: str,
    number: int = 0,
) -> None:
    """Draw the plan's recall@10, mean of both ways, over one setting."""
    found = mean_and_deviation(records, ("data", axis), "plan/recall@10")
    points = sorted((key[1], *value) for key, value in found.items() if key[0] == data)
    if points:
        values, means, deviations = (
            np.array(column) for column in zip(*points, strict=True)
        )
        axes.errorbar(
            values,
            100 * means,
            100 * deviations,
            color=COLOURS[number],
            marker="os^D"[number],
            label=label,
            linewidth=1,
        )
        axes.set_xscale("log")
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.set_xticks([], minor=True)
    axes.set_xlabel(axis, fontsize=8)
    axes.set_title(f"{data}: plan's recall@10, %", fontsize=8)


def print_means(records: Sequence[Mapping[str, Any]], by: Sequence[str]) -> None:
    """Print recall@10 (%) and skewness of plan and students, mean of both ways."""
    for level in LEVELS:
        recalls = mean_and_deviation(records, by, f"{level}/recall@10")
        skews = mean_and_deviation(records, by, f"{level}/hubness_skewness@10")
        for key, (mean, deviation) in recalls.items():
            print(
                f"{level:9}",
                *(f"{value!s:10}" for value in key),
                f"R@10 {100 * mean:.1f} ({100 * deviation:.1f}), "
                f"skewness {skews[key][0]:.2f}",
            )
