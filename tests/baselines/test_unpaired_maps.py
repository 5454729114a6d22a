"""Clouds without pairs: preprocessing, principal axes, Procrustes, the model."""

import dataclasses

import numpy as np
import pytest
import scipy.stats

import reference
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.baselines.unpaired import clouds as unpaired
from anchordot_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class NoSettings:
    """Settings of a method that has none."""


def skewed(n: int, d: int, seed: int) -> np.ndarray:
    """Return a cloud whose principal axes differ in variance and have skewness."""
    rng = np.random.default_rng(seed)
    rows = rng.gamma(2.0, size=(n, d)) * np.linspace(1, 3, d)
    return reference.unit(rows).astype(np.float32)


def rotation(d: int, seed: int) -> np.ndarray:
    """Return a random orthogonal matrix."""
    drawn: np.ndarray = scipy.stats.ortho_group.rvs(d, random_state=seed)
    return drawn


def test_a_centred_cloud_is_unit_centre_unit() -> None:
    """Rows scaled to unit norm, less their mean, scaled again."""
    cloud = unpaired.centred_cloud(np.array([[2.0, 0.0], [0.0, 3.0], [3.0, 4.0]]))
    np.testing.assert_allclose(cloud.mean, [1.6 / 3, 1.8 / 3], atol=1e-12)
    expected = reference.unit(
        np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]) - [1.6 / 3, 0.6]
    )
    np.testing.assert_allclose(cloud.rows, expected, atol=1e-12)
    np.testing.assert_array_equal(cloud.kernel, np.eye(2))


def test_principal_coordinates_do_not_depend_on_the_basis() -> None:
    """A rotated or reflected cloud has the same coordinates, signs included."""
    rows = skewed(200, 6, 0)
    one = unpaired.principal_cloud(rows, 4)
    for seed in range(4):
        turned = unpaired.principal_cloud(rows @ rotation(6, seed), 4)
        np.testing.assert_allclose(turned.rows, one.rows, atol=1e-4)


def test_principal_axes_are_those_of_the_covariance() -> None:
    """Orthonormal, in decreasing order of variance, the eigenvectors of it."""
    rows = reference.unit(skewed(150, 5, 1))
    cloud = unpaired.principal_cloud(rows, 3)
    values, vectors = np.linalg.eigh(np.cov(rows.T))
    top = vectors[:, ::-1][:, :3]
    np.testing.assert_allclose(np.abs(top.T @ cloud.kernel), np.eye(3), atol=1e-6)
    spread = ((rows - rows.mean(axis=0)) @ cloud.kernel).var(axis=0, ddof=1)
    np.testing.assert_allclose(spread, values[::-1][:3], rtol=1e-6)


def test_procrustes_by_hand() -> None:
    """A quarter turn is found exactly, and so is a reflection."""
    x = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    quarter = np.array([[0.0, -1.0], [1.0, 0.0]])
    np.testing.assert_allclose(unpaired.procrustes(x, x @ quarter), quarter, atol=1e-12)
    values = np.linalg.svd(x.T @ x @ quarter, compute_uv=False)
    np.testing.assert_allclose(values, [3, 1], atol=1e-12)
    mirror = np.diag([1.0, -1.0])
    found = unpaired.procrustes(x, 7 * x @ mirror)
    np.testing.assert_allclose(found, mirror, atol=1e-12)


def test_procrustes_beats_other_rotations() -> None:
    """No other orthogonal matrix brings x nearer to y."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(30, 4)), rng.normal(size=(30, 4))
    least = np.linalg.norm(x @ unpaired.procrustes(x, y) - y)
    others = [np.linalg.norm(x @ rotation(4, seed) - y) for seed in range(50)]
    assert least < min(others)


@pytest.mark.parametrize("dims", [(5, 5), (7, 5)])
def test_the_model_is_the_cloud_rotated(dims: tuple[int, int]) -> None:
    """The linear map gives the cloud's own rows times W, and new rows the same way."""
    pools = Pools(skewed(60, dims[0], 4), skewed(50, dims[1], 5))
    anchors = Anchors(pools.x[:3], pools.y[:3])
    clouds = unpaired.same_dimension(pools)
    turn = rotation(5, 6)
    model = unpaired.rotated_model(
        "m", clouds, turn, anchors=anchors, pools=pools, settings=NoSettings(), a=1
    )
    np.testing.assert_allclose(model.embed_x(pools.x), clouds[0].rows @ turn, atol=1e-5)
    np.testing.assert_allclose(model.embed_y(pools.y), clouds[1].rows, atol=1e-5)
    assert model.kind == "linear"
    expected = {"dim": 5, "pairs_used": 0, "n_pool_x": 60, "n_pool_y": 50, "a": 1}
    assert expected.items() <= dict(model.info).items()


def test_equal_dimensions_are_left_as_they_are() -> None:
    """Principal axes only where the sides differ, or where asked for."""
    same = Pools(skewed(40, 6, 7), skewed(40, 6, 8))
    np.testing.assert_array_equal(unpaired.same_dimension(same)[0].kernel, np.eye(6))
    assert unpaired.same_dimension(same, 3)[1].kernel.shape == (6, 3)
    other = Pools(same.x, skewed(40, 4, 9))
    shapes = [cloud.kernel.shape for cloud in unpaired.same_dimension(other)]
    assert shapes == [(6, 4), (4, 4)]


def test_the_common_dimension_is_at_most_the_rank() -> None:
    """N centred rows span n - 1 dimensions."""
    pools = Pools(skewed(4, 6, 0), skewed(50, 5, 1))
    assert unpaired.common_dim(pools) == 3
    assert unpaired.common_dim(pools, 2) == 2
    assert unpaired.common_dim(Pools(skewed(50, 6, 0), pools.y), 50) == 5


def test_a_pool_of_one_row_is_refused() -> None:
    """One row has no spread to align."""
    with pytest.raises(InputError, match="at least 2 rows, got 1 in y"):
        unpaired.same_dimension(Pools(skewed(9, 3, 0), skewed(1, 3, 0)))


def test_zero_rows_stay_zero() -> None:
    """A row at the mean has no direction, and none is made up."""
    np.testing.assert_allclose(
        unpaired.unit(np.array([[0.0, 0.0], [3.0, 4.0]])), [[0, 0], [0.6, 0.8]]
    )
