"""One method on one problem with one seed: choose, fit, score."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import jax

from anchordot_jax import evaluation
from anchordot_jax.baselines import tuning
from anchordot_jax.baselines.protocol import Method, Scorer
from anchordot_jax.comparison.memory import peak_memory
from anchordot_jax.comparison.problem import Problem
from anchordot_jax.errors import InputError
from anchordot_jax.evaluation.retrieval import Retrieval, direction_metrics
from anchordot_jax.evaluation.score_matrix import retrieve_scores
from anchordot_jax.model import AlignedModel

SCHEMA = 1


def run_cell(
    method: Method,
    problem: Problem,
    *,
    seed: int,
    short: bool = False,
    model: Path | None = None,
) -> dict[str, Any]:
    """Return one cell's result, JSON values.

    The settings are chosen by held-out anchors, the method is fitted on all anchors,
    and only then are the test items scored. `seconds/cpu` is the processor time of
    the choice and the fit, which other work on the machine changes little. `status` is
    "done"; "refused" where the method cannot run on such data, with the reason; or
    "failed".

    Args:
        method: what is run.
        problem: what it is given.
        seed: fixes every random draw of the method.
        short: whether to take the method's shorter schedule.
        model: folder to keep the fitted scorer in.
    """
    settings = settings_of(method, short=short)
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "method": method.name,
        "seed": seed,
        "problem": problem.digest(),
        "short": short and bool(method.short),
        "settings": dataclasses.asdict(settings),
    }
    start, start_cpu = time.perf_counter(), time.process_time()
    try:
        with peak_memory() as peak:
            chosen = choose_settings(method, problem, settings, seed=seed)
            tuned = time.perf_counter()
            scorer = method.fit(
                problem.anchors,
                problem.pools,
                settings=chosen.settings,
                key=jax.random.key(seed),
            )
            fitted, cpu = time.perf_counter(), time.process_time() - start_cpu
    except InputError as error:
        return record | {"status": "refused", "reason": str(error)}
    except Exception as error:  # noqa: BLE001
        # Whatever a method dies of, the others are still worth having.
        reason = f"{type(error).__name__}: {error}"
        return record | {"status": "failed", "reason": reason}
    if model is not None:
        scorer.save(model)
    start_scoring = time.perf_counter()
    retrievals = score(scorer, problem)
    scored = time.perf_counter()
    return record | {
        "status": "done",
        "chosen": dataclasses.asdict(chosen.settings),
        "tuned": list(method.grid) + list(method.tuned),
        "n_heldout": chosen.n_heldout,
        "curve": [
            {**dataclasses.asdict(c.settings), **_numbers(c)} for c in chosen.curve
        ],
        "facts": {k: v for k, v in scorer.info.items() if k != "settings"},
        "seconds": {
            "tuning": tuned - start,
            "fit": fitted - tuned,
            "scoring": scored - start_scoring,
            "cpu": cpu,
        },
        "peak_memory": peak.bytes,
        "metrics": {
            f"{way}/{name}": value
            for way, retrieval in retrievals.items()
            for name, value in direction_metrics(retrieval).items()
        },
        "ranks": {
            way: evaluation.expected_rank(retrieval).tolist()
            for way, retrieval in retrievals.items()
        },
    }


def cell_line(result: dict[str, Any], *, known: bool = False) -> str:
    """Return a result in one line: recall@10 both ways, or why there is none.

    Args:
        result: what `run_cell` returned.
        known: whether it was there already.
    """
    line = f"seed {result['seed']}  {result['method']:28}"
    if result["status"] != "done":
        return f"{line} {result['status']}: {result['reason']}"
    metrics, seconds = result["metrics"], result["seconds"]
    ten = [f"{100 * metrics[f'{way}/recall@10']:.1f}" for way in ("x2y", "y2x")]
    last = "there already" if known else f"{seconds['tuning'] + seconds['fit']:.1f} s"
    return f"{line} R@10 {ten[0]} and {ten[1]} %, {last}"


def settings_of(method: Method, *, short: bool) -> Any:
    """Return the settings that a method starts from."""
    if not short:
        return method.settings
    return dataclasses.replace(method.settings, **method.short)


def score(scorer: Scorer, problem: Problem) -> dict[str, Retrieval]:
    """Return where each test item's partner stands, both ways."""
    if not isinstance(scorer, AlignedModel):
        scores = scorer.scores(problem.test_x, problem.test_y)
        return {
            "x2y": retrieve_scores(scores.x2y, problem.positives_x2y),
            "y2x": retrieve_scores(scores.y2x, problem.positives_y2x),
        }
    x, y = scorer.embed_x(problem.test_x), scorer.embed_y(problem.test_y)
    return {
        "x2y": evaluation.retrieve(x, y, problem.positives_x2y),
        "y2x": evaluation.retrieve(y, x, problem.positives_y2x),
    }


def choose_settings(
    method: Method, problem: Problem, settings: Any, *, seed: int
) -> tuning.Choice:
    """Return the settings that held-out anchors choose; no test item is read."""
    key = jax.random.fold_in(jax.random.key(seed), 1)
    if method.choose is not None:
        chosen, n_heldout = method.choose(
            problem.anchors,
            problem.pools,
            settings=settings,
            key=jax.random.key(seed),
        )
        return tuning.Choice(chosen, (), n_heldout)
    return tuning.choose(
        method, problem.anchors, problem.pools, settings=settings, key=key
    )


def _numbers(candidate: tuning.Candidate) -> dict[str, float]:
    return {
        "log_rank": candidate.log_rank,
        "standard_error": candidate.standard_error,
    }
