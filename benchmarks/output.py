"""What the benchmarks' commands share: where results go, tables, one sentence of error.

Every command writes NAME.md, which the page docs/benchmarks.md includes, and its
figures as NAME.json or NAME.csv, in one folder.
"""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from anchordot_jax import InputError, files
from anchordot_jax.runs.cells import Progress

DOCS = Path("docs/benchmarks")
NOTHING = "-"


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    """End the command with one sentence and exit code 2 on bad input."""
    try:
        yield
    except InputError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def write_markdown(name: str, parts: Sequence[str], docs: Path) -> None:
    """Write NAME.md from paragraphs and tables, and say so."""
    path = docs / f"{name}.md"
    with files.replacing(path) as temporary:
        text = "\n\n".join(part.strip() for part in parts) + "\n"
        temporary.write_text(text, encoding="utf-8")
    print(f"{path} written")


def number(value: float | int | None, digits: int = 3) -> str:
    """Return a figure to some significant digits, without an exponent if readable."""
    if value is None:
        return NOTHING
    if isinstance(value, int):
        return str(value)
    return f"{value:.{digits}g}" if abs(value) < 1000 else f"{value:.0f}"


def tell(progress: Progress) -> None:
    """Print how far a grid of cells is."""
    print(progress.line, flush=True)
