"""Sums of exponentials over a cost, whole and cut into tiles, against float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

import reference
from anchordot_jax import log_sums, tiles

EPSILON = 0.05


def problem(n: int, m: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return coordinates of both sides and the potential of y, one entry without."""
    rng = np.random.default_rng(seed)
    h = rng.normal(size=m).astype(np.float32)
    if m > 1:
        h[rng.integers(m)] = -np.inf
    return reference.unit_rows(n, 5, seed), reference.unit_rows(m, 5, seed + 1), h


# Every shape is compiled anew.
FEW = settings(deadline=None, max_examples=8)


@FEW
@given(
    n=st.integers(1, 12),
    m=st.integers(1, 23),
    tile=st.tuples(st.integers(1, 7), st.integers(1, 9)),
    signed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_computed_tiles_have_the_sums_of_the_whole(
    n: int, m: int, tile: tuple[int, int], signed: bool, seed: int
) -> None:
    """Whatever rows and columns a tile has, weights of both signs included."""
    x, y, h = problem(n, m, seed)
    vec = np.random.default_rng(seed).normal(size=m).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "tile_shape", lambda _: tile)
        found, sign = log_sums.computed(
            *map(jnp.asarray, (x, y, h)),
            jnp.float32(EPSILON),
            jnp.asarray(vec) if signed else None,
        )
    z = (h[None, :] - reference.cost(x, y)) / EPSILON
    if not signed:
        np.testing.assert_allclose(found, logsumexp(z, axis=1), rtol=1e-5, atol=1e-5)
        return
    largest = z.max(axis=1, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    total = (np.exp(z - largest) * vec).sum(axis=1)
    np.testing.assert_allclose(
        np.exp(found - largest[:, 0]) * sign, total, rtol=1e-4, atol=1e-5
    )


@FEW
@given(
    n=st.integers(1, 23),
    m=st.integers(1, 23),
    axis=st.sampled_from([0, 1]),
    seed=st.integers(0, 99),
)
def test_a_wide_stored_cost_is_read_by_tiles(
    n: int, m: int, axis: int, seed: int
) -> None:
    """With the sums that it has when it is read whole."""
    x, y, _ = problem(n, m, seed)
    cost = jnp.asarray(reference.cost(x, y), jnp.float32)
    rng = np.random.default_rng(seed)
    h = rng.normal(size=cost.shape[axis]).astype(np.float32)
    own = rng.normal(size=cost.shape[1 - axis]).astype(np.float32)
    arguments = cost, jnp.asarray(h), jnp.asarray(own), jnp.float32(EPSILON), axis
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_sums, "WIDE", 0)
        patch.setattr(log_sums, "READ_TILE", (3, 4))
        found = log_sums.read(*arguments)
    z = (np.expand_dims(h, 1 - axis) - np.asarray(cost, np.float64)) / EPSILON
    np.testing.assert_allclose(
        found, EPSILON * logsumexp(z, axis=axis), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(found, log_sums.read(*arguments), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("columns", "tiled"), [(0, False), (1, True)])
def test_only_wide_costs_are_cut(
    monkeypatch: pytest.MonkeyPatch, columns: int, tiled: bool
) -> None:
    """A cost of as many columns as XLA reduces quickly is read whole."""
    calls: list[int] = []
    plain = log_sums._read_tiles

    def spy(*args: jax.Array) -> jax.Array:
        calls.append(1)
        return plain(*args)

    monkeypatch.setattr(log_sums, "_read_tiles", spy)
    cost = jnp.zeros((2, log_sums.WIDE + columns))
    sums = log_sums.read(cost, jnp.zeros(cost.shape[1]), jnp.zeros(2), 0.1, 1)
    assert bool(calls) == tiled
    np.testing.assert_allclose(sums, 0.1 * np.log(cost.shape[1]), rtol=1e-5)
