"""How many rows of the cost to hold at once, from the shapes and the memory nearby."""

import functools
from pathlib import Path

import jax

# Where the size of the last-level cache is not told.
USUAL_CACHE = 32 << 20
# A tile takes this share of the cache: the coordinates and other cores want some too.
CACHE_SHARE = 4
CPU_TILE = (2 << 20, 32 << 20)
ACCELERATOR_TILE = 128 << 20
# A row of a tile: short enough for XLA to reduce it quickly on a CPU, and long enough
# that the products are efficient.
CPU_COLUMNS, ACCELERATOR_COLUMNS = 4096, 1 << 16

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def tile_rows(n_columns: int, *, backend: str | None = None) -> int:
    """Return how many rows of the cost to hold at once.

    A CPU's tile takes a quarter of its last-level cache (8 MiB where that is not
    known), an accelerator's is large enough to keep it busy (128 MiB); at least 64
    rows keep the matrix product efficient.

    Args:
        n_columns: entries of a row.
        backend: a JAX backend's name; the one in use by default.
    """
    rows = tile_bytes(backend or jax.default_backend()) // (4 * n_columns)
    return max(64, min(2048, rows))


def tile_shape(n_columns: int, *, backend: str | None = None) -> tuple[int, int]:
    """Return the rows and columns of a tile, where a row of the cost may be cut.

    Rows up to a limit are whole; longer ones are cut into parts of the same length.

    Args:
        n_columns: entries of a row.
        backend: a JAX backend's name; the one in use by default.
    """
    backend = backend or jax.default_backend()
    most = CPU_COLUMNS if backend == "cpu" else ACCELERATOR_COLUMNS
    columns = -(-n_columns // -(-n_columns // most))
    return tile_rows(columns, backend=backend), columns


def tile_bytes(backend: str) -> int:
    """Return the bytes that one tile may take on a backend."""
    if backend != "cpu":
        return ACCELERATOR_TILE
    least, most = CPU_TILE
    return max(least, min(most, last_level_cache() // CACHE_SHARE))


@functools.cache
def last_level_cache(folder: Path = CACHES) -> int:
    """Return the bytes of the CPU's last-level cache, as Linux tells them.

    32 MiB where it does not.

    Args:
        folder: holds one folder a cache, each with the files `level` and `size`.
    """
    found = []
    for cache in sorted(folder.glob("index*")):
        try:
            level = int((cache / "level").read_text("ascii"))
            found.append((level, _bytes((cache / "size").read_text("ascii"))))
        except (OSError, ValueError):
            continue
    return max(found)[1] if found else USUAL_CACHE


def _bytes(text: str) -> int:
    """Return the bytes of a size such as 32768K."""
    text = text.strip()
    unit = UNITS.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit
