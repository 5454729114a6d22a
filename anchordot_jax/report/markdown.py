"""A report as Markdown, with its figures as files beside it."""

import re
from collections.abc import Sequence

from anchordot_jax.report.blocks import (
    Block,
    Caution,
    Code,
    Example,
    Examples,
    Figure,
    Item,
    Report,
    Table,
    Text,
)

MARKS = re.compile(r"[\\`*_\[\]<>|#~&$]|^[-+]")
"""Characters that Markdown, HTML within it or its usual extensions give a meaning."""


def document(report: Report, figures: str) -> str:
    """Return the text; `figures` is the folder of NAME.svg, relative to it."""
    lines = [f"# {report.title}", "", report.lead]
    for section in report.sections:
        lines += ["", f"## {section.title}"]
        for block in section.blocks:
            lines += ["", *_block(block, figures)]
    return "\n".join(lines) + "\n"


def _block(block: Block, figures: str) -> list[str]:
    match block:
        case Text(text):
            return [text]
        case Caution(text):
            return [f"**Warning.** {text}"]
        case Code(caption, text):
            return [caption, "", "```", text, "```"]
        case Table():
            return _table(block)
        case Figure(name, _, caption, description):
            return [f"![{description}]({figures}/{name}.svg)", "", caption]
        case Examples(caption, examples):
            return [caption, *(line for e in examples for line in _example(e))]


def _table(table: Table) -> list[str]:
    rows = [_row(row) for row in table.rows]
    rule = "| " + " | ".join("---" for _ in table.heads) + " |"
    return [table.caption, "", _row(table.heads), rule, *rows]


def _row(cells: Sequence[str]) -> str:
    shown = [cell.replace("|", "\\|") for cell in cells]
    return "| " + " | ".join(shown) + " |"


def _example(example: Example) -> list[str]:
    lines = ["", f"**{example.title}**: {_item(example.query)}", ""]
    return lines + [f"{i}. {_item(item)}" for i, item in enumerate(example.answers, 1)]


def _escaped(text: str) -> str:
    """Return a text of the user's that Markdown shows as it is."""
    return MARKS.sub(r"\\\g<0>", text)


def _item(item: Item) -> str:
    parts = [_escaped(item.name)]
    if item.text:
        parts.append(f"“{_escaped(item.text)}”")
    if item.note:
        parts.append(f"({item.note})")
    if item.right:
        parts.append("**right answer**")
    return " ".join(" ".join(parts).split())
