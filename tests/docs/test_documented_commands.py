"""Every command and Python block of README and docs runs, or says why it cannot.

A `bash` block that begins with `# not run: REASON` is not run, nor is a command that
`ELSEWHERE` names; `anchordot` commands among them are parsed all the same. Any other
command must run here: a new one that needs more than small files fails until it is
marked.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from anchordot_jax.cli.main import _parse, main
from planted import environment, python

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    REPOSITORY / "README.md",
    *(
        path
        for path in sorted((REPOSITORY / "docs").rglob("*.md"))
        if "_build" not in path.parts
    ),
]

ELSEWHERE = {
    "python3 -m venv": "makes an environment: .ci/run and .ci/wheel do",
    "pip install": "downloads from the package index",
    "apt-get install": "installs system packages",
    "anchordot demo": "minutes of training: tests/cli/test_cli_verbs.py",
    "anchordot extract": "needs encoders' libraries and data: tests/encoders",
    "python experiments/prepare_clipart.py": "needs Debian's drawings",
    "anchordot compare --x images.h5 --y texts.npy --pairs pairs.csv "
    "--test-pairs test.csv --methods all": "hours: tests/cli/test_cli_compare.py",
    "anchordot export run --format onnx": "needs onnx: tests/cli/test_cli_export.py",
    "anchordot push run USER/NAME": "uploads to the hub: tests/export",
    "anchordot embed hf:USER/NAME": "downloads from the hub: tests/export",
    "anchordot index run --gallery texts.npy --out texts-index --faiss": "needs faiss: "
    "tests/fitted/test_gallery_index.py",
    "import onnxruntime": "needs onnxruntime: tests/export",
    "from torch_students import": "needs torch: tests/export",
}
"""How a command or a Python block begins, and why it does not run here."""

SHELL = ("awk", "printf")
"""Programs, beside `anchordot`, that run here as they are written."""

ENCODERS = "--x dinov2-small --y minilm"
"""What `ENC` stands for in docs/extract.md."""


class Command(NamedTuple):
    """One documented command line."""

    line: str
    reason: str | None
    """Why it is not run, or None."""


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> Iterator[Command]:
    """Yield the command lines of a document's bash blocks."""
    for block in blocks(text, "bash"):
        marked = re.match(r"# not run: (\S.*)", block)
        whole = re.sub(r"\\\n\s*", "", block)
        for line in whole.splitlines():
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            begins = [why for start, why in ELSEWHERE.items() if line.startswith(start)]
            reason = marked[1] if marked else next(iter(begins), None)
            yield Command(line, reason)


def words_of(line: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables set before a command, and its words."""
    words = shlex.split(line, comments=True)
    variables = {}
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    return variables, words


def run(line: str) -> None:
    """Run one command; fail if it is of no known kind or its exit code is not 0."""
    variables, words = words_of(line)
    if words[0] == "anchordot" and not variables:
        assert main(words[1:]) == 0, line
        return
    if words[0] == "anchordot":
        program = [sys.executable, "-m", "anchordot_jax", *words[1:]]
    else:
        assert words[0] in SHELL, (
            f"{line!r} is a command that no test runs: run it here, or mark its block "
            f"with `# not run: REASON`."
        )
        program = ["bash", "-c", line]
    done = subprocess.run(
        program,
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"


def name_of(path: Path) -> str:
    """Return a document's name in the repository."""
    return path.relative_to(REPOSITORY).as_posix()


WITH_BLOCKS = [
    path
    for path in DOCUMENTS
    if re.search(r"^```(bash|python)\n", path.read_text("utf-8"), re.MULTILINE)
]


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_BLOCKS, ids=name_of)
def test_a_documents_commands_and_programs_run(
    path: Path, documented_files: Path, request: pytest.FixtureRequest
) -> None:
    """All blocks of a document run one after the other, in one folder."""
    text = path.read_text(encoding="utf-8")
    runnable = [one.line for one in commands(text) if one.reason is None]
    if runnable and not any("--out run" in line for line in runnable):
        shutil.copytree(
            request.getfixturevalue("documented_run"), documented_files / "run"
        )
    for line in runnable:
        run(line)
    for block in blocks(text, "python"):
        if any(block.startswith(start) for start in ELSEWHERE):
            continue
        exec(compile(block, name_of(path), "exec"), {})


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_commands_that_are_not_run_can_be_read(path: Path) -> None:
    """The command line understands the `anchordot` commands that are only shown."""
    for line, reason in commands(path.read_text(encoding="utf-8")):
        if reason is not None and line.startswith("anchordot"):
            _parse(words_of(line.replace("ENC", ENCODERS))[1][1:])


def test_named_files_and_verbs_exist() -> None:
    """Programs named in a sentence are there, and verbs have the options named."""
    verbs: dict[str, set[str]] = {}
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for program in re.findall(r"python ((?:experiments|benchmarks)/\w+\.py)", text):
            assert (REPOSITORY / program).is_file(), f"{name_of(path)}: {program}"
        for line in re.findall(r"`anchordot ([a-z]+ ?[^`]*)`", text.replace("\n", " ")):
            verb, *rest = line.split()
            options = {word for word in rest if re.match(r"--[a-z]", word)}
            verbs.setdefault(verb, set()).update(options)
    assert verbs
    for verb, options in verbs.items():
        shown = python("-m", "anchordot_jax", verb, "--help")
        assert shown.returncode == 0, verb
        known = set(re.findall(r"--[a-z][a-z.-]*", shown.stdout))
        assert options - known == set(), f"anchordot {verb} has no {options - known}"


def test_a_command_of_no_kind_is_refused() -> None:
    """A new documented command that nothing runs fails the test."""
    (found,) = commands("```bash\ncurl example.org  # get it\n```\n")
    assert found.reason is None
    with pytest.raises(AssertionError, match="a command that no test runs"):
        run(found.line)


def test_marks_need_a_reason() -> None:
    """`# not run` without a reason is no mark."""
    shown = "```bash\n# not run: {}\nsbatch fit.sh \\\n    --x\n```\n"
    assert list(commands(shown.format("needs Slurm"))) == [
        Command("sbatch fit.sh --x", "needs Slurm")
    ]
    assert [one.reason for one in commands(shown.format(""))] == [None]
