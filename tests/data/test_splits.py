"""Splits: disjoint, complete, reproducible, and written whole or not at all."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchordot_jax.data import (
    Split,
    protocol_split,
    read_split,
    redraw_split,
    split_by_exclusion,
    split_digest,
    write_split,
)
from anchordot_jax.errors import InputError

PAIRS = np.array([[0, 1], [2, 3]])
TEST = np.array([[4, 0]])
SPLIT = split_by_exclusion(PAIRS, TEST, 7, 6)


def test_pools_are_all_other_rows() -> None:
    """A hand-worked split: x has rows 1, 3, 5, 6 left and y has 2, 4, 5."""
    np.testing.assert_array_equal(SPLIT.anchors, PAIRS)
    np.testing.assert_array_equal(SPLIT.test_pairs, TEST)
    np.testing.assert_array_equal(SPLIT.pool_x, [1, 3, 5, 6])
    np.testing.assert_array_equal(SPLIT.pool_y, [2, 4, 5])
    assert {rows.dtype for rows in SPLIT} == {np.dtype(np.int64)}


def test_there_may_be_no_test_pairs() -> None:
    """Without test pairs only anchors leave the pools."""
    split = split_by_exclusion(PAIRS, None, 5, 6)
    assert split.test_pairs.shape == (0, 2)
    np.testing.assert_array_equal(split.pool_x, [1, 3, 4])


def test_separate_pools_are_left_empty() -> None:
    """A side whose pool is a file of its own has none here, even without rows left."""
    split = split_by_exclusion(PAIRS, TEST, 5, 4, separate_pools_x=True)
    assert split.pool_x.shape == (0,)
    np.testing.assert_array_equal(split.pool_y, [2])
    full = np.array([[0, 0], [1, 1]])
    split = split_by_exclusion(full, None, 3, 2, separate_pools_y=True)
    np.testing.assert_array_equal(split.pool_x, [2])
    assert split.pool_y.shape == (0,)


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_exclusion_is_disjoint_and_complete(data: Any) -> None:
    """Anchors, test items and pool partition the rows of each side."""
    n_x, n_y = data.draw(st.integers(6, 12)), data.draw(st.integers(6, 12))
    k = data.draw(st.integers(2, 5))
    t = data.draw(st.integers(0, 5 - k))
    rows_x = data.draw(st.permutations(range(n_x)))[: k + t]
    rows_y = data.draw(st.permutations(range(n_y)))[: k + t]
    pairs = np.stack([rows_x, rows_y], axis=1)
    split = split_by_exclusion(pairs[:k], pairs[k:], n_x, n_y)
    for side, (n, pool) in enumerate([(n_x, split.pool_x), (n_y, split.pool_y)]):
        parts = [split.anchors[:, side], split.test_pairs[:, side], pool]
        assert sorted(np.concatenate(parts).tolist()) == list(range(n))
        assert pool.tolist() == sorted(pool.tolist())


@pytest.mark.parametrize(
    ("pairs", "test", "n", "message"),
    [
        ([[0, 0]], [], 5, r"gives 1 pair\(s\); at least 2"),
        (
            [[0, 0], [1, 1]],
            [[1, 2], [0, 3]],
            5,
            r"2 row\(s\) of x are in both the anchors and the test pairs \(rows 0, 1\)",
        ),
        ([[0, 0], [1, 1]], [[2, 1]], 5, r"1 row\(s\) of y are in both .* \(rows 1\)"),
        (
            [[i, i] for i in range(6)],
            [[i, i] for i in range(6)],
            9,
            r"6 row\(s\) of x .*\(rows 0, 1, 2, 3, 4, \.\.\.\)",
        ),
        (
            [[0, 0], [1, 1]],
            [[2, 2]],
            3,
            "pool of x is empty: each of its 3 rows.*--pool-x",
        ),
        ([[0, 0], [1, 1]], [[9, 2]], 5, r"Row 9 of x does not exist: there are 5 rows"),
        ([[0, 0], [1, -1]], [], 5, "Row -1 of y does not exist"),
    ],
    ids=["few", "x twice", "y twice", "many", "empty pool", "beyond", "negative"],
)
def test_bad_splits_are_refused(pairs: Any, test: Any, n: int, message: str) -> None:
    """Each bad split is refused with the rows at fault."""
    test_pairs = np.array(test, np.int64).reshape(-1, 2)
    with pytest.raises(InputError, match=message):
        split_by_exclusion(np.array(pairs), test_pairs, n, n)


@pytest.mark.parametrize(("n", "seed"), [(20, 0), (21, 3)])
def test_protocol_is_the_numpy_recipe(n: int, seed: int) -> None:
    """The split is the published permutation cut at 5, 8 and the middle of the rest."""
    split = protocol_split(n, seed=seed, anchors=5, test=3)
    perm = np.random.default_rng(seed).permutation(n)
    half = 8 + (n - 8) // 2
    np.testing.assert_array_equal(split.anchors, np.stack([perm[:5]] * 2, axis=1))
    np.testing.assert_array_equal(split.test_pairs, np.stack([perm[5:8]] * 2, axis=1))
    np.testing.assert_array_equal(split.pool_x, sorted(perm[8:half]))
    np.testing.assert_array_equal(split.pool_y, sorted(perm[half:]))


def test_protocol_hides_no_pairs() -> None:
    """No row is in both pools, and all rows are used once."""
    split = protocol_split(50, seed=1, anchors=10, test=4)
    parts = [split.anchors[:, 0], split.test_pairs[:, 0], split.pool_x, split.pool_y]
    assert sorted(np.concatenate(parts).tolist()) == list(range(50))


@pytest.mark.parametrize(("n", "anchors", "test"), [(9, 5, 3), (9, 1, 3), (9, 2, -1)])
def test_protocol_needs_enough_rows(n: int, anchors: int, test: int) -> None:
    """Too few rows, or anchors, are refused; one more row passes."""
    assert len(protocol_split(10, seed=0, anchors=5, test=3).pool_x) == 1
    with pytest.raises(InputError, match=f"9 rows cannot be split into {anchors} anch"):
        protocol_split(n, seed=0, anchors=anchors, test=test)


def test_the_digest_is_fixed() -> None:
    """The digest of a split is the same in every process and on every machine."""
    assert split_digest(SPLIT) == "31853df64403dad3"
    assert split_digest(SPLIT._replace(pool_x=SPLIT.pool_x.astype(np.int32))) == (
        split_digest(SPLIT)
    )


def test_the_digest_changes_with_each_part() -> None:
    """Another row anywhere, or a row moved to another part, gives another digest."""
    changed = [
        SPLIT._replace(**{name: rows + 1}) for name, rows in SPLIT._asdict().items()
    ]
    changed.append(SPLIT._replace(pool_x=SPLIT.pool_y, pool_y=SPLIT.pool_x))
    changed.append(
        SPLIT._replace(pool_x=SPLIT.pool_x[:3], pool_y=np.array([6, 2, 4, 5]))
    )
    changed.append(SPLIT._replace(anchors=SPLIT.anchors[::-1]))
    digests = {split_digest(split) for split in [SPLIT, *changed]}
    assert len(digests) == len(changed) + 1


@pytest.mark.parametrize(
    "split", [SPLIT, split_by_exclusion(PAIRS, None, 4, 4, separate_pools_x=True)]
)
def test_a_written_split_is_read_back(tmp_path: Path, split: Split) -> None:
    """Writing then reading gives the same arrays, and leaves no other file."""
    path = tmp_path / "splits.json"
    write_split(split, path, seed=3)
    for got, expected in zip(read_split(path), split, strict=True):
        assert got.dtype == np.int64
        np.testing.assert_array_equal(got, expected)
    record = json.loads(path.read_text())
    assert (record["schema"], record["seed"]) == (1, 3)
    assert [item.name for item in tmp_path.iterdir()] == ["splits.json"]


def test_a_failed_write_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails half-way leaves the old split and no rubbish."""
    path = tmp_path / "splits.json"
    write_split(SPLIT, path, seed=0)

    def fail(self: Path, text: str, **_: Any) -> None:
        with self.open("w") as stream:
            stream.write(text[:20])
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(OSError, match="disk full"):
        write_split(SPLIT._replace(pool_x=np.array([1])), path, seed=0)
    np.testing.assert_array_equal(read_split(path).pool_x, SPLIT.pool_x)
    assert [item.name for item in tmp_path.iterdir()] == ["splits.json"]


def _record(**changes: Any) -> str:
    """Return a split's JSON with some fields replaced."""
    rows = {name: rows.tolist() for name, rows in SPLIT._asdict().items()}
    return json.dumps({"schema": 1, "digest": split_digest(SPLIT), **rows, **changes})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": 1, ', "is not JSON"),
        ("[1, 2]", r"is not a split of schema 1 \(it has \[1, 2\]\)"),
        (_record(schema=2), r"is not a split of schema 1 \(it has 2\)"),
        ('{"schema": 1}', "does not hold the row numbers of a split"),
        (_record(anchors=[[1, 2, 3]]), "does not hold the row numbers of a split"),
        (_record(pool_x=["a"]), "does not hold the row numbers of a split"),
        (_record(pool_x=[1, 3, 5]), "was changed after it was written"),
        (_record(digest=None), "was changed after it was written"),
    ],
    ids=["cut", "list", "schema", "fields", "shape", "type", "edited", "no digest"],
)
def test_damaged_splits_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """A split cut short, edited or of another schema is refused."""
    path = tmp_path / "splits.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_split(path)


def test_a_missing_split_is_refused(tmp_path: Path) -> None:
    """A missing file is refused."""
    with pytest.raises(InputError, match=r"cannot be read \(No such file"):
        read_split(tmp_path / "splits.json")


def test_redrawing_aligned_pairs_is_the_standard_split() -> None:
    pairs = np.repeat(np.arange(50)[:, None], 2, axis=1)
    drawn = redraw_split(pairs, 50, 50, seed=3, anchors=10, test=8)
    standard = protocol_split(50, seed=3, anchors=10, test=8)
    for own, expected in zip(drawn, standard, strict=True):
        np.testing.assert_array_equal(own, expected)


def test_redrawn_pools_hold_no_partner_and_all_unpaired_rows() -> None:
    pairs = np.stack([np.arange(30), 40 - np.arange(30)], axis=1)
    split = redraw_split(pairs, 35, 50, seed=0, anchors=6, test=4)
    partner = dict(pairs.tolist())
    assert {30, 31, 32, 33, 34} <= set(split.pool_x.tolist())
    assert set(range(11)) | set(range(41, 50)) <= set(split.pool_y.tolist())
    partners = {partner[row] for row in split.pool_x.tolist() if row in partner}
    assert not partners & set(split.pool_y.tolist())
    used = set(split.anchors[:, 0]) | set(split.test_pairs[:, 0])
    assert len(used) == 10
    assert not used & set(split.pool_x.tolist())


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([[0, 0], [1, 1]], "2 pairs cannot give 3 anchors and 2 test pairs"),
        ([[0, i] for i in range(6)], "Row 0 of x is in several pairs"),
        ([[i, min(i, 4)] for i in range(6)], "Row 4 of y is in several pairs"),
        ([[i, i + 5] for i in range(6)], "Row 10 of y does not exist"),
        ([[i, i] for i in range(5)], "No row of x is left for its pool"),
    ],
)
def test_pairs_that_cannot_be_redrawn(pairs: list[list[int]], message: str) -> None:
    n = 5 if "left" in message else 10
    with pytest.raises(InputError, match=message):
        redraw_split(np.array(pairs), n, 10, seed=0, anchors=3, test=2)
