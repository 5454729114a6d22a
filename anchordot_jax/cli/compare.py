"""`anchordot compare`: is AnchorDOT really better on these data?"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from anchordot_jax.errors import InputError

if TYPE_CHECKING:
    from anchordot_jax.comparison.problem import Problem


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compare:
    """Fit every method on the same anchors and pools and score the same test pairs.

    Writes one result a method and seed, a table (table.md, results.csv) and a plot.
    The same command again runs what is missing. `--methods list` lists the methods.
    """

    x: str = ""
    """FILE or FILE::dataset of the one side's embeddings."""
    y: str = ""
    """FILE or FILE::dataset of the other side's embeddings."""
    pairs: Path | None = None
    """CSV of the known pairs, columns x,y."""
    out: Path = Path("comparison")
    """Folder to write."""
    test_pairs: Path | None = None
    """CSV of the pairs to score; all of --pairs are then anchors, for every seed."""
    anchors: int | None = None
    """Without --test-pairs: draw so many anchors from --pairs, anew for each seed."""
    test: int | None = None
    """Without --test-pairs: draw so many test pairs from --pairs."""
    pool_x: str | None = None
    """FILE of unpaired x items, instead of the other rows of --x."""
    pool_y: str | None = None
    """FILE of unpaired y items, instead of the other rows of --y."""
    pair_keys: Literal["auto", "rows", "ids"] = "auto"
    """How the values of the pairs files are read."""
    methods: tuple[str, ...] = ("all",)
    """Names of the methods, all, or list."""
    seeds: int = 5
    """Number of seeds, 0, 1, ...: of the split, where it is drawn, and of the fits."""
    schedule: Literal["full", "short"] = "full"
    """full: every method's own training length. short: shorter ones for the slowest,
    which the table states."""
    reference: str = "anchordot"
    """Method that the paired differences are taken from."""
    shuffle_anchors: bool = False
    """Control: destroy the pairing of the anchors; every method must be at chance."""
    keep_models: bool = False
    """Save each fit in OUT/models/METHOD/seed-K, for embed, eval and search."""
    quiet: bool = False
    """Print the table only."""
    json: bool = False
    """Print one JSON object instead."""

    def run(self) -> int:
        """Run what is missing, write and print the table; return the exit code."""
        from anchordot_jax.baselines.registry import METHODS, find_methods

        if self.methods == ("list",):
            for method in METHODS.values():
                print(f"{method.name:28} {method.title}")
            return 0
        methods = find_methods(self.methods)
        find_methods([self.reference])
        problem_of = self._problems()
        from anchordot_jax.comparison import grid, report

        results = grid.run_grid(
            methods,
            problem_of,
            self.out,
            seeds=range(self.seeds),
            short=self.schedule == "short",
            keep_models=self.keep_models,
            report=None if self.quiet or self.json else _say,
        )
        table = report.write_report(
            self.out,
            results,
            methods=METHODS,
            reference=self.reference,
            one_split=self.test_pairs is not None,
            short=self.schedule == "short",
        )
        self._print(table, results)
        return 1 if any(result["status"] == "failed" for result in results) else 0

    def _problems(self) -> Callable[[int], "Problem"]:
        """Return the function from a seed to its anchors, pools and test items."""
        from anchordot_jax import data
        from anchordot_jax.comparison import problem

        if not self.x or not self.y or self.pairs is None:
            raise InputError("Give --x FILE, --y FILE and --pairs CSV.")
        if self.seeds < 1:
            raise InputError(f"--seeds must be at least 1, got {self.seeds}.")
        drawn = self.test_pairs is None
        if drawn and (self.anchors is None or self.test is None):
            raise InputError(
                "Give --test-pairs CSV, or --anchors N and --test T to draw both from "
                "--pairs anew for each seed."
            )
        if not drawn and (self.anchors is not None or self.test is not None):
            raise InputError(
                "--anchors and --test draw from --pairs; leave them out, or leave out "
                "--test-pairs."
            )
        source_x, source_y = data.open_embeddings(self.x), data.open_embeddings(self.y)
        pairs = data.read_pairs(self.pairs, source_x, source_y, keys=self.pair_keys)
        test_pairs = None
        if self.test_pairs is not None:
            test_pairs = data.read_pairs(
                self.test_pairs, source_x, source_y, keys=self.pair_keys
            )
        x, y = source_x.read(), source_y.read()
        pool_x = data.open_embeddings(self.pool_x).read() if self.pool_x else None
        pool_y = data.open_embeddings(self.pool_y).read() if self.pool_y else None

        def problem_of(seed: int) -> "Problem":
            if drawn:
                split = data.redraw_split(
                    pairs,
                    len(x),
                    len(y),
                    seed=seed,
                    anchors=self.anchors or 0,
                    test=self.test or 0,
                )
            else:
                split = data.split_by_exclusion(
                    pairs,
                    test_pairs,
                    len(x),
                    len(y),
                    separate_pools_x=pool_x is not None,
                    separate_pools_y=pool_y is not None,
                )
            made = problem.make_problem(x, y, split, pool_x=pool_x, pool_y=pool_y)
            if self.shuffle_anchors:
                return problem.shuffle_anchors(made, seed=seed)
            return made

        problem_of(0)  # Bad input is said before anything is fitted.
        return problem_of

    def _print(self, table: Any, results: list[dict[str, Any]]) -> None:
        from anchordot_jax.cli import output

        if self.json:
            output.print_json(
                {
                    "out": str(self.out),
                    "methods": {row.method: _row_values(row) for row in table},
                    "not_done": [
                        {k: r[k] for k in ("method", "seed", "status", "reason")}
                        for r in results
                        if r["status"] != "done"
                    ],
                }
            )
            return
        heads = ["mean over seeds", *(n.replace("recall", "R") for n in output.RECALLS)]
        rows = [
            [row.method, *(f"{row.means[name]:.1f}" for name in output.RECALLS)]
            for row in table
        ]
        output.print_table("Recall, %", heads, rows)
        print(
            f"Written: {self.out / 'table.md'}, results.csv and recall.svg beside it."
        )


def _row_values(row: Any) -> dict[str, Any]:
    """Return a row as JSON values; what is not a number is left out."""
    difference = row.difference
    return {
        "seeds": list(row.seeds),
        "means": row.means,
        "deviations": {k: v for k, v in row.deviations.items() if v == v},
        "difference": None
        if difference is None
        else {k: v for k, v in difference._asdict().items() if v == v},
        "seconds": row.seconds,
        "peak_memory": row.peak_memory,
    }


def _say(result: dict[str, Any], known: bool) -> None:
    """Print a cell's line."""
    from anchordot_jax.comparison.cell import cell_line

    print(cell_line(result, known=known), flush=True)
