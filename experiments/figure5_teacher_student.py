"""Figure 5: recall of the plan, the teacher, and of the students that learnt from it.

    python experiments/figure5_teacher_student.py --data flickr8k chebi20 \
        --data-folder ../shared/data

Three ways to find the partners of 400 test items. `plan-test`: the plan of the test
items alone; `plan-pools`: the plan of the pools with the test items among them, of
which the test items' block is ranked; both are transductive, they see all test items at
once. `student`: the students, which see no test item before. The paper does not say
which plan its teacher is, and prints no number. Expected here: the students keep most
of the plan's recall.

Default: N = 100 and 500, pools of 1,000, 3 seeds, the short schedule, about 5 minutes
on 2 CPU cores, students shared with figure 2. `--full`: all pool rows, full schedule.
"""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fits
import fits_together
import jax
import numpy as np
import tyro
from results import (
    COLOURS,
    distinct,
    mean_and_deviation,
    new_figure,
    one_sentence,
    run_grid,
    save_figure,
    write_results,
)

from anchordot_jax import coordinate_maps, coordinates, fit_basis, solve_coupling
from anchordot_jax.comparison.cell import score
from anchordot_jax.comparison.problem import Problem
from anchordot_jax.coupling import log_plan
from anchordot_jax.evaluation.retrieval import Retrieval
from anchordot_jax.evaluation.score_matrix import retrieve_scores
from anchordot_jax.geometry import cost_block, sampled_median_cost

NAME = "figure5_teacher_student"
MATCHERS = ("plan-test", "plan-pools", "student")
SHOWN = tuple(f"{way}/recall@{k}" for way in ("x2y", "y2x") for k in (1, 5, 10))


@dataclasses.dataclass(frozen=True)
class Args(fits.PooledOptions):
    """What to run."""

    data: tuple[str, ...] = ("flickr8k", "chebi20")
    anchors: tuple[int, ...] = (100, 500)


def rank_in_plan(
    problem: Problem, *, gamma: float, eta: float, pools: bool, seed: int
) -> dict[str, Retrieval]:
    """Return where test partners stand in the plan of the test items, or of all."""
    x, y = problem.test_x, problem.test_y
    if pools:
        x = np.concatenate([x, problem.pools.x])
        y = np.concatenate([y, problem.pools.y])
    bases = [fit_basis(rows) for rows in problem.anchors]
    z_x, z_y = coordinates(x, y, coordinate_maps(*bases, gamma))
    median = sampled_median_cost(z_x, z_y, key=jax.random.key(seed))
    solved = solve_coupling(z_x, z_y, eta * median)
    q, u = len(problem.test_x), len(problem.test_y)
    of_test = solved._replace(f=solved.f[:q], g=solved.g[:u])
    # The logarithm: masses underflow, and a row's factor leaves its order as it is.
    logs = np.asarray(log_plan(of_test, cost_block(z_x[:q], z_y[:u])))
    return {
        "x2y": retrieve_scores(logs, problem.positives_x2y),
        "y2x": retrieve_scores(logs.T, problem.positives_y2x),
    }


def run(settings: Mapping[str, Any], *, folder: Path, out: Path) -> dict[str, Any]:
    """Return the test recalls of one matcher, and the gamma and eta of its plan."""
    problem = fits.problem_of(settings, folder)
    model = fits.scorer_of(settings, problem, out)
    chosen = {name: float(model.info[name]) for name in ("gamma", "eta")}
    if settings["matcher"] == "student":
        return fits.recalls(score(model, problem)) | chosen
    found = rank_in_plan(
        problem,
        **chosen,
        pools=settings["matcher"] == "plan-pools",
        seed=settings["seed"],
    )
    return fits.recalls(found) | chosen


def main(args: Args) -> None:
    """Run what is missing, then write the table and the figure."""
    with one_sentence():
        fitted = fits.fit_grid(
            args,
            data=args.data,
            methods=["anchordot"],
            anchors=args.anchors,
            reserved=max(500, *args.anchors),
            pool=args.pools,
        )
    grid = [
        cell._replace(experiment=NAME, settings=cell.settings | {"matcher": matcher})
        for cell in fitted
        for matcher in MATCHERS
    ]
    call = functools.partial(run, folder=args.data_folder, out=args.out)
    records = run_grid(grid, call, args, grouping=fits_together.grouping(call, args))
    write_results(NAME, records, args.docs)
    draw(records, args.docs)


def draw(records: list[dict[str, Any]], docs: Path) -> None:
    """Draw a panel a data set and N: the recalls of the three ways; print them."""
    places = [
        (data, n)
        for data in distinct(records, "data")
        for n in distinct(records, "anchors")
    ]
    figure, panels = new_figure(len(places))
    for axes, (data, n) in zip(panels, places, strict=True):
        for number, matcher in enumerate(MATCHERS):
            values = [
                mean_and_deviation(records, ("data", "anchors", "matcher"), name).get(
                    (data, n, matcher), (0.0, 0.0)
                )
                for name in SHOWN
            ]
            axes.bar(
                [place + 0.27 * number for place in range(len(SHOWN))],
                [100 * mean for mean, _ in values],
                0.27,
                yerr=[100 * deviation for _, deviation in values],
                color=COLOURS[number],
                label=matcher,
                error_kw={"linewidth": 0.8},
            )
            shown = " ".join(f"{100 * mean:.1f}" for mean, _ in values)
            print(f"{data}, N = {n}, {matcher}: {shown} (R@1, 5, 10 of x2y, y2x, %)")
        axes.set_xticks(
            [place + 0.27 for place in range(len(SHOWN))],
            [name.replace("recall", "R") for name in SHOWN],
            rotation=30,
            fontsize=7,
        )
        axes.set_title(f"{data}, N = {n}", fontsize=8)
    panels[0].set_ylabel("recall, %", fontsize=8)
    panels[0].legend(fontsize=7)
    save_figure(figure, NAME, docs)


if __name__ == "__main__":
    main(tyro.cli(Args))
