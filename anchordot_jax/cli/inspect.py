"""`anchordot inspect`: what is in the files, and what would go wrong."""

import dataclasses
from pathlib import Path
from typing import Any, Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inspect:
    """Check embedding files, and pairs if given, before a fit."""

    x: str
    """FILE of x embeddings."""
    y: str | None = None
    """FILE of y embeddings."""
    pairs: Path | None = None
    """CSV of pairs (columns x,y); needs --y."""
    test_pairs: Path | None = None
    """CSV of pairs that a fit keeps out."""
    pair_keys: Literal["auto", "rows", "ids"] = "auto"
    """How the values of the pairs files are read."""
    json: bool = False
    """Print one JSON object instead of tables."""

    def run(self) -> int:
        """Print the findings; return 2 if a fit would refuse the files, else 0."""
        from anchordot_jax import data
        from anchordot_jax.cli import output
        from anchordot_jax.errors import InputError

        if self.pairs is not None and self.y is None:
            raise InputError("--pairs needs --y, the file of the other side.")
        if self.test_pairs is not None and self.pairs is None:
            raise InputError("--test-pairs needs --pairs, the anchors of the fit.")
        sources = {"x": data.open_embeddings(self.x)}
        if self.y is not None:
            sources["y"] = data.open_embeddings(self.y)
        reports = {
            side: dataclasses.asdict(data.inspect_embeddings(source))
            for side, source in sources.items()
        }
        findings: dict[str, Any] = dict(reports)
        if self.pairs is not None:
            findings["pairs"] = self._inspect_pairs(sources)
        problems = _problems(reports)
        if self.json:
            output.print_json({**_finite(findings), "problems": problems})
        else:
            _print_reports(reports)
            if self.pairs is not None:
                _print_pairs(findings["pairs"])
            for problem in problems:
                print(f"problem: {problem}")
            if not problems:
                print("No problem found.")
        return 2 if problems else 0

    def _inspect_pairs(self, sources: dict[str, Any]) -> dict[str, Any]:
        """Return what a fit would make of the pairs; raise InputError as it would."""
        from anchordot_jax import data
        from anchordot_jax.profiles import fit_basis

        x, y = sources["x"], sources["y"]
        pairs = data.read_pairs(Path(str(self.pairs)), x, y, keys=self.pair_keys)
        data.check_enough_pairs(pairs, str(self.pairs))
        test = None
        if self.test_pairs is not None:
            test = data.read_pairs(self.test_pairs, x, y, keys=self.pair_keys)
        split = data.split_by_exclusion(pairs, test, x.shape[0], y.shape[0])
        ranks = {}
        for (side, source), rows in zip(sources.items(), split.anchors.T, strict=True):
            anchors = source.read(rows)
            data.check_embeddings(anchors, source.where, rows=rows)
            ranks[side] = len(fit_basis(anchors).singular_values)
        cost_bytes = 4 * len(split.pool_x) * len(split.pool_y)
        return {
            "anchors": len(split.anchors),
            "test_pairs": len(split.test_pairs),
            "pool_x": len(split.pool_x),
            "pool_y": len(split.pool_y),
            "anchor_rank_x": ranks["x"],
            "anchor_rank_y": ranks["y"],
            "coordinates": min(ranks.values()),
            "cost_bytes_if_stored": cost_bytes,
        }


def _problems(reports: dict[str, dict[str, Any]]) -> list[str]:
    """Return what a fit would refuse, in sentences."""
    problems = []
    for side, report in reports.items():
        for kind, what in (
            ("nonfinite", "NaN or infinity"),
            ("zero", "only zeros"),
            ("extreme", "numbers too large or small for float32's squares"),
        ):
            count = report[f"n_{kind}"]
            if count:
                rows = ", ".join(str(row) for row in report[f"first_{kind}"])
                problems.append(
                    f"{count} rows of {side} hold {what} (first: {rows}); remove or "
                    f"repair them."
                )
    return problems


def _finite(values: Any) -> Any:
    """Return the values with None in place of NaN, which JSON does not have."""
    if isinstance(values, dict):
        return {name: _finite(value) for name, value in values.items()}
    return None if isinstance(values, float) and values != values else values


def _print_reports(reports: dict[str, dict[str, Any]]) -> None:
    from anchordot_jax.cli import output

    names = [name for name in next(iter(reports.values())) if "first" not in name]
    rows = [
        [name, *(_show(report[name]) for report in reports.values())] for name in names
    ]
    output.print_table("Embeddings", ["", *reports], rows)


def _print_pairs(found: dict[str, Any]) -> None:
    from anchordot_jax.cli import output

    rows = [[name, _show(value)] for name, value in found.items()]
    output.print_table("Pairs", ["", "value"], rows)
    rank = found["coordinates"]
    if rank < found["anchors"]:
        print(
            f"The anchors span {found['anchor_rank_x']} and {found['anchor_rank_y']} "
            f"dimensions; a gamma above 1 leans on the poorly estimated ones."
        )


def _show(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value}"
