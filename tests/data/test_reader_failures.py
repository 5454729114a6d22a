"""What cannot be read is refused with one sentence that says why."""

import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anchordot_jax.data import open_embeddings
from anchordot_jax.errors import InputError

NAMED = [".npz", ".h5", ".safetensors", ".parquet"]
SUFFIXES = [".npy", *NAMED]


def test_a_missing_file_suggests_its_neighbour(save: Any, tmp_path: Path) -> None:
    """A mistyped file name is answered with the closest one there."""
    save("images.npy", embeddings=np.ones((2, 3)))
    message = r"image\.npy does not exist \(did you mean images\.npy\?\)"
    with pytest.raises(InputError, match=message):
        open_embeddings(tmp_path / "image.npy")
    with pytest.raises(InputError, match=r"none\.h5 does not exist; check the path"):
        open_embeddings(tmp_path / "nowhere" / "none.h5")


@pytest.mark.parametrize("name", ["folder", "folder.h5"])
def test_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    """A folder is named as one, with or without a known suffix."""
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match="is a folder; name one embedding file in it"):
        open_embeddings(tmp_path / name)


@pytest.mark.parametrize("suffix", [".pkl", ".pt", ".pickle", ".PTH", ".joblib"])
def test_pickles_are_refused(suffix: str) -> None:
    """Pickle suffixes are told what to save instead."""
    with pytest.raises(InputError, match=r"pickles.*save the array as \.npy, \.h5 or"):
        open_embeddings(f"a{suffix}")


def test_an_unknown_suffix_lists_the_known() -> None:
    """An unknown suffix is answered with the known ones."""
    with pytest.raises(InputError, match=r"unknown suffix '\.csv'.*\.npz, \.h5"):
        open_embeddings("a.csv")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    """A file of 0 bytes is called empty."""
    (tmp_path / "a.h5").touch()
    with pytest.raises(InputError, match=r"a\.h5 is empty \(0 bytes\)"):
        open_embeddings(tmp_path / "a.h5")


def test_denied_permission_is_said(save: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable file is said to be so, at opening and at reading."""
    path = save("a.h5", embeddings=np.ones((2, 3)))
    source = open_embeddings(path)

    def deny(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(h5py, "File", deny)
    with pytest.raises(InputError, match=r"a\.h5::embeddings cannot be read: permiss"):
        source.read()
    monkeypatch.setattr(Path, "open", deny)
    with pytest.raises(InputError, match=r"cannot be opened \(Permission denied\)"):
        open_embeddings(path)


def test_a_file_deleted_in_use_is_said(save: Any) -> None:
    """Reading a source whose file is gone says so."""
    path = save("a.npy", embeddings=np.ones((2, 3)))
    source = open_embeddings(path)
    path.unlink()
    with pytest.raises(InputError, match="does not exist any more"):
        source.read()


def test_a_file_changed_in_use_is_said(save: Any) -> None:
    """Reading a source whose file got another shape says so."""
    source = open_embeddings(save("a.npy", embeddings=np.ones((2, 3))))
    save("a.npy", embeddings=np.ones((2, 4)))
    with pytest.raises(InputError, match=r"changed while in use: .* \(2, 3\)"):
        source.read()


@pytest.mark.parametrize("spec", ["::image", "a.h5::", "a.h5::/"])
def test_a_spec_needs_both_parts(spec: str) -> None:
    """A specification without a file or a dataset is explained."""
    with pytest.raises(InputError, match="write FILE or FILE::dataset"):
        open_embeddings(spec)


@pytest.mark.parametrize("suffix", NAMED)
def test_a_missing_dataset_suggests_the_closest(save: Any, suffix: str) -> None:
    """A mistyped dataset is answered with the closest and all that are there."""
    path = save(f"a{suffix}", image=np.ones((4, 3)), text=np.ones((4, 2)))
    message = (
        r"no array called 'imag' \(did you mean image\?\); it holds image \(4, 3\)"
    )
    with pytest.raises(InputError, match=message):
        open_embeddings(f"{path}::imag")


@pytest.mark.parametrize("suffix", NAMED)
def test_several_candidates_are_listed(save: Any, suffix: str) -> None:
    """Without a name, several embedding arrays are listed with an example."""
    path = save(f"a{suffix}", image=np.ones((4, 3)), text=np.ones((4, 2)))
    message = (
        r"several embedding arrays: image \(4, 3\) float64, text \(4, 2\) float64; "
        r"choose one, for example .*::image"
    )
    with pytest.raises(InputError, match=message):
        open_embeddings(path)


def test_long_listings_are_cut(save: Any) -> None:
    """A file of many arrays lists twelve of them."""
    path = save("a.npz", **{f"a{i}": np.ones((4, 3)) for i in range(20)})
    with pytest.raises(InputError, match=r"a11 \(4, 3\) float64, and 8 more"):
        open_embeddings(path)


def test_no_embedding_array_lists_what_is_there(save: Any) -> None:
    """A file of other arrays lists them."""
    path = save("a.npz", a=np.ones(4), b=np.arange(3))
    with pytest.raises(InputError, match=r"no 2-D floating-point array, only a \(4,\)"):
        open_embeddings(path)


def test_a_file_without_arrays_is_refused(tmp_path: Path) -> None:
    """An HDF5 file without datasets says so, with and without a name."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_group("g")
    with pytest.raises(InputError, match="holds no arrays"):
        open_embeddings(path)
    with pytest.raises(InputError, match="no array called 'e'; it holds no arrays"):
        open_embeddings(f"{path}::e")


def test_a_group_is_not_an_array(tmp_path: Path) -> None:
    """A group's name is answered with the arrays in it."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["train/image"] = np.ones((4, 3))
    with pytest.raises(InputError, match=r"is a group; choose an array .*train/image"):
        open_embeddings(f"{path}::train")


def test_npy_has_no_names(save: Any) -> None:
    """A dataset of a .npy file is refused."""
    path = save("a.npy", embeddings=np.ones((4, 3)))
    with pytest.raises(InputError, match="one array without a name; leave out ::image"):
        open_embeddings(f"{path}::image")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_one_dimension_is_refused(save: Any, suffix: str) -> None:
    """A 1-D array is refused with its shape."""
    path = save(f"a{suffix}", embeddings=np.ones(4))
    with pytest.raises(InputError, match=r"must be 2-D .* has the shape \(4,\)"):
        open_embeddings(path)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".h5", ".safetensors"])
def test_three_dimensions_are_refused(save: Any, suffix: str) -> None:
    """A 3-D array is refused with its shape."""
    path = save(f"a{suffix}", embeddings=np.ones((4, 3, 2)))
    with pytest.raises(InputError, match=r"must be 2-D .* has the shape \(4, 3, 2\)"):
        open_embeddings(path)


def test_nested_lists_are_refused(tmp_path: Path) -> None:
    """A Parquet column of lists of lists is a 3-D array."""
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"embeddings": [[[1.0, 2.0]], [[3.0, 4.0]]]}), path)
    with pytest.raises(InputError, match=r"has the shape \(2, 1, 2\)"):
        open_embeddings(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("dtype", ["int64", "uint8"])
def test_integers_are_refused(save: Any, suffix: str, dtype: str) -> None:
    """Integers are not embeddings."""
    path = save(f"a{suffix}", embeddings=np.ones((4, 3), dtype))
    with pytest.raises(InputError, match=f"holds {dtype} but .* floating point"):
        open_embeddings(path)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".h5", ".safetensors"])
@pytest.mark.parametrize("shape", [(0, 3), (4, 0)])
def test_empty_arrays_are_refused(save: Any, suffix: str, shape: Any) -> None:
    """No rows or no dimensions are refused with the shape."""
    path = save(f"a{suffix}", embeddings=np.ones(shape))
    with pytest.raises(InputError, match=r"is empty: its shape is \(\d, \d\)"):
        open_embeddings(path)


def test_an_empty_parquet_table_is_refused(tmp_path: Path) -> None:
    """A table without rows is refused."""
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    column = pa.array([], pa.list_(pa.float32()))
    parquet.write_table(pa.table({"embeddings": column}), path)
    with pytest.raises(InputError, match=r"is empty: its shape is \(0, 0\)"):
        open_embeddings(path)


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_objects_are_never_unpickled(tmp_path: Path, suffix: str) -> None:
    """An object array is refused, not loaded."""
    path = tmp_path / f"a{suffix}"
    objects = np.array([[_Bomb()]], dtype=object)
    if suffix == ".npy":
        np.save(path, objects)
    else:
        np.savez(path, embeddings=objects)
    with pytest.raises(InputError, match="Python objects, which only pickle could"):
        open_embeddings(path)


class _Bomb:
    """An object that fails the test when it is unpickled."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("the file was unpickled",)


def test_object_ids_are_never_unpickled(tmp_path: Path) -> None:
    """Pickled ids beside good embeddings are refused at opening."""
    path = tmp_path / "a.npz"
    np.savez(path, embeddings=np.ones((1, 3)), ids=np.array([_Bomb()], dtype=object))
    with pytest.raises(InputError, match=r"::ids holds Python objects.*astype\(str\)"):
        open_embeddings(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, suffix: str) -> None:
    """A text file with the suffix of a format is not that format."""
    path = tmp_path / f"a{suffix}"
    path.write_text("x,y\n0,1\n" * 20)
    with pytest.raises(InputError, match=rf"a\{suffix} cannot be read as an? "):
        open_embeddings(path)


def test_a_short_npy_is_refused_at_opening(save: Any) -> None:
    """A .npy file without its last byte is not opened."""
    path = save("a.npy", embeddings=np.ones((4, 3)))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"a\.npy cannot be read as a \.npy array"):
        open_embeddings(path)


@settings(deadline=None, max_examples=25)
@given(suffix=st.sampled_from(SUFFIXES), part=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(
    saved: dict[str, Path], suffix: str, part: float
) -> None:
    """A file cut anywhere is refused with an InputError, at opening or reading."""
    whole = saved[suffix].read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"cut{suffix}"
        path.write_bytes(whole[: int(part * len(whole))])
        with pytest.raises(InputError, match=rf"cut\{suffix}") as caught:
            open_embeddings(path).read()
    assert "\n" not in str(caught.value)


# NumPy warns of some type codes that a damaged header may turn into.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@settings(deadline=None, max_examples=25)
@given(
    suffix=st.sampled_from([".npy", ".npz", ".safetensors"]),
    place=st.floats(0, 1, exclude_max=True),
    byte=st.integers(0, 255),
)
def test_a_damaged_byte_never_surprises(
    saved: dict[str, Path], suffix: str, place: float, byte: int
) -> None:
    """A changed byte gives an array or an InputError, never another error."""
    raw = bytearray(saved[suffix].read_bytes())
    raw[int(place * len(raw))] = byte
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"bad{suffix}"
        path.write_bytes(raw)
        outcome = _read_or_refusal(path)
    assert outcome in ("as said", "refused")


def _read_or_refusal(path: Path) -> str:
    """Return whether reading gives the shape promised or an InputError."""
    try:
        source = open_embeddings(path)
        return "as said" if source.read().shape == source.shape else "another shape"
    except InputError as error:
        return "refused" if str(path) in str(error) else "refused without the path"


def test_hdf5_damaged_in_its_data_fails_at_reading(
    save: Any, embeddings: np.ndarray
) -> None:
    """A damaged compressed chunk opens, but its reading is refused."""
    path = save("a.h5", embeddings=embeddings)
    with h5py.File(path) as file:
        place = file["embeddings"].id.get_chunk_info(0).byte_offset
    raw = bytearray(path.read_bytes())
    raw[place : place + 20] = b"\xff" * 20
    path.write_bytes(raw)
    source = open_embeddings(path)
    with pytest.raises(
        InputError, match=r"a\.h5::embeddings cannot be read as an HDF5"
    ):
        source.read()
    with pytest.raises(
        InputError, match=r"a\.h5::embeddings cannot be read as an HDF5"
    ):
        list(source.iter_blocks(10))


def test_a_false_npz_header_asks_for_no_memory(tmp_path: Path) -> None:
    """A member whose header promises terabytes is refused before it is loaded."""
    import io
    import zipfile

    path = tmp_path / "a.npz"
    header = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": (10**9, 1000)}
    np.lib.format.write_array_header_1_0(header, fields)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("embeddings.npy", header.getvalue() + b"\0" * 64)
    with pytest.raises(InputError, match="holds 64 bytes instead of 4000000000000"):
        open_embeddings(path)


def test_parquet_without_pyarrow_says_how_to_get_it(
    saved: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without pyarrow, a Parquet file is answered with the install command."""
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = r"a\.parquet needs pyarrow: pip install 'anchordot-jax\[data\]'"
    with pytest.raises(InputError, match=message):
        open_embeddings(saved[".parquet"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [[1.0, 2.0], [3.0]],
            r"Row 1 of .*::embeddings has 1 values but the first .* 2",
        ),
        ([[1.0, 2.0], None], "Row 1 of .* has 0 values"),
    ],
    ids=["ragged", "missing"],
)
def test_uneven_parquet_rows_are_refused(
    tmp_path: Path, rows: Any, message: str
) -> None:
    """Rows of another length are named."""
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"embeddings": rows}), path)
    with pytest.raises(InputError, match=message):
        open_embeddings(path).read()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([0, 40], r"Row 40 is not in .*a\.npy, which has 40 rows \(0 to 39"),
        ([-1], "Row -1 is not in"),
        ([0.0, 1.0], r"1-D list of row numbers; got float64 of shape \(2,\)"),
        (np.ones(40, bool), r"got bool .*numpy\.flatnonzero"),
        ([[1]], r"got int64 of shape \(1, 1\)"),
    ],
    ids=["too large", "negative", "floats", "mask", "2-D"],
)
def test_wrong_rows_are_refused(
    saved: dict[str, Path], rows: Any, message: str
) -> None:
    """Rows that are not row numbers of the file are named."""
    with pytest.raises(InputError, match=message):
        open_embeddings(saved[".npy"]).read(rows)


def test_a_batch_of_none_is_refused(saved: dict[str, Path]) -> None:
    """Blocks need at least one row."""
    with pytest.raises(InputError, match="batch must be at least 1; got 0"):
        next(open_embeddings(saved[".npy"]).iter_blocks(0))


@pytest.mark.realdata
def test_real_file_without_a_name_is_ambiguous(real_data: Path) -> None:
    """chebi20 holds three embedding arrays and says so."""
    message = r"molecule \(5801, 512\) float16, molecule_fp .*, text \(5801, 384\)"
    with pytest.raises(InputError, match=message):
        open_embeddings(real_data / "chebi20.h5")
