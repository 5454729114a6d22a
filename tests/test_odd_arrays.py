"""Arrays of every odd kind: a finite model, or one sentence, and nothing between."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from anchordot_jax import AlignedModel, AnchorDOT, Config, DistillationConfig
from anchordot_jax.data import open_embeddings
from anchordot_jax.errors import InputError
from planted import leaves, same_model

CONFIG = Config(
    recipe="paper",
    gamma=1.0,
    eta=0.1,
    distillation=DistillationConfig(dim=4, epochs=2, chunk_size=8),
)
N, DIM, N_PAIRS = 24, 6, 8
PAIRS = np.stack([np.arange(N_PAIRS)] * 2, axis=1)


def rows(dim: int = DIM, n: int = N) -> np.ndarray:
    """Return some embeddings that float16 holds exactly."""
    return np.random.default_rng(dim).normal(size=(n, dim)).astype(np.float16)


def fit(x: np.ndarray, **options: np.ndarray) -> AlignedModel:
    """Return the model of x beside an ordinary y."""
    y = rows(5).astype(np.float32)
    return AnchorDOT(CONFIG).fit(x, y, PAIRS, **options)


@pytest.fixture(scope="module")
def usual() -> AlignedModel:
    """Return the model of the ordinary rows."""
    return fit(rows().astype(np.float32))


def with_value(value: float, dtype: str) -> np.ndarray:
    """Return rows of which one entry has a value."""
    with np.errstate(over="ignore"):
        array = rows().astype(dtype)
        array[20, 2] = value
    return array


def strided() -> np.ndarray:
    """Return the ordinary rows as a view with gaps, backwards in memory."""
    buffer = np.full((2 * N, 3 * DIM), np.nan, np.float32)
    view = buffer[::-2, ::-3]
    view[:] = rows()
    return view


SAME: dict[str, Callable[[], np.ndarray]] = {
    "float16": rows,
    "float64": lambda: rows().astype(np.float64),
    "longdouble": lambda: rows().astype(np.longdouble),
    "big-endian": lambda: rows().astype(">f4"),
    "big-endian float64": lambda: rows().astype(">f8"),
    "Fortran order": lambda: np.asfortranarray(rows().astype(np.float32)),
    "not contiguous": strided,
    "read-only": lambda: np.frombuffer(
        rows().astype(np.float32).tobytes(), np.float32
    ).reshape(N, DIM),
}


@pytest.mark.parametrize("name", SAME)
def test_the_layout_of_numbers_does_not_matter(name: str, usual: AlignedModel) -> None:
    """The same numbers lead to the same bits, however they lie in memory."""
    assert same_model(fit(SAME[name]()), usual)


def scaled(factor: float) -> np.ndarray:
    """Return the ordinary rows as float32, times a factor."""
    return rows().astype(np.float32) * np.float32(factor)


REFUSED: dict[str, tuple[Callable[[], np.ndarray], str]] = {
    "float16 overflow": (lambda: with_value(1e5, "f2"), r"x has 1 row with NaN or inf"),
    "float64 overflow": (lambda: with_value(1e300, "f8"), r"NaN or inf.*\(row 20\)"),
    "squares overflow": (
        lambda: with_value(1e25, "f4"),
        r"1 row with a length outside 1e-15 to 1e\+15 \(row 20\); scale",
    ),
    "subnormal rows": (lambda: scaled(1e-40), "rows with a length outside 1e-15"),
    "squares underflow": (lambda: scaled(1e-25), "rows with a length outside 1e-15"),
    "one column": (lambda: rows(1), r"x embeddings have 1 column, .* at least 2"),
    "one dimension": (lambda: rows()[:, 0], r"must be a 2-D floating array"),
    "no columns": (lambda: rows()[:, :0], r"x has .* only zeros"),
    "whole numbers": (lambda: np.ones((N, DIM), np.int64), r"2-D floating array"),
    "complex numbers": (lambda: rows().astype(np.complex64), r"2-D floating array"),
    "objects": (lambda: rows().astype(object), r"2-D floating array"),
    "all NaN": (lambda: np.full((N, DIM), np.nan, np.float32), "NaN"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused(name: str) -> None:
    """By one sentence that names the side, and the rows where it is some of them."""
    make, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as refused:
        fit(make())
    assert "\n" not in str(refused.value)


def constant_columns() -> np.ndarray:
    """Return rows of which three columns are constant."""
    array = rows().astype(np.float32)
    array[:, :3] = 2.0
    return array


def duplicated() -> np.ndarray:
    """Return rows of which the first, an anchor, comes many times."""
    array = rows().astype(np.float32)
    array[3:20] = array[0]
    return array


FINITE: dict[str, Callable[[], np.ndarray]] = {
    "constant columns": constant_columns,
    "duplicated rows": duplicated,
    "all rows the same": lambda: np.tile(rows()[:1], (N, 1)),
    "one subnormal number": lambda: with_value(1e-40, "float32"),
    "the longest rows": lambda: rows() * np.float32(1e14),
    "the shortest rows": lambda: rows() * np.float32(1e-14),
    "largest float16": lambda: with_value(65504, "float16"),
    "two columns": lambda: rows(2),
    "100,000 columns": lambda: rows(100_000).astype(np.float32),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FINITE)
def test_what_is_odd_but_usable_gives_a_finite_model(name: str) -> None:
    """Unit-norm embeddings of the odd rows, and finite parameters."""
    x = FINITE[name]()
    model = fit(x)
    assert all(np.isfinite(leaf).all() for leaf in leaves(model).values())
    assert np.allclose(np.linalg.norm(model.embed_x(x), axis=1), 1, atol=1e-5)


@pytest.mark.slow
def test_pools_of_one_item_will_do() -> None:
    """One row on each side, or on one side only."""
    x, one = rows().astype(np.float32), rows()[-1:].astype(np.float32)
    for options in (
        {"pool_x": one, "pool_y": rows(5)[-1:]},
        {"pool_x": one},
        {"pool_y": rows(5)[-1:]},
    ):
        model = fit(x, **options)
        assert all(np.isfinite(leaf).all() for leaf in leaves(model).values())


def test_long_rows_embed_like_their_directions(usual: AlignedModel) -> None:
    """The model refuses what a fit would, and nothing else."""
    x = rows().astype(np.float32)
    assert np.allclose(usual.embed_x(x * np.float32(1e14)), usual.embed_x(x), atol=1e-5)
    with pytest.raises(InputError, match="length outside"):
        usual.embed_x(x * np.float32(1e-30))


@pytest.mark.parametrize("dtype", ["<f2", ">f2", ">f4", ">f8"])
def test_files_of_either_byte_order_read_the_same(tmp_path: Path, dtype: str) -> None:
    """From .npy, in Fortran order too, and from HDF5."""
    stored = rows().astype(dtype)
    np.save(tmp_path / "c.npy", stored)
    np.save(tmp_path / "f.npy", np.asfortranarray(stored))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["embeddings"] = stored
    for name in ("c.npy", "f.npy", "a.h5"):
        read = open_embeddings(tmp_path / name).read([5, 2, 5])
        assert read.dtype == np.dtype("=f4")
        assert np.array_equal(read, rows()[[5, 2, 5]].astype(np.float32))
