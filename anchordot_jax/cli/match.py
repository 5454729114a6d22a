"""`anchordot match`: the pools' most certain pairs, what to look at next."""

import csv
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from anchordot_jax.errors import InputError

if TYPE_CHECKING:
    from anchordot_jax.fitted.fitted_run import RunData
    from anchordot_jax.fitted.pool_matches import PoolMatches

HEADS = ("x", "y", "confidence", "margin", "mutual", "expected_precision")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Match:
    """List the pools' most certain pairs by the run's transport plan.

    Most confident first: pairs that are each other's best match, by the share of their
    mass that both give each other. The expected precision is learned from anchors that
    were held out; it holds for items whose partner is in the other pool.
    """

    run_folder: tyro.conf.Positional[Path]
    """Run folder of a finished fit."""
    x: str | None = None
    """FILE of x embeddings, if it is no longer where the fit found it."""
    y: str | None = None
    """FILE of y embeddings, the same."""
    top: int | None = None
    """List at most so many pairs."""
    least_precision: float = 0.0
    """Leave out pairs of a lower expected precision."""
    all: bool = False
    """List every x item's best match, after the mutual ones those that are not."""
    uncalibrated: bool = False
    """No expected precision; saves the transport problems of five folds."""
    out: Path | None = None
    """CSV to write, instead of standard output. Its columns x,y are those of a pairs
    file, once a person has checked them; a pool that had a file of its own is
    numbered by that file's rows."""
    json: bool = False
    """Print one JSON object with the expected precisions; needs --out."""

    def run(self) -> int:
        """List the pairs and return the exit code."""
        from anchordot_jax import files
        from anchordot_jax.fitted import fitted_run, pool_matches

        self._check()
        run, _ = fitted_run.load_finished(self.run_folder)
        known = fitted_run.load_data(run, x=self.x, y=self.y)
        found = pool_matches.find_matches(
            known.fit,
            fitted_run.stored_config(run),
            fitted_run.stored_choice(run),
            run=run,
            calibrated=not self.uncalibrated,
        )
        if found.calibration is None and self.least_precision > 0:
            raise InputError(
                f"--least-precision needs a calibration, which {self.run_folder} has "
                f"too few anchors for, or which --uncalibrated leaves out."
            )
        count = self._count(found)
        rows = _rows(found, known, count)
        if self.out is None:
            _write(sys.stdout, rows)
            return 0
        with (
            files.replacing(self.out) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as file,
        ):
            _write(file, rows)
        self._print(found, count)
        return 0

    def _check(self) -> None:
        from anchordot_jax import files

        if self.top is not None and self.top < 1:
            raise InputError(f"--top must be at least 1, got {self.top}.")
        if not 0 <= self.least_precision < 1:
            raise InputError(
                f"--least-precision must be in [0, 1), got {self.least_precision}."
            )
        if self.json and self.out is None:
            raise InputError("--json needs --out, where the pairs go.")
        if self.out is not None:
            files.check_output_file(self.out)

    def _count(self, found: "PoolMatches") -> int:
        """Return how many matches are listed."""
        matches = found.matches
        count = len(matches.x) if self.all else int(matches.mutual.sum())
        precision = found.precision
        if precision is not None and self.least_precision > 0:
            # Precision grows with confidence; what is not mutual has none.
            count = min(count, int((precision >= self.least_precision).sum()))
        return count if self.top is None else min(count, self.top)

    def _print(self, found: "PoolMatches", count: int) -> None:
        from anchordot_jax.cli import output
        from anchordot_jax.fitted.pool_matches import TOPS, expected_precisions

        expected = expected_precisions(found, (*TOPS, count))
        calibration = found.calibration
        if self.json:
            output.print_json(
                {
                    "out": str(self.out),
                    "pairs": count,
                    "mutual": int(found.matches.mutual.sum()),
                    "calibrated_on": 0 if calibration is None else calibration.n_known,
                    "expected_precision": {str(k): v for k, v in expected.items()},
                }
            )
            return
        print(f"{count} pairs: {self.out}")
        if calibration is None:
            print("Not calibrated: no expected precision.")
            return
        rows = [[f"first {top}", f"{value:.0%}"] for top, value in expected.items()]
        output.print_table("Expected precision", ["mutual pairs", "right"], rows)
        print(
            f"Learned from {calibration.n_known} matches of held-out anchors; it holds "
            f"for items whose partner is in the other pool."
        )


def _rows(found: "PoolMatches", known: "RunData", count: int) -> Iterator[list[Any]]:
    """Yield the lines of the CSV."""
    precision = found.precision
    for i, (x, y, confidence, margin, mutual) in enumerate(
        zip(*(part[:count] for part in found.matches), strict=True)
    ):
        known_as = known.x.pool_name(int(x)), known.y.pool_name(int(y))
        expected = "" if precision is None or not mutual else f"{precision[i]:.4f}"
        yield [*known_as, f"{confidence:.6f}", f"{margin:.4f}", int(mutual), expected]


def _write(file: Any, rows: Iterator[list[Any]]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(HEADS)
    writer.writerows(rows)
