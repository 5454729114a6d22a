"""Pairs files: row numbers or ids, and every way to get them wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchordot_jax.data import (
    EmbeddingSource,
    check_enough_pairs,
    open_embeddings,
    read_pairs,
)
from anchordot_jax.data.formats.numpy_files import NPY
from anchordot_jax.errors import InputError

Read = Callable[..., np.ndarray]


def source(n: int = 6, ids: Any = None) -> EmbeddingSource:
    """Return a source of n rows with these ids; its file is never read."""
    ids = None if ids is None else np.array(ids)
    return EmbeddingSource(Path("e.npy"), "", (n, 3), "float32", ids, NPY)


PLAIN = source()
NAMED = source(ids=["a", "b", "c", "d", "e", "f"])


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that reads the pairs in a text."""

    def read_text(
        text: str | bytes,
        x: EmbeddingSource = PLAIN,
        y: EmbeddingSource = PLAIN,
        name: str = "pairs.csv",
        **options: Any,
    ) -> np.ndarray:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_pairs(path, x, y, **options)

    return read_text


@pytest.mark.parametrize(
    "text",
    [
        "x,y\n0,5\n3,1\n",
        "x,y\r\n0,5\r\n3,1",
        "\ufeffx,y\n0,5\n3,1\n",
        "\nx,y\n\n0,5\n\n  \n3,1\n\n",
        'note,y,x\n"a, b",5,0\n"two\nlines",1,3\n',
        " x , y \n 0 , 5\n+3,1\n",
        "y\tx\n5\t0\n1\t3\n",
        '"x","y"\n"0","5"\n"3","1"\n',
        "x,y\n0,5,\n3,1,,\n",
    ],
    ids=[
        "plain",
        "CRLF",
        "BOM",
        "blank lines",
        "quoted fields",
        "spaces",
        "tabs",
        "all quoted",
        "trailing commas",
    ],
)
def test_row_numbers_in_every_dialect(read: Read, text: str) -> None:
    """Each way to write the pairs (0, 5) and (3, 1) gives them."""
    pairs = read(text)
    assert pairs.dtype == np.int64
    np.testing.assert_array_equal(pairs, [[0, 5], [3, 1]])


def test_a_tab_in_the_header_decides(read: Read) -> None:
    """With a tab in the header, commas are part of the values."""
    x = source(ids=["a,1", "b", "c", "d", "e", "f"])
    pairs = read("x\ty\na,1\t2\nd\t1\n", x, name="pairs.tsv")
    np.testing.assert_array_equal(pairs, [[0, 2], [3, 1]])


def test_each_side_decides_for_itself(read: Read) -> None:
    """Ids on one side and row numbers on the other may be mixed."""
    np.testing.assert_array_equal(read("x,y\nb,0\na,3\n", NAMED), [[1, 0], [0, 3]])
    np.testing.assert_array_equal(read("x,y\n4,f\n2,a\n", y=NAMED), [[4, 5], [2, 0]])


def test_row_numbers_work_beside_ids(read: Read) -> None:
    """Whole numbers that are no ids are row numbers, though the file holds ids."""
    np.testing.assert_array_equal(read("x,y\n1,2\n0,2\n", NAMED), [[1, 2], [0, 2]])


def test_integer_ids(read: Read) -> None:
    """Integer ids are matched by value, whatever their zeros and signs."""
    x = source(ids=[100, 200, -300, 400, 500, 7])
    pairs = read("x,y\n200,0\n-300,1\n007,2\n", x)
    np.testing.assert_array_equal(pairs, [[1, 0], [2, 1], [5, 2]])


def test_text_is_never_an_integer_id(read: Read) -> None:
    """A word among integer ids is unknown, also where 0 is an id."""
    with pytest.raises(InputError, match=r"not ids of e\.npy: 'cat' \(first on line 3"):
        read("x,y\n70,0\ncat,1\n", source(ids=[0, 70, 80, 90, 100, 110]))


def test_text_ids_of_digits_are_matched_as_text(read: Read) -> None:
    """Text ids keep their leading zeros."""
    x = source(ids=["007", "7x", "c", "d", "e", "f"])
    np.testing.assert_array_equal(read("x,y\n007,1\n", x), [[0, 1]])


def test_spaces_around_ids_do_not_matter(read: Read) -> None:
    """Spaces are cut from both the file's ids and the pairs'."""
    x = source(ids=["a ", " b", "c", "d", "e", "f"])
    np.testing.assert_array_equal(read("x,y\n a,1\nb ,2\n", x), [[0, 1], [1, 2]])


def test_one_x_may_have_several_y(read: Read) -> None:
    """A row may be in several pairs, on either side."""
    assert len(read("x,y\n0,0\n0,1\n1,1\n")) == 3


@settings(deadline=None, max_examples=25)
@given(
    pairs=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, unique=True
    ),
    by_id=st.booleans(),
)
def test_writing_then_reading_gives_the_pairs(
    tmp_path_factory: pytest.TempPathFactory, pairs: Any, by_id: bool
) -> None:
    """Pairs written by row number or by id are read as the same rows, in order."""
    path = tmp_path_factory.getbasetemp() / "round.csv"
    lines = [f"{'abcdef'[x] if by_id else x},{y}" for x, y in pairs]
    path.write_text("\n".join(["x,y", *lines]))
    np.testing.assert_array_equal(read_pairs(path, NAMED, PLAIN), pairs)


SHIFTED = source(ids=[1, 2, 3, 4, 5, 0])


def test_ambiguous_integers_are_refused(read: Read) -> None:
    """Values that are ids and row numbers of different rows need a decision."""
    text = "x,y\n1,0\n2,1\n"
    message = (
        r"Column x of .*pairs\.csv can be read two ways: on line 2, 1 is row 1 of "
        r"e\.npy but also the id of row 0; pass --pair-keys rows or --pair-keys ids"
    )
    with pytest.raises(InputError, match=message):
        read(text, SHIFTED)
    assert read(text, SHIFTED, keys="rows")[:, 0].tolist() == [1, 2]
    assert read(text, SHIFTED, keys="ids")[:, 0].tolist() == [0, 1]


def test_ambiguous_digits_are_refused(read: Read) -> None:
    """Text ids of digits are as ambiguous as integers."""
    x = source(ids=["1", "2", "3", "4", "5", "0"])
    with pytest.raises(InputError, match="can be read two ways"):
        read("x,y\n1,0\n2,1\n", x)


def test_two_readings_that_agree_are_not_ambiguous(read: Read) -> None:
    """Ids that equal their row numbers need no decision."""
    np.testing.assert_array_equal(
        read("x,y\n3,0\n4,1\n", source(ids=range(6))), [[3, 0], [4, 1]]
    )


def test_a_value_out_of_range_settles_the_reading(read: Read) -> None:
    """Ids beyond the rows cannot be row numbers."""
    x = source(ids=[1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(read("x,y\n1,0\n6,1\n", x), [[0, 0], [5, 1]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"pairs\.csv is empty"),
        ("\n  \n", r"pairs\.csv is empty"),
        ("x,y\n", "holds no pairs, only its header"),
        ("a,b,x\n0,1,2\n", "needs one column x and one column y .* it has a, b, x;"),
        ("x,x,y\n0,1,2\n", "needs one column x and one column y .* it has x, x, y;"),
        ("x;y\n0;1\n", "it has x;y; rename its columns, separated by commas or tabs"),
        ("0,5\n3,1\n", "it has the numbers 0, 5; add the header line x,y"),
        ("x,y\n0,5\n3\n", r"Line 3 of .*pairs\.csv has no value for y"),
        ("x,y\n0,5\n\n ,1\n", r"Line 4 of .*pairs\.csv has no value for x"),
        ("x,y\n0,5,9\n", "Line 2 of .* has 3 fields but the header has 2"),
        ('x,y\n0,"5\n', "not valid CSV"),
        (b"x,y\n\xff,5\n", "is not UTF-8 text"),
        (
            "x,y\n0,5\n1,6\n",
            r"Line 3 of .*: y = '6' is outside e\.npy, which has 6 rows",
        ),
        ("x,y\n-1,5\n", r"x = '-1' is outside .*\(0 to 5; rows count from 0\)\.$"),
        (
            "x,y\n0,1.5\n",
            "Line 2 of .*: y = '1.5' cannot be an id because e.npy has no",
        ),
        ("x,y\n3,1\n0,5\n3,1\n", "pair of x row 3 and y row 1 twice, on lines 2 and 4"),
        ("x,y\n" + "9" * 40 + ",1\n", "cannot be an id"),
    ],
    ids=lambda value: None if "(" in str(value) else repr(value)[:30],
)
def test_malformed_files(read: Read, text: Any, message: str) -> None:
    """Each malformed file is refused with its line."""
    with pytest.raises(InputError, match=message):
        read(text)


def test_line_numbers_count_lines_within_quotes(read: Read) -> None:
    """A quoted field of two lines moves the numbers of the lines after it."""
    with pytest.raises(InputError, match="Line 4 of"):
        read('note,x,y\n"two\nlines",0,1\nb,0,9\n')


def test_unknown_ids_are_listed(read: Read) -> None:
    """The first unknown ids are named, with the line of the first."""
    message = (
        r"4 value\(s\) of column x are not ids of e\.npy: 'p', 'q', 'r', \.\.\. "
        r"\(first on line 3 of .*pairs\.csv\)"
    )
    with pytest.raises(InputError, match=message):
        read("x,y\na,0\np,1\nq,1\nr,1\np,2\ns,0\n", NAMED)


def test_ids_where_there_are_none(read: Read) -> None:
    """Ids for a file without ids are answered with what ids would be."""
    with pytest.raises(
        InputError, match=r"Line 3 .*'cat' cannot be an id .*called ids"
    ):
        read("x,y\n0,0\ncat,1\n")
    with pytest.raises(InputError, match=r"neither e.npy nor e.npy holds ids"):
        read("x,y\n0,0\n", keys="ids")
    with pytest.raises(InputError, match=r"Line 2 .*'u' cannot be an id"):
        read("x,y\na,u\n", NAMED, keys="ids")


def test_an_id_out_of_range_is_explained(read: Read) -> None:
    """A number that is neither an id nor a row says both."""
    x = source(ids=[100, 200, 300, 400, 500, 600])
    with pytest.raises(
        InputError, match=r"'70' is outside .*if it is an id, it is not"
    ):
        read("x,y\n1,0\n70,1\n", x)
    message = r"1 value\(s\) .* are not ids of e\.npy: '700' \(first .*from 0 to 5\)"
    with pytest.raises(InputError, match=message):
        read("x,y\n100,0\n700,1\n", x)
    with pytest.raises(InputError, match="are not ids of"):
        read("x,y\n100,0\n700,1\n", x, keys="ids")


def test_keys_rows_refuses_ids(read: Read) -> None:
    """With keys="rows", an id is not a row number."""
    with pytest.raises(
        InputError, match=r"x = 'b' is not a row number.*--pair-keys ids"
    ):
        read("x,y\nb,0\n", NAMED, keys="rows")


def test_unknown_keys_are_refused(read: Read) -> None:
    """Only the three readings exist."""
    with pytest.raises(InputError, match="keys must be auto, rows or ids; got 'id'"):
        read("x,y\n0,0\n", keys="id")


def test_shared_ids_are_refused_when_used(read: Read) -> None:
    """An id of several rows is refused in a pair, but may stay in the file."""
    x = source(ids=["a", "b", "a", "d", "e", "a"])
    np.testing.assert_array_equal(read("x,y\nd,0\n", x), [[3, 0]])
    message = r"Line 3 of .*: x = 'a' is the id of 3 rows of e\.npy \(0, 2, 5\)"
    with pytest.raises(InputError, match=message):
        read("x,y\nd,0\na,1\n", x)
    labels = source(ids=[0, 1, 0, 1, 0, 1])
    with pytest.raises(InputError, match="for row numbers, pass --pair-keys rows"):
        read("x,y\n0,0\n1,1\n", labels)
    assert read("x,y\n0,0\n1,1\n", labels, keys="rows")[:, 0].tolist() == [0, 1]


def test_missing_files_and_folders(tmp_path: Path) -> None:
    """A missing pairs file and a folder are refused."""
    with pytest.raises(InputError, match=r"none\.csv does not exist"):
        read_pairs(tmp_path / "none.csv", PLAIN, PLAIN)
    with pytest.raises(InputError, match=r"cannot be read \(Is a directory\)"):
        read_pairs(tmp_path, PLAIN, PLAIN)


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_pairs(n: int) -> None:
    """Fewer than two pairs are refused; two pass."""
    check_enough_pairs(np.zeros((2, 2), np.int64), "pairs.csv")
    with pytest.raises(
        InputError, match=rf"pairs\.csv gives {n} pair\(s\); at least 2"
    ):
        check_enough_pairs(np.zeros((n, 2), np.int64), "pairs.csv")


@pytest.mark.realdata
def test_real_ids(real_data: Path, tmp_path: Path) -> None:
    """flickr8k's images by file name and its captions by row number."""
    file = real_data / "flickr8k.h5"
    images, captions = (open_embeddings(f"{file}::{n}") for n in ("image", "text_all"))
    assert images.ids is not None
    path = tmp_path / "pairs.csv"
    lines = [f"{images.ids[i]},{5 * i}" for i in (7000, 3)]
    path.write_text("\n".join(["x,y", *lines]))
    pairs = read_pairs(path, images, captions)
    np.testing.assert_array_equal(pairs, [[7000, 35_000], [3, 15]])
