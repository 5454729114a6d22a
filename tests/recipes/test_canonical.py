"""CCA from principal axes: against a dense float64 CCA, and its sharing."""

import numpy as np
import pytest

from anchordot_jax.errors import InputError
from anchordot_jax.recipes import canonical


def rows(n, d, seed):
    """Return `[n, d]` correlated rows off the origin, float32."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3 * rng.normal(size=d)
    return mixed.astype(np.float32)


def dense_cca(c_xx, c_yy, c_xy, ridge):
    """Return Wx, Wy by inverse square roots and an SVD, and the correlations."""

    def root(c):
        d = len(c)
        values, vectors = np.linalg.eigh(c + ridge * np.trace(c) / d * np.eye(d))
        return vectors / np.sqrt(values) @ vectors.T

    root_x, root_y = root(c_xx), root(c_yy)
    left, values, right_t = np.linalg.svd(root_x @ c_xy @ root_y)
    k = len(values)
    return root_x @ left[:, :k] * values, root_y @ right_t[:k].T * values, values


def test_moments_are_those_of_all_rows(monkeypatch):
    """Mean and scatter, by blocks and from two parts, against NumPy's."""
    x = rows(23, 5, 0)
    exact = np.float64(x)
    centred = exact - exact.mean(axis=0)
    monkeypatch.setattr(canonical, "BLOCK", 7)
    whole = canonical.moments(x)
    parts = canonical.pooled(canonical.moments(x[:9]), canonical.moments(x[9:]))
    for found in (whole, parts):
        assert found.n_rows == 23
        np.testing.assert_allclose(found.mean, exact.mean(axis=0), rtol=1e-12)
        scatter = centred.T @ centred
        atol = 1e-6 * np.trace(scatter)
        np.testing.assert_allclose(found.scatter, scatter, atol=atol)


def test_weights_of_rows_are_repetitions():
    """A row of weight 3 counts three times; one of weight 0 is not there."""
    x = rows(6, 4, 1)
    times = np.array([1, 3, 0, 2, 1, 1])
    repeated = canonical.moments(np.repeat(x, times, axis=0))
    weighted = canonical.moments(x, times.astype(np.float32))
    np.testing.assert_allclose(weighted.mean, repeated.mean, rtol=1e-6)
    np.testing.assert_allclose(
        weighted.scatter / 6, repeated.scatter / 8, atol=1e-5 * repeated.scatter.max()
    )


@pytest.mark.parametrize("shape", [(30, 6, 4), (30, 4, 6), (8, 12, 10), (20, 2, 9)])
@pytest.mark.parametrize("ridge", [0.01, 2.0])
def test_weights_are_those_of_a_dense_cca(shape, ridge):
    """The cosines of float64 references, also with fewer rows than columns."""
    n, dx, dy = shape
    x, y = rows(n, dx, 2), rows(n, dy, 3)
    y[:, :2] += x[:, :2]
    mean_x, mean_y = np.float64(x).mean(axis=0), np.float64(y).mean(axis=0)
    u, v = x - mean_x, y - mean_y
    w_x, w_y, correlations = dense_cca(u.T @ u / n, v.T @ v / n, u.T @ v / n, ridge)

    of_rows = canonical.axes_of_rows(x), canonical.axes_of_rows(y)
    of_moments = [canonical.axes_of_moments(canonical.moments(side)) for side in (x, y)]
    for axes_x, axes_y in (of_rows, of_moments):
        cross = axes_x.vectors.T @ (u.T @ v / n) @ axes_y.vectors
        found = canonical.canonical_weights(axes_x, axes_y, cross, ridge=ridge)
        k = len(found.correlations)
        assert k <= min(n - 1, dx, dy)
        np.testing.assert_allclose(found.correlations, correlations[:k], atol=1e-5)
        p, q = u @ axes_x.vectors @ found.x, v @ axes_y.vectors @ found.y
        scale = np.abs(u @ w_x @ w_y.T @ v.T).max()
        np.testing.assert_allclose(p @ q.T, u @ w_x @ (v @ w_y).T, atol=1e-4 * scale)
        np.testing.assert_allclose(p @ p.T, u @ w_x @ (u @ w_x).T, atol=1e-4 * scale)


def test_the_ridge_is_in_units_of_the_mean_variance():
    """The scale of a side changes nothing, and missing columns count as zeros."""
    x = rows(20, 5, 4)
    axes = canonical.axes_of_rows(x)
    assert axes.unit == pytest.approx(np.trace(np.cov(np.float64(x).T, bias=True)) / 5)
    assert canonical.axes_of_rows(x, dim=10).unit == pytest.approx(axes.unit / 2)


@pytest.mark.parametrize("shape", [(9, 4), (4, 9)])
def test_rows_that_do_not_differ_are_refused(shape):
    """Equal rows have no axes, whatever the rounding of their mean."""
    same = np.tile(rows(1, shape[1], 5), (shape[0], 1))
    with pytest.raises(InputError, match="All rows of side y are the same after"):
        canonical.axes_of_rows(same, side="y")
    with pytest.raises(InputError, match="All rows of side x are the same after"):
        canonical.axes_of_moments(canonical.moments(same))


def test_sides_that_do_not_vary_together_are_refused():
    """A cross-covariance of zeros has no canonical coordinates."""
    x, y = canonical.axes_of_rows(rows(9, 3, 6)), canonical.axes_of_rows(rows(9, 4, 7))
    with pytest.raises(InputError, match="do not vary together at all"):
        canonical.canonical_weights(x, y, np.zeros((3, 4)), ridge=1.0)
