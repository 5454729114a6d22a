"""Methods times seeds: one result file a cell, finished ones skipped."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from anchordot_jax import dotted, files
from anchordot_jax.baselines.protocol import Method
from anchordot_jax.comparison.cell import SCHEMA, run_cell, settings_of
from anchordot_jax.comparison.problem import Problem
from anchordot_jax.errors import InputError

Report = Callable[[dict[str, Any], bool], None]
"""Told of each cell's result, and whether it was there already."""


def run_grid(
    methods: Sequence[Method],
    problem_of: Callable[[int], Problem],
    out: Path,
    *,
    seeds: Sequence[int],
    short: bool = False,
    keep_models: bool = False,
    report: Report | None = None,
) -> list[dict[str, Any]]:
    """Return every cell's result; what is not there yet is run and stored.

    The seeds are the outer loop, so that an interrupted comparison has whole seeds.

    Args:
        methods: what is compared.
        problem_of: seed -> anchors, pools and test items; one a seed for all methods.
        out: folder of the results.
        seeds: one problem and one run of each method a seed.
        short: whether the methods take their shorter schedules.
        keep_models: whether to save the scorer of each cell that is run, in
            `out/models/METHOD/seed-K`.
        report: told of each cell.

    Raises:
        InputError: the folder holds results of other data or settings.
    """
    files.check_writable(out)
    results = []
    for seed in seeds:
        problem = problem_of(seed)
        digest = problem.digest()
        for method in methods:
            path = out / "results" / method.name / f"seed-{seed}.json"
            known = _read_cell(path, method, digest, short=short)
            model = out / "models" / method.name / f"seed-{seed}"
            result = known or run_cell(
                method,
                problem,
                seed=seed,
                short=short,
                model=model if keep_models else None,
            )
            if known is None:
                files.write_json(path, result, indent=None)
            _check_same(result, digest)
            results.append(result)
            if report is not None:
                report(result, known is not None)
    return results


def stored_results(out: Path) -> Iterator[dict[str, Any]]:
    """Yield every stored result of a folder, by method and seed."""
    for path in sorted((out / "results").glob("*/seed-*.json")):
        yield files.read_json(path, f"The result {path}")


def _read_cell(
    path: Path, method: Method, digest: str, *, short: bool
) -> dict[str, Any] | None:
    """Return a stored result, None where there is none or the run had failed."""
    if not path.exists():
        return None
    result = files.read_json(path, f"The result {path}")
    files.check_schema(result, SCHEMA, f"The result {path}")
    if result.get("problem") != digest:
        raise InputError(
            f"{path} is of other anchors, pools or test items; choose another --out."
        )
    expected = _given(dataclasses.asdict(settings_of(method, short=short)))
    if _given(result.get("settings", {})) != expected:
        raise InputError(
            f"{path} is of other settings of {method.name}; delete it or choose "
            f"another --out."
        )
    return None if result.get("status") == "failed" else result


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings by path, as JSON values, without those that are None.

    A result from before a setting existed lacks it; None is then what it was made with.
    """
    values = json.loads(json.dumps(settings))
    return {k: v for k, v in dotted.flatten(values).items() if v is not None}


def _check_same(result: dict[str, Any], digest: str) -> None:
    """Raise unless a result is of the data that all methods of its seed are given."""
    if result["problem"] != digest:
        raise InputError(
            f"{result['method']} was run on other data than the other methods of seed "
            f"{result['seed']}: {result['problem']} instead of {digest}."
        )
