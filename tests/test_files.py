"""Files appear complete or not at all, and a refusal leaves nothing behind."""

import stat
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from anchordot_jax import files
from anchordot_jax.errors import InputError
from planted import tree

Replacing = Callable[[Path], AbstractContextManager[Path]]


def test_replacing_shows_the_old_file_until_the_end(tmp_path: Path) -> None:
    """The old contents stay readable while the new ones are written."""
    path = tmp_path / "a.txt"
    path.write_text("old", encoding="utf-8")
    with files.replacing(path) as temporary:
        assert temporary.suffix == ".txt"
        temporary.write_text("new", encoding="utf-8")
        assert path.read_text(encoding="utf-8") == "old"
    assert path.read_text(encoding="utf-8") == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_replacing_makes_the_folders_above(tmp_path: Path) -> None:
    """A file may be written into folders that are not there yet."""
    with files.replacing(tmp_path / "a" / "b" / "c.txt") as temporary:
        temporary.write_text("new", encoding="utf-8")
    assert sorted(tree(tmp_path)) == ["a", "a/b", "a/b/c.txt"]


def fail(path: Path, replacing: Replacing) -> None:
    """Raise OSError in the middle of writing."""
    with replacing(path) as temporary:
        (temporary / "half" if temporary.is_dir() else temporary).write_bytes(b"half")
        raise OSError("disk full")


@pytest.mark.parametrize("replacing", [files.replacing, files.replacing_folder])
def test_a_failure_leaves_nothing(tmp_path: Path, replacing: Replacing) -> None:
    """After an error there is no file, no temporary file and no new folder."""
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="disk full"):
        fail(tmp_path / "a" / "b" / "c" / "d", replacing)
    assert tree(tmp_path) == {"a": ""}


def test_a_failure_keeps_the_old_file(tmp_path: Path) -> None:
    """An error while writing leaves the earlier file as it was."""
    path = tmp_path / "a.txt"
    path.write_text("old", encoding="utf-8")
    before = tree(tmp_path)
    with pytest.raises(OSError, match="disk full"):
        fail(path, files.replacing)
    assert tree(tmp_path) == before


def test_a_failure_keeps_the_old_folder(tmp_path: Path) -> None:
    """An error while writing leaves the earlier folder as it was."""
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "old").write_text("old", encoding="utf-8")
    before = tree(tmp_path)
    with pytest.raises(OSError, match="disk full"):
        fail(folder, files.replacing_folder)
    assert tree(tmp_path) == before


def test_a_replaced_folder_holds_only_the_new_files(tmp_path: Path) -> None:
    """Nothing of the earlier folder is left."""
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "old").write_text("old", encoding="utf-8")
    with files.replacing_folder(folder) as temporary:
        (temporary / "new").write_text("new", encoding="utf-8")
    assert sorted(tree(tmp_path)) == ["a", "a/new"]


def test_new_files_have_the_usual_access_rights(tmp_path: Path) -> None:
    """They are as readable as files that `open` makes, not private ones."""
    (tmp_path / "plain").write_text("", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    with files.replacing(tmp_path / "file"):
        pass
    with files.replacing_folder(tmp_path / "new"):
        pass

    def mode(name: str) -> int:
        return stat.S_IMODE((tmp_path / name).stat().st_mode)

    assert mode("file") == mode("plain")
    assert mode("new") == mode("folder")


def test_json_survives_a_round_trip(tmp_path: Path) -> None:
    """What was written is read, numbers to the last bit."""
    values = {"a": 0.1 + 0.2, "b": [1, None, True], "c": {"d": "é"}}
    files.write_json(tmp_path / "a.json", values)
    assert files.read_json(tmp_path / "a.json", "It") == values


def test_values_that_json_lacks_are_not_written(tmp_path: Path) -> None:
    """NaN raises, and no file appears."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(tmp_path / "a.json", {"a": float("nan")})
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (None, r"^The thing has no a\.json \(.*a\.json\)\.$"),
        (b'{"a": 1', r"a\.json could not be read as JSON: "),
        (b"\xff\xfe", r"a\.json could not be read as JSON: "),
        (b"[1]", r"a\.json must hold a JSON object, got list\."),
    ],
    ids=["missing", "cut short", "not text", "no object"],
)
def test_unreadable_json(tmp_path: Path, contents: bytes | None, message: str) -> None:
    """A missing, damaged or foreign file is said in one sentence."""
    path = tmp_path / "a.json"
    if contents is not None:
        path.write_bytes(contents)
    with pytest.raises(InputError, match=message):
        files.read_json(path, "The thing")


def test_a_writable_place_is_not_made_yet(tmp_path: Path) -> None:
    """The check passes for new folders and makes none."""
    files.check_writable(tmp_path / "a" / "b")
    files.check_output_file(tmp_path / "a" / "b.npy")
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("below", ["", "b", "b/c"])
def test_a_file_in_the_way(tmp_path: Path, below: str) -> None:
    """No folder can be at or below a file."""
    (tmp_path / "a").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match=r"a file of that name is in the way\."):
        files.check_writable(tmp_path / "a" / below)


def test_a_place_without_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system says is passed on."""

    def refuse(dir: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(InputError, match=r"written to \(Permission denied\); choose"):
        files.check_writable(tmp_path / "a")


def test_a_folder_is_no_output_file(tmp_path: Path) -> None:
    """A file cannot take a folder's place."""
    with pytest.raises(InputError, match=r"is a folder; name a file\."):
        files.check_output_file(tmp_path)


@pytest.mark.parametrize("values", [{}, {"schema": "1"}, {"schema": 0}])
def test_a_file_without_a_schema(values: dict[str, Any]) -> None:
    """A file that names no schema number is not ours."""
    with pytest.raises(InputError, match="It names no schema number"):
        files.check_schema(values, 1, "It")


def test_a_newer_schema() -> None:
    """The versions are named, and the way out."""
    files.check_schema({"schema": 2}, 2, "It")
    message = "It has schema 3, and this version reads up to 2; upgrade anchordot-jax"
    with pytest.raises(InputError, match=message):
        files.check_schema({"schema": 3}, 2, "It")
