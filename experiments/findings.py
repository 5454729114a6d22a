"""Paired differences over the seeds, and what they say of a paper's finding.

Two settings of one seed were given the same anchors, pools and test items, so that
their difference is taken seed by seed. Its interval is Student's t at 95 %, each by
itself: of twenty intervals one is expected to miss. A script's findings are
`NAME_findings.json` and `NAME_findings.md` in --docs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from anchordot_jax import files
from anchordot_jax.comparison.summary import student_interval

Verdict = Literal["as stated", "contradicted", "not decided"]


class Difference(NamedTuple):
    """A setting's result less another's, over the seeds that both have."""

    what: str
    """Such as `flickr8k, students: bridge less profile`."""
    mean: float
    low: float | None
    """Of the interval; None where there are fewer than two seeds."""
    high: float | None
    seeds: int

    @property
    def direction(self) -> Literal["higher", "lower", "not told apart"]:
        """Which side of zero the interval lies on."""
        if self.low is not None and self.low > 0:
            return "higher"
        if self.high is not None and self.high < 0:
            return "lower"
        return "not told apart"

    def sentence(self) -> str:
        """Return the difference in words."""
        interval = (
            "no interval from one seed"
            if self.low is None
            else f"[{self.low:+.1f}, {self.high:+.1f}] over {self.seeds} seeds"
        )
        return f"{self.what}: {self.mean:+.1f} ({interval}), {self.direction}"


class Finding(NamedTuple):
    """What a paper states, and what was measured here."""

    claim: str
    verdict: Verdict
    differences: Sequence[Difference]
    unit: str
    """Of the differences."""


def difference(
    records: Sequence[Mapping[str, Any]],
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    value: str,
    *,
    other: str | None = None,
    what: str,
    scale: float = 1.0,
) -> Difference | None:
    """Return the first settings' value less the second's; None without a common seed.

    Args:
        records: of `results.run_grid`.
        first: some of a cell's settings, all but the seed that matter.
        second: the same of what it is compared with.
        value: name of the result.
        other: name of the second settings' result, where it is another.
        what: the difference in words.
        scale: factor on the values.
    """
    own = _by_seed(records, first, value)
    compared = _by_seed(records, second, other or value)
    seeds = sorted(own.keys() & compared.keys())
    if not seeds:
        return None
    found = [scale * (own[seed] - compared[seed]) for seed in seeds]
    mean, low, high = student_interval(found)
    if len(seeds) == 1:
        return Difference(what, mean, None, None, 1)
    return Difference(what, mean, low, high, len(seeds))


def _by_seed(
    records: Sequence[Mapping[str, Any]], part: Mapping[str, Any], value: str
) -> dict[int, float]:
    return {
        record["settings"]["seed"]: record["result"][value]
        for record in records
        if record["status"] == "done"
        and part.items() <= record["settings"].items()
        and record["result"].get(value) is not None
    }


def judge(
    claim: str,
    differences: Sequence[Difference | None],
    *,
    stated: Literal["lower", "higher", "not higher", "not lower"],
    unit: str = "points",
) -> Finding:
    """Return whether the differences are as a paper states.

    "lower" is as stated where every interval is below zero, and contradicted by one
    above it. "not higher" is contradicted by one interval above zero, and as stated
    where none is and at least one is below; so are their opposites.
    """
    known = [each for each in differences if each is not None]
    directions = {each.direction for each in known}
    right = stated.removeprefix("not ")
    wrong = "lower" if right == "higher" else "higher"
    if stated.startswith("not "):
        right, wrong = wrong, right
    verdict: Verdict = "not decided"
    if wrong in directions:
        verdict = "contradicted"
    elif directions == {right} or (stated.startswith("not ") and right in directions):
        verdict = "as stated"
    return Finding(claim, verdict, known, unit)


def write_findings(name: str, findings: Sequence[Finding], docs: Path) -> None:
    """Write NAME_findings.json and NAME_findings.md, and print the latter."""
    told = [
        {
            "claim": finding.claim,
            "verdict": finding.verdict,
            "unit": finding.unit,
            "differences": [
                {**each._asdict(), "direction": each.direction}
                for each in finding.differences
            ],
        }
        for finding in findings
    ]
    files.write_json(docs / f"{name}_findings.json", {"findings": told})
    text = "\n".join(_markdown(finding) for finding in findings)
    with files.replacing(docs / f"{name}_findings.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(text)


def _markdown(finding: Finding) -> str:
    lines = [f"**{finding.claim}** {finding.verdict.capitalize()} ({finding.unit}):"]
    lines += ["", *(f"- {each.sentence()}" for each in finding.differences), ""]
    return "\n".join(lines)
