"""What a report is made of, whatever it is written as."""

from collections.abc import Sequence
from typing import NamedTuple


class Text(NamedTuple):
    """A paragraph."""

    text: str


class Caution(NamedTuple):
    """A paragraph that a reader must not miss."""

    text: str


class Code(NamedTuple):
    """Lines shown as they are."""

    caption: str
    text: str


class Table(NamedTuple):
    """A table with a caption; the first cell of a row names it."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


class Figure(NamedTuple):
    """A drawing, with what it says in words for who cannot see it."""

    name: str
    """Unique in a report; the file's name beside a Markdown report."""
    svg: str
    caption: str
    description: str
    """What a reader would see."""


class Item(NamedTuple):
    """One item of a side as a reader can recognise it."""

    name: str
    """Its id, or row number."""
    text: str = ""
    picture: str = ""
    """HTML of a thumbnail or drawing, with its alternative text; may be empty."""
    unread: bool = False
    """Whether there is a picture that could not be read."""
    note: str = ""
    """Score, rank or the like."""
    right: bool = False
    """Whether it is a right answer."""


class Example(NamedTuple):
    """One item and those that stand beside it."""

    title: str
    query: Item
    answers: Sequence[Item]


class Examples(NamedTuple):
    """Several examples."""

    caption: str
    examples: Sequence[Example]


Block = Text | Caution | Code | Table | Figure | Examples


class Section(NamedTuple):
    """A headed part of a report."""

    name: str
    """Anchor of its link."""
    title: str
    blocks: Sequence[Block]


class Report(NamedTuple):
    """The whole."""

    title: str
    lead: str
    """A sentence or two under the title."""
    sections: Sequence[Section]
