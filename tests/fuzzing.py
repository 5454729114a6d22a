"""Runs verbs on broken files in this process, one line of JSON a case on stdout.

    python tests/fuzzing.py FOLDER FIRST LAST

Numbers decide what each case does, so that any case can be run again on its own.
"""

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import numpy as np

import fake_encoders as fakes
from anchordot_jax.cli.main import main
from anchordot_jax.encoders import loading
from mutations import (
    DIM_X,
    DIM_Y,
    Draws,
    N,
    captions_file,
    embedding_files,
    mutated,
    nested_json,
    pairs_file,
)

SEED = 2026
SECONDS = 120
"""Limit of one case; a sound one takes a fraction of a second."""
MORE_ADDRESSES = 6 << 30
"""Bytes of address space that a case may take beyond what JAX has at the start."""

TINY = [
    *("--recipe", "paper", "--gamma", "1", "--eta", "0.1"),
    *("--distillation.epochs", "1"),
    *("--distillation.dim", "4", "--distillation.chunk-size", "8", "--quiet"),
]
GOOD = ["--x", "x.npy", "--y", "y.npy"]
PAIRS = ["--pairs", "pairs.csv"]
TESTED = ["--test-pairs", "test.csv"]


class Given(NamedTuple):
    """What a case works on."""

    draws: Draws
    sentinel: Path

    def embeddings(self, dim: int = DIM_X) -> str:
        """Write a broken embedding file and return it as a user would name it."""
        files = embedding_files(dim, self.sentinel)
        names = list(files)
        name, other = (names[int(self.draws.integers(len(names)))] for _ in range(2))
        suffix = Path(other if self.draws.integers(20) == 0 else name).suffix
        path = Path("m") / f"broken{suffix}"
        path.write_bytes(mutated(files[name], files[other], self.draws))
        return f"{path}::embeddings" if self.draws.integers(8) == 0 else str(path)

    def text(self, name: str, good: bytes) -> str:
        """Write a broken text file."""
        path = Path("m") / name
        deep = self.draws.integers(30) == 0
        broken = nested_json() if deep else mutated(good, b"\xff\x00{", self.draws)
        path.write_bytes(broken)
        return str(path)

    def run(self) -> str:
        """Return a copy of the run with one of its files broken."""
        return self.folder("run")

    def folder(self, name: str) -> str:
        """Return a copy of a folder with one of its files broken."""
        copy = Path("m") / name
        shutil.copytree(name, copy)
        files = sorted(path for path in copy.rglob("*") if path.is_file())
        path = files[int(self.draws.integers(len(files)))]
        path.write_bytes(mutated(path.read_bytes(), b"{}", self.draws))
        return str(copy)


def _inspect(given: Given) -> list[str]:
    return ["inspect", "--x", given.embeddings()]


def _inspect_pairs(given: Given) -> list[str]:
    return ["inspect", *GOOD, "--pairs", given.text("pairs.csv", pairs_file())]


def _fit(given: Given) -> list[str]:
    return [
        *("fit", "--x", given.embeddings(), "--y", "y.npy", *PAIRS),
        *("--out", "m/new", *TINY),
    ]


def _fit_weights(given: Given) -> list[str]:
    weights = given.embeddings()
    return ["fit", *GOOD, *PAIRS, "--weights-x", weights, "--out", "m/new", *TINY]


def _fit_again(given: Given) -> list[str]:
    return ["fit", *GOOD, *PAIRS, *TESTED, "--out", given.run(), *TINY]


def _embed(given: Given) -> list[str]:
    return ["embed", "run", "--x", given.embeddings(), "--out", "m/e.npy"]


def _embed_model(given: Given) -> list[str]:
    return ["embed", given.run(), "--x", "x.npy", "--out", "m/e.npy"]


def _eval(given: Given) -> list[str]:
    return ["eval", "run", "--x", "x.npy", "--y", given.embeddings(DIM_Y), *PAIRS]


def _eval_model(given: Given) -> list[str]:
    return ["eval", given.run(), *GOOD, *PAIRS]


def _search(given: Given) -> list[str]:
    return ["search", "run", "--queries", given.embeddings(), "--gallery", "y.npy"]


def _compare(given: Given) -> list[str]:
    return [
        *("compare", "--x", given.embeddings(), "--y", "y.npy", *PAIRS),
        *(*TESTED, "--methods", "csa", "--reference", "csa"),
        *("--seeds", "1", "--out", "m/compared", "--quiet"),
    ]


def _diagnose(given: Given) -> list[str]:
    files = ["--x", given.embeddings(), "--y", "y.npy"]
    return ["diagnose", *files, "--model", "run", "--out", "m/gap"]


def _export(given: Given) -> list[str]:
    return ["export", given.run(), "--format", "torch", "--out", "m/exported"]


def _report(given: Given) -> list[str]:
    return ["report", given.run(), "--out", "m/reported"]


def _report_texts(given: Given) -> list[str]:
    lines = [f"{i},a picture\n" for i in range(N)]
    kinds = (
        ("texts.csv", "id,text\n" + "".join(lines)),
        ("texts.tsv", "id\ttext\n" + "".join(lines).replace(",", "\t")),
        ("texts.txt", "a picture\n" * N),
    )
    name, good = kinds[int(given.draws.integers(len(kinds)))]
    texts = given.text(name, good.encode())
    return ["report", "run", "--texts-y", texts, "--out", "m/reported"]


def _match(given: Given) -> list[str]:
    return ["match", given.run(), "--out", "m/matches.csv"]


def _suggest(given: Given) -> list[str]:
    return ["suggest", "--x", given.embeddings(), "--count", "3", "--out", "m/next.csv"]


def _suggest_pairs(given: Given) -> list[str]:
    pairs = given.text("pairs.csv", pairs_file())
    return ["suggest", *GOOD, "--pairs", pairs, "--count", "4", "--out", "m/next.csv"]


def _index(given: Given) -> list[str]:
    return ["index", "run", "--gallery", given.embeddings(DIM_Y), "--out", "m/index"]


def _index_bank(given: Given) -> list[str]:
    return [
        *("index", "run", "--gallery", "y.npy", "--bank", given.embeddings()),
        *("--out", "m/index"),
    ]


def _index_model(given: Given) -> list[str]:
    return ["index", given.run(), "--gallery", "y.npy", "--out", "m/index"]


def _search_index(given: Given) -> list[str]:
    return ["search", "run", "--queries", "x.npy", "--index", given.folder("index")]


def _extract(given: Given) -> list[str]:
    table = b"id,caption\n" + b"".join(b"%d,a picture\n" % i for i in range(9))
    lines = b'{"id": 1, "caption": "a"}\n{"id": 2, "caption": "b"}\n'
    kinds = (
        ("csv", "table.csv", table),
        ("jsonl", "lines.jsonl", lines),
        ("coco", "captions.json", captions_file()),
    )
    kind, name, good = kinds[int(given.draws.integers(len(kinds)))]
    return [
        *("extract", given.text(name, good), "--y", "minilm", "--out", "m/embedded"),
        *("--format", kind, "--quiet"),
        *(() if kind == "coco" else ("--text-column", "caption")),
    ]


CASES: dict[Callable[[Given], list[str]], int] = {
    _inspect: 120,
    _inspect_pairs: 20,
    _fit: 6,
    _fit_weights: 4,
    _fit_again: 10,
    _embed: 12,
    _embed_model: 8,
    _eval: 8,
    _eval_model: 6,
    _search: 8,
    _compare: 2,
    _diagnose: 2,
    _export: 4,
    _extract: 12,
    _report: 5,
    _report_texts: 2,
    _match: 2,
    _suggest: 10,
    _suggest_pairs: 4,
    _index: 6,
    _index_bank: 3,
    _index_model: 3,
    _search_index: 12,
}
"""Which verbs, and how often each. A report and a list of matches take their time."""


def prepare(folder: Path) -> None:
    """Make the good files and the run, and pass to the folder."""
    os.chdir(folder)
    if not Path("run").exists():
        from mutations import rows

        np.save("x.npy", rows(DIM_X))
        np.save("y.npy", rows(DIM_Y))
        Path("pairs.csv").write_bytes(pairs_file())
        Path("test.csv").write_bytes(b"x,y\n11,11\n12,12\n13,13\n")
        with contextlib.redirect_stdout(io.StringIO()):
            made = [
                main(["fit", *GOOD, *PAIRS, *TESTED, "--out", "run", *TINY]),
                # Leaves the baseline's recalls among the run's results.
                main(["report", "run", "--out", "reported"]),
                main(["index", "run", "--gallery", "y.npy", "--out", "index"]),
            ]
        if any(made):
            raise RuntimeError("the good files could not be fitted")
    loading.load_encoder = lambda spec, **_: fakes.FakeEncoder("text")


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Return a context that ends with TimeoutError when it takes too long."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"took more than {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def run_case(number: int) -> dict[str, object]:
    """Run one case; `problem` says what was wrong with how it ended, if anything."""
    draws = np.random.default_rng([SEED, number])
    shutil.rmtree("m", ignore_errors=True)
    Path("m").mkdir()
    sentinel = Path("code-was-run").absolute()
    weights = np.array(list(CASES.values()), float)
    case = list(CASES)[int(draws.choice(len(CASES), p=weights / weights.sum()))]
    words = case(Given(draws, sentinel))
    out, err = io.StringIO(), io.StringIO()
    before, start = peak(), time.perf_counter()
    problem = ""
    try:
        with (
            limited(),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = main(words)
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException as error:  # noqa: BLE001
        code, problem = -1, f"raised {type(error).__name__}: {error}"
    said = err.getvalue()
    if code not in (0, 2):
        problem = problem or f"exit code {code}"
    if "Traceback" in out.getvalue() + said:
        problem = "a traceback"
    if code == 0 and said:
        problem = "succeeded with a complaint"
    if code == 2 and said and (said.count("\n") != 1 or "anchordot: error" not in said):
        problem = "not one sentence"
    if sentinel.exists():
        problem = "ran code of the file"
        sentinel.unlink()
    seconds = time.perf_counter() - start
    return {
        "number": number,
        "case": case.__name__,
        "code": code,
        "seconds": round(seconds, 3),
        "grown": peak() - before,
        "problem": problem,
        "said": (said or out.getvalue())[:400],
    }


def peak() -> int:
    """Return the largest memory of this process so far, in kilobytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main_program() -> None:
    """Run the cases from FIRST to LAST."""
    folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("always")
    prepare(folder)
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    most = pages * resource.getpagesize() + MORE_ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for number in range(first, last):
        sys.stdout.write(json.dumps(run_case(number)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main_program()
