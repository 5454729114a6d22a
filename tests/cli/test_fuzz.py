"""2,000 broken files to every verb: one sentence or a result, and nothing else.

No traceback, no hang, no memory taken on a lying header's word, no code run. Each
verb that reads files is there; doctor and demo read none, and push starts from the same
model folder as export. The cases
run in processes of their own, since a library that crashes takes its process along;
`python tests/fuzzing.py FOLDER N N+1` repeats case N alone.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import fuzzing
from planted import environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does"),
]

CASES = 2000
TESTS = Path(__file__).resolve().parents[1]
LARGEST_GROWTH = 600_000
"""Kilobytes that one case may add to the process's peak: JAX's compilations do."""


def run_cases(folder: Path, first: int, last: int) -> tuple[list[Any], str]:
    """Return the records of some cases, and what the process left on stderr."""
    path = os.pathsep.join([str(TESTS), environment()["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "fuzzing.py", str(folder), str(first), str(last)],
        cwd=TESTS,
        env={**environment(), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_broken_files_end_every_verb_in_a_sentence(tmp_path: Path) -> None:
    """Exit code 0 or 2 each time; a crash of the process counts as a case's fault."""
    records: list[Any] = []
    crashes = 0
    while len(records) < CASES and crashes < 5:
        found, err = run_cases(tmp_path, len(records), CASES)
        records += found
        if len(records) < CASES:
            crashes += 1
            records.append(
                {"number": len(records), "problem": f"crashed: {err[-600:]}"}
            )
    assert [record for record in records if record["problem"]] == []
    assert len(records) == CASES
    assert max(record["grown"] for record in records) < LARGEST_GROWTH
    counts = Counter(record["case"] for record in records)
    assert counts.keys() == {case.__name__ for case in fuzzing.CASES}
    # Both outcomes are common: the files are broken, and not beyond recognition.
    codes = Counter(record["code"] for record in records)
    assert codes[2] > CASES / 2
    assert codes[0] > CASES / 20


def test_what_the_cases_look_for_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code run, a traceback, a wrong exit code and a crash inside are all noticed."""
    monkeypatch.chdir(tmp_path)

    def case(given: fuzzing.Given) -> list[str]:
        return ["inspect", "--x", "x.npy"]

    monkeypatch.setattr(fuzzing, "CASES", {case: 1})

    def problem(verb: Any) -> str:
        monkeypatch.setattr(fuzzing, "main", verb)
        return str(fuzzing.run_case(0)["problem"])

    def touch(words: list[str]) -> int:
        Path("code-was-run").touch()
        return 0

    def say(words: list[str]) -> int:
        sys.stdout.write("Traceback (most recent call last):")
        return 0

    def complain(words: list[str]) -> int:
        sys.stderr.write("RuntimeWarning: x")
        return 0

    def fail(words: list[str]) -> int:
        raise MemoryError("huge")

    assert problem(lambda words: 0) == ""
    assert problem(touch) == "ran code of the file"
    assert problem(say) == "a traceback"
    assert problem(complain) == "succeeded with a complaint"
    assert problem(lambda words: 1) == "exit code 1"
    assert problem(fail) == "raised MemoryError: huge"
