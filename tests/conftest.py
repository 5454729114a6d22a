"""Shared fixtures: strict JAX settings, keys, and the real embedding files."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


def pytest_configure(config: pytest.Config) -> None:
    """Keep compiled programs in pytest's cache: most of the suite is compilation.

    Tests, workers and the processes that tests start share them, and so does the next
    run. `pytest --cache-clear` begins anew.
    """
    if not config.pluginmanager.hasplugin("cacheprovider") or config.cache is None:
        return
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(config.cache.mkdir("jax")))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
    jax.config.update(
        "jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"]
    )
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


MAPS = 20_000
"""Memory maps of a worker, ten for each compiled program, above which all programs are
forgotten: Linux grants a process 65,530, and XLA dies without a word beyond them."""


@pytest.fixture(autouse=True, scope="module")
def _few_programs() -> Iterator[None]:
    """Keep long test runs below the system's limit of memory maps."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MAPS:
        jax.clear_caches()


def data_folder() -> Path:
    """Return the real embeddings: $ANCHORDOT_DATA, or shared/data beside us."""
    named = os.environ.get("ANCHORDOT_DATA")
    return Path(named) if named else REPOSITORY.parent / "shared" / "data"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip `realdata` tests without the data, except on CI, where they must fail."""
    if data_folder().is_dir() or os.environ.get("CI"):
        return
    skip = pytest.mark.skip(reason=f"no real data in {data_folder()}")
    for item in items:
        if "realdata" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _strict_ranks() -> Iterator[None]:
    """Make silent broadcasting between ranks an error."""
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture
def next_key() -> Callable[[], jax.Array]:
    """Return a function that gives a new random key at every call."""
    count = iter(range(1_000_000))
    return lambda: jax.random.fold_in(jax.random.key(20261130), next(count))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of real embeddings; a missing folder is an error here."""
    folder = data_folder()
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is missing; set ANCHORDOT_DATA.")
    return folder
