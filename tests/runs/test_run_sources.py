"""The files that a run notes for later verbs."""

import json
from pathlib import Path

import pytest

from anchordot_jax.errors import InputError
from anchordot_jax.runs.sources import Sources, read_sources, write_sources


def test_names_become_absolute_and_keep_their_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_sources(tmp_path, Sources("x.h5::image", "y.npy", weights_y="w.npy"))
    found = read_sources(tmp_path)
    assert found == Sources(
        f"{tmp_path / 'x.h5'}::image",
        str(tmp_path / "y.npy"),
        weights_y=str(tmp_path / "w.npy"),
    )


def test_a_run_without_them_has_none(tmp_path: Path) -> None:
    assert read_sources(tmp_path) is None


@pytest.mark.parametrize(
    "values",
    [
        {"x": "a"},
        {"x": 1, "y": 2},
        {"z": "a"},
        {"x": "a", "y": "b", "weights_x": 3},
    ],
)
def test_damage_is_said(tmp_path: Path, values: dict[str, object]) -> None:
    (tmp_path / "sources.json").write_text(json.dumps({"schema": 1, **values}))
    with pytest.raises(InputError, match="does not name the run's files"):
        read_sources(tmp_path)
