"""Reading embeddings: every format gives the same rows, ids and types."""

import json
import multiprocessing
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchordot_jax.data import EmbeddingSource, open_embeddings, source
from anchordot_jax.data.formats import hdf5_files, parquet_files

SUFFIXES = [".npy", ".npz", ".h5", ".hdf5", ".safetensors", ".parquet"]
NAMED = [".npz", ".h5", ".safetensors", ".parquet"]
TEXTUAL = [".npz", ".h5", ".parquet"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_any_float_type_is_read_as_float32(
    save: Any, embeddings: np.ndarray, suffix: str, dtype: str
) -> None:
    """Each stored type comes back as contiguous float32 of the same values."""
    stored = embeddings.astype(dtype)
    opened = open_embeddings(save(f"a{suffix}", embeddings=stored))
    got = opened.read()
    assert (opened.shape, opened.dtype) == ((40, 6), dtype)
    assert got.dtype == np.float32
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, stored.astype(np.float32))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "rows",
    [
        [3],
        [39, 0, 17, 17, 2],
        [],
        np.array([5, 4], np.uint8),
        range(10, 30, 7),
        slice(None),
        slice(4, 25),
        slice(30, 3, -5),
        slice(100, 200),
    ],
    ids=str,
)
def test_rows_follow_numpy_indexing(
    saved: dict[str, Path], embeddings: np.ndarray, suffix: str, rows: Any
) -> None:
    """Order, duplicates, slices and the empty request give what NumPy gives."""
    index = rows if isinstance(rows, slice) else np.array(rows, np.int64)
    got = open_embeddings(saved[suffix]).read(rows)
    np.testing.assert_array_equal(got, embeddings[index])
    assert got.flags.c_contiguous


@settings(deadline=None, max_examples=25)
@given(rows=st.lists(st.integers(0, 39), max_size=60), suffix=st.sampled_from(SUFFIXES))
def test_read_is_indexing(
    saved: dict[str, Path], embeddings: np.ndarray, rows: list[int], suffix: str
) -> None:
    """read(rows) equals full[rows]."""
    got = open_embeddings(saved[suffix]).read(rows)
    np.testing.assert_array_equal(got, embeddings[np.array(rows, np.int64)])


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("batch", [1, 16, 39, 40, 1000])
def test_blocks_cover_all_rows_once(
    saved: dict[str, Path], embeddings: np.ndarray, suffix: str, batch: int
) -> None:
    """The blocks, placed at their first rows, are the whole array."""
    blocks = list(open_embeddings(saved[suffix]).iter_blocks(batch))
    assert [start for start, _ in blocks] == list(range(0, 40, batch))
    assert all(block.dtype == np.float32 for _, block in blocks)
    np.testing.assert_array_equal(np.concatenate([b for _, b in blocks]), embeddings)


def test_bfloat16_is_widened_exactly(tmp_path: Path) -> None:
    """The bfloat16 bits 0x3F80, 0xC040, 0x7F80 are 1, -3 and infinity."""
    header = {"e": {"dtype": "BF16", "shape": [3, 1], "data_offsets": [0, 6]}}
    text = json.dumps(header).encode()
    bits = struct.pack("<3H", 0x3F80, 0xC040, 0x7F80)
    path = tmp_path / "b.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bits)
    opened = open_embeddings(path)
    assert opened.dtype == "bfloat16"
    np.testing.assert_array_equal(opened.read([2, 0, 1]), [[np.inf], [1.0], [-3.0]])


@pytest.mark.parametrize("suffix", [".npy", ".h5"])
def test_other_byte_orders_and_layouts_keep_their_values(
    save: Any, embeddings: np.ndarray, suffix: str
) -> None:
    """Big-endian, Fortran-ordered storage gives the same rows."""
    stored = np.asfortranarray(embeddings.astype(">f4"))
    got = open_embeddings(save(f"a{suffix}", embeddings=stored)).read([7, 1])
    np.testing.assert_array_equal(got, embeddings[[7, 1]])


def test_values_beyond_float32_become_infinite(save: Any) -> None:
    """A float64 of 1e300 is read as infinity, without a warning."""
    opened = open_embeddings(save("a.npy", embeddings=np.array([[1e300, 1.0]])))
    np.testing.assert_array_equal(opened.read(), [[np.inf, 1.0]])


@pytest.mark.parametrize("suffix", TEXTUAL)
@pytest.mark.parametrize("name", ["ids", "id", "keys"])
def test_text_ids_are_found(
    save: Any, embeddings: np.ndarray, suffix: str, name: str
) -> None:
    """A column of text called ids, id or keys gives the ids."""
    ids = np.array([f"café {i}" if suffix != ".h5" else f"item {i}" for i in range(40)])
    path = save(f"a{suffix}", embeddings=embeddings, **{name: ids})
    got = open_embeddings(path).ids
    assert got is not None
    np.testing.assert_array_equal(got, ids)


@pytest.mark.parametrize("suffix", NAMED)
def test_whole_number_ids_are_int64(
    save: Any, embeddings: np.ndarray, suffix: str
) -> None:
    """Ids of any integer type come as int64."""
    ids = np.arange(100, 140, dtype=np.uint16)
    got = open_embeddings(save(f"a{suffix}", embeddings=embeddings, ids=ids)).ids
    assert got is not None
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, ids)


def test_hashes_beyond_int64_stay_as_text(save: Any) -> None:
    """A uint64 id that int64 cannot hold keeps its digits."""
    ids = np.array([2**64 - 1, 5], np.uint64)
    got = open_embeddings(save("a.npz", embeddings=np.ones((2, 3)), ids=ids)).ids
    np.testing.assert_array_equal(got, ["18446744073709551615", "5"])


def test_utf8_bytes_and_variable_strings_are_ids(tmp_path: Path) -> None:
    """HDF5 ids in UTF-8, of fixed or of variable length, are decoded."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for group in ("fixed", "variable"):
            file[f"{group}/e"] = np.ones((2, 3), np.float32)
        file["fixed/ids"] = np.array(["é".encode(), b"b"])
        file["variable/ids"] = ["é", "b"]
    for group in ("fixed", "variable"):
        ids = open_embeddings(f"{path}::{group}/e").ids
        np.testing.assert_array_equal(ids, ["é", "b"])


@pytest.mark.parametrize(
    "ids",
    [np.arange(39), np.arange(40).reshape(20, 2), np.linspace(0, 1, 40)],
    ids=["another length", "2-D", "floats"],
)
def test_what_does_not_fit_is_not_ids(
    save: Any, embeddings: np.ndarray, ids: np.ndarray
) -> None:
    """Ids are 1-D text or whole numbers, as many as rows; else there are none."""
    assert open_embeddings(save("a.npz", embeddings=embeddings, ids=ids)).ids is None


@pytest.mark.parametrize("rest", [range(39), map(str, range(39))], ids=["int", "text"])
def test_a_column_with_a_gap_is_not_ids(
    save: Any, embeddings: np.ndarray, rest: Any
) -> None:
    """A Parquet id column with a missing value gives no ids."""
    ids = [None, *rest]
    assert open_embeddings(save("a.parquet", embeddings=embeddings, id=ids)).ids is None


def test_ids_of_the_own_group_come_first(tmp_path: Path) -> None:
    """An HDF5 group's own ids go before those at the root, which serve the others."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["ids"] = [10, 11]
        file["train/ids"] = [20, 21]
        file["train/e"] = file["test/e"] = np.ones((2, 3))
    np.testing.assert_array_equal(open_embeddings(f"{path}::train/e").ids, [20, 21])
    np.testing.assert_array_equal(open_embeddings(f"{path}::/test/e").ids, [10, 11])


@pytest.mark.parametrize("suffix", NAMED)
def test_the_default_array_is_embeddings(save: Any, suffix: str) -> None:
    """Without a name, `embeddings` goes before other 2-D arrays."""
    arrays = {"a": np.zeros((4, 3)), "embeddings": np.ones((4, 3))}
    path = save(f"a{suffix}", **arrays)
    assert open_embeddings(path).name == "embeddings"
    assert open_embeddings(f"{path}::a").read().max() == 0


@pytest.mark.parametrize("suffix", NAMED)
def test_the_only_embedding_array_needs_no_name(save: Any, suffix: str) -> None:
    """Without a name, the one 2-D floating array is taken."""
    path = save(f"a{suffix}", split=np.arange(4), v=np.ones((4, 3)), w=np.ones(4))
    opened = open_embeddings(path)
    assert opened.where == f"{path}::v"
    assert "::v" not in repr(opened.ids)


def test_fixed_size_lists_are_embeddings(
    tmp_path: Path, embeddings: np.ndarray
) -> None:
    """A Parquet column of lists of fixed size is read as one of variable size."""
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "a.PARQUET"
    column = pa.FixedSizeListArray.from_arrays(embeddings.ravel(), 6)
    ids = pa.array([f"i{i % 4}" for i in range(40)]).dictionary_encode()
    parquet.write_table(pa.table({"v": column, "id": ids}), path, row_group_size=9)
    opened = open_embeddings(f"{path}::v")
    np.testing.assert_array_equal(opened.read([33, 2]), embeddings[[33, 2]])
    assert opened.ids is not None
    assert opened.ids[6] == "i2"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_small_pieces_make_the_same_whole(
    saved: dict[str, Path],
    embeddings: np.ndarray,
    suffix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reading in pieces of 3 rows, from batches of 5, gives the same rows."""
    monkeypatch.setattr(source, "PIECE_BYTES", 3 * 6 * 4)
    monkeypatch.setattr(parquet_files, "BATCH_ROWS", 5)
    opened = open_embeddings(saved[suffix])
    rows = [*range(2, 30), 39, 4]
    np.testing.assert_array_equal(opened.read(), embeddings)
    np.testing.assert_array_equal(opened.read(rows), embeddings[rows])


def test_a_path_may_hold_two_colons(tmp_path: Path) -> None:
    """An existing Path is taken as it is, whatever its name."""
    path = tmp_path / "a::b.npy"
    np.save(path, np.ones((2, 3)))
    assert open_embeddings(path).shape == (2, 3)


def _read_in_child(opened: EmbeddingSource) -> float:
    """Return the sum over some rows; runs in another process."""
    return float(opened.read([30, 2]).sum())


def test_two_processes_read_one_file(
    saved: dict[str, Path], embeddings: np.ndarray
) -> None:
    """A source sent to other processes reads there, while it is read here."""
    opened = open_embeddings(saved[".h5"])
    blocks = opened.iter_blocks(8)
    next(blocks)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        sums = pool.map(_read_in_child, [opened, opened])
    np.testing.assert_allclose(sums, [embeddings[[30, 2]].sum()] * 2, rtol=1e-6)
    assert next(blocks)[0] == 8


@pytest.mark.parametrize("suffix", [".npy", ".safetensors", ".h5"])
def test_few_rows_take_little_memory(tmp_path: Path, suffix: str) -> None:
    """Reading 20 scattered rows of 10 MB allocates well under 1 MB."""
    path = tmp_path / f"a{suffix}"
    array = np.ones((20_000, 128), np.float32)
    if suffix == ".npy":
        np.save(path, array)
    elif suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["e"] = array
    else:
        from safetensors.numpy import save_file

        save_file({"e": array}, path)
    del array
    opened = open_embeddings(path)
    tracemalloc.start()
    try:
        opened.read(range(0, 20_000, 1000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_parquet_reads_only_touched_row_groups(
    saved: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows 1 and 35 of row groups of 16 decode the first and the third group only."""
    from pyarrow import parquet

    opened = open_embeddings(saved[".parquet"])
    seen: list[Any] = []
    plain = parquet.ParquetFile.iter_batches

    def spy(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(args[1] if len(args) > 1 else None)
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", spy)
    opened.read([35, 1])
    assert [groups for groups in seen if groups is not None] == [[0], [2]]


class _Spy:
    """A dataset that notes the spans read from it."""

    def __init__(self, array: np.ndarray, chunks: tuple[int, int] | None) -> None:
        self.array, self.chunks = array, chunks
        self.shape, self.dtype = array.shape, array.dtype
        self.spans: list[tuple[int, int]] = []

    def __getitem__(self, span: slice) -> np.ndarray:
        self.spans.append((int(span.start), int(span.stop)))
        return self.array[span]


def test_hdf5_reads_each_chunk_once() -> None:
    """Rows in chunks 0, 1 and 5 of ten rows need two spans, one over 0 and 1."""
    spy = _Spy(np.arange(120.0).reshape(60, 2), (10, 1))
    rows = np.array([1, 2, 8, 15, 53, 59])
    np.testing.assert_array_equal(hdf5_files._pick(spy, rows), spy.array[rows])
    assert spy.spans == [(1, 16), (53, 60)]


def test_hdf5_spans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run of rows is read in spans of SPAN_BYTES that end at chunk edges."""
    monkeypatch.setattr(hdf5_files, "SPAN_BYTES", 2 * 10 * 16)
    spy = _Spy(np.arange(120.0).reshape(60, 2), (10, 2))
    np.testing.assert_array_equal(
        hdf5_files._pick(spy, np.arange(5, 60)), spy.array[5:]
    )
    assert spy.spans == [(5, 20), (20, 40), (40, 60)]


def test_hdf5_without_chunks_skips_wide_gaps() -> None:
    """In contiguous storage, rows further apart than GAP_BYTES are read alone."""
    array = np.zeros((100, 1024))
    spy = _Spy(array, None)
    hdf5_files._pick(spy, np.array([0, 3, 90]))
    assert spy.spans == [(0, 4), (90, 91)]


@pytest.mark.realdata
def test_real_files_open(real_data: Path) -> None:
    """flickr8k's captions have no ids of their own; its images have."""
    captions = open_embeddings(f"{real_data / 'flickr8k.h5'}::text_all")
    images = open_embeddings(f"{real_data / 'flickr8k.h5'}::image")
    assert captions.shape == (35_430, 384)
    assert captions.ids is None
    assert images.ids is not None
    assert images.ids[0] == "1001773457_577c3a7d70.jpg"
    rows = np.random.default_rng(0).permutation(35_430)[:300]
    with h5py.File(real_data / "flickr8k.h5") as file:
        expected = file["text_all"][:][rows].astype(np.float32)
    np.testing.assert_array_equal(captions.read(rows), expected)


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "d"), [("molecule", 512), ("text", 384)])
def test_real_molecules_are_unit_norm(real_data: Path, name: str, d: int) -> None:
    """chebi20's rows have norm 1 up to float16."""
    opened = open_embeddings(f"{real_data / 'chebi20.h5'}::{name}")
    assert opened.shape == (5801, d)
    norms = np.linalg.norm(opened.read(slice(0, 5801, 100)), axis=1)
    np.testing.assert_allclose(norms, 1, atol=2e-3)
