"""How many rows of the cost a tile has, and the cache that it is to stay in."""

from pathlib import Path

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchordot_jax import geometry, tiles

MIB = 1 << 20


def write_caches(folder: Path, caches: list[tuple[str, str]]) -> Path:
    """Write caches as Linux lists them: a level and a size each."""
    for i, (level, size) in enumerate(caches):
        cache = folder / f"index{i}"
        cache.mkdir()
        (cache / "level").write_text(f"{level}\n", "ascii")
        (cache / "size").write_text(f"{size}\n", "ascii")
    return folder


@given(n_columns=st.integers(1, 10_000_000), backend=st.sampled_from(["cpu", "gpu"]))
def test_tile_stays_in_its_memory(n_columns: int, backend: str) -> None:
    """A tile has 64 to 2048 rows, and fits its memory unless it has only 64."""
    rows = tiles.tile_rows(n_columns, backend=backend)
    limit = tiles.tile_bytes(backend)
    assert 64 <= rows <= 2048
    assert rows == 64 or 4 * rows * n_columns <= limit
    assert rows == 2048 or 4 * (rows + 1) * n_columns > limit
    assert geometry.tile_rows(n_columns) == tiles.tile_rows(
        n_columns, backend=jax.default_backend()
    )


@given(n_columns=st.integers(1, 10_000_000), backend=st.sampled_from(["cpu", "gpu"]))
def test_a_long_row_is_cut_into_equal_parts(n_columns: int, backend: str) -> None:
    """None is longer than the limit, and one part fewer would be."""
    rows, columns = tiles.tile_shape(n_columns, backend=backend)
    most = tiles.CPU_COLUMNS if backend == "cpu" else tiles.ACCELERATOR_COLUMNS
    parts = -(-n_columns // columns)
    assert columns <= most
    assert parts == 1 or (parts - 1) * most < n_columns
    assert parts * columns - n_columns < parts
    assert rows == tiles.tile_rows(columns, backend=backend)
    assert 4 * rows * columns <= tiles.tile_bytes(backend)


@pytest.mark.parametrize(
    ("caches", "expected"),
    [
        ([("1", "32K"), ("1", "32K"), ("2", "512K"), ("3", "32768K")], 32 * MIB),
        ([("1", "64K"), ("2", "1M")], MIB),
        ([("3", "1G"), ("1", "32K")], 1024 * MIB),
        ([("1", "32K"), ("none", "16M"), ("3", "")], 32 << 10),
        ([], tiles.USUAL_CACHE),
    ],
)
def test_the_last_level_is_the_cache(
    tmp_path: Path, caches: list[tuple[str, str]], expected: int
) -> None:
    """The highest level's size; what cannot be read is passed over."""
    folder = write_caches(tmp_path, caches)
    assert tiles.last_level_cache(folder) == expected


def test_without_sysfs_there_is_a_usual_cache(tmp_path: Path) -> None:
    """Where the system tells nothing, 32 MiB."""
    assert tiles.last_level_cache(tmp_path / "absent") == 32 * MIB


@pytest.mark.parametrize(
    ("cache", "expected"),
    [(32 * MIB, 8 * MIB), (MIB, 2 * MIB), (512 * MIB, 32 * MIB)],
)
def test_a_cpu_tile_is_a_share_of_the_cache(
    monkeypatch: pytest.MonkeyPatch, cache: int, expected: int
) -> None:
    """A quarter, within 2 and 32 MiB; an accelerator's does not depend on it."""
    monkeypatch.setattr(tiles, "last_level_cache", lambda: cache)
    assert tiles.tile_bytes("cpu") == expected
    assert tiles.tile_bytes("gpu") == tiles.tile_bytes("tpu") == 128 * MIB
