"""Regularised CCA: hand values, the textbook formula, invariances and bad input."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from anchordot_jax.baselines.closed_form.cca import cca_from_factors, factorize, fit_cca
from anchordot_jax.errors import InputError

T = np.arange(8.0)
TOY_X = np.stack([np.cos(T), np.sin(2 * T), T / 4], axis=1)
TOY_Y = np.stack([np.sin(T + 0.3), np.cos(2 * T)], axis=1)

SHAPES = st.sampled_from([(30, 5, 4), (30, 4, 7), (6, 9, 8), (9, 12, 3), (2, 3, 3)])


def draw(shape, seed):
    """Return correlated rows of both sides, away from the origin."""
    n, dx, dy = shape
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n, 3))
    x = latent @ rng.normal(size=(3, dx)) + rng.normal(size=(n, dx)) + 1
    y = latent @ rng.normal(size=(3, dy)) + rng.normal(size=(n, dy)) - 2
    return x, y


def covariances(x, y):
    """Return S_xx, S_xy and S_yy with 1/N, of centred rows."""
    x, y = x - x.mean(0), y - y.mean(0)
    return x.T @ x / len(x), x.T @ y / len(x), y.T @ y / len(y)


@pytest.mark.parametrize(
    ("ridge", "expected"),
    [
        (0.0, [0.524528, 0.129314]),
        (0.1, [0.427396, 0.106378]),
        (1.0, [0.162770, 0.041015]),
    ],
)
def test_hand_values(ridge, expected):
    """The toy of eight moments, without a ridge and with two."""
    found = fit_cca(TOY_X, TOY_Y, ridge_x=ridge, ridge_y=ridge, floor=0.0)
    np.testing.assert_allclose(found.correlations, expected, atol=1e-6)
    assert found.kernel_x.shape == (3, 2)
    assert found.kernel_y.shape == (2, 2)
    np.testing.assert_allclose(found.mean_x, TOY_X.mean(0))
    np.testing.assert_allclose(found.mean_y, TOY_Y.mean(0))


def test_a_huge_ridge_leaves_the_covariance():
    """Times the ridge, the correlations tend to the singular values of S_xy."""
    found = fit_cca(TOY_X, TOY_Y, ridge_x=1e8, ridge_y=1e8)
    np.testing.assert_allclose(
        1e8 * found.correlations, [0.238962, 0.060119], atol=1e-6
    )


@settings(deadline=None, max_examples=20)
@given(shape=SHAPES, seed=st.integers(0, 1000), ridge=st.sampled_from([1e-4, 0.3, 50]))
def test_is_the_textbook_formula(shape, seed, ridge):
    """K of dense inverse square roots has these singular values and this map."""
    x, y = draw(shape, seed)
    found = fit_cca(x, y, ridge_x=ridge, ridge_y=2 * ridge)
    s_xx, s_xy, s_yy = covariances(x, y)
    root_x = np.linalg.inv(scipy.linalg.sqrtm(s_xx + ridge * np.eye(len(s_xx))).real)
    root_y = np.linalg.inv(
        scipy.linalg.sqrtm(s_yy + 2 * ridge * np.eye(len(s_yy))).real
    )
    whitened = root_x @ s_xy @ root_y
    k = len(found.correlations)
    values = np.linalg.svd(whitened, compute_uv=False)
    np.testing.assert_allclose(found.correlations, values[:k], atol=1e-8)
    np.testing.assert_allclose(values[k:], 0, atol=1e-8)
    np.testing.assert_allclose(
        found.kernel_x * found.correlations @ found.kernel_y.T,
        root_x @ whitened @ root_y,
        atol=1e-6 * max(1, np.abs(root_x).max() * np.abs(root_y).max()),
    )


@settings(deadline=None, max_examples=20)
@given(shape=SHAPES, seed=st.integers(0, 1000), ridge=st.sampled_from([0, 0.01, 1]))
def test_coordinates_are_white_and_paired(shape, seed, ridge):
    """Of the regularised covariances the kernels make I, of S_xy diag(rho)."""
    x, y = draw(shape, seed)
    found = fit_cca(x, y, ridge_x=ridge, ridge_y=ridge, floor=0.0)
    s_xx, s_xy, s_yy = covariances(x, y)
    k = len(found.correlations)
    for kernel, covariance in ((found.kernel_x, s_xx), (found.kernel_y, s_yy)):
        regular = covariance + ridge * np.eye(len(covariance))
        np.testing.assert_allclose(kernel.T @ regular @ kernel, np.eye(k), atol=1e-7)
    np.testing.assert_allclose(
        found.kernel_x.T @ s_xy @ found.kernel_y, np.diag(found.correlations), atol=1e-7
    )
    assert k == min(len(x) - 1, x.shape[1], y.shape[1])
    assert np.all(np.diff(found.correlations) <= 1e-12)
    assert found.correlations[0] <= 1 + 1e-9


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 1000))
def test_affine_maps_leave_the_correlations(seed):
    """Without a ridge, invertible affine maps of either side change nothing."""
    x, y = draw((40, 5, 4), seed)
    rng = np.random.default_rng(seed + 1)
    mixed = x @ (rng.normal(size=(5, 5)) + 5 * np.eye(5)) + rng.normal(size=5)
    plain = fit_cca(x, y, ridge_x=0.0, ridge_y=0.0, floor=0.0)
    found = fit_cca(mixed, y, ridge_x=0.0, ridge_y=0.0, floor=0.0)
    np.testing.assert_allclose(found.correlations, plain.correlations, atol=1e-9)


@pytest.mark.parametrize(
    ("shape", "expected"), [((20, 12, 12), 5), ((20, 5, 6), 0), ((10, 12, 12), 9)]
)
def test_unit_correlations_of_too_few_pairs(shape, expected):
    """Of unrelated rows dx + dy - (N - 1) correlations are 1, at most N - 1."""
    n, dx, dy = shape
    rng = np.random.default_rng(0)
    found = fit_cca(
        rng.normal(size=(n, dx)), rng.normal(size=(n, dy)), ridge_x=0, ridge_y=0
    )
    assert np.count_nonzero(found.correlations > 1 - 1e-9) == expected


def test_equal_sides_correlate_fully():
    """A side with itself has correlations of 1 and the same coordinates."""
    x, _ = draw((30, 5, 4), 0)
    found = fit_cca(x, x, ridge_x=0.0, ridge_y=0.0)
    np.testing.assert_allclose(found.correlations, np.ones(5), atol=1e-9)
    np.testing.assert_allclose(found.kernel_x, found.kernel_y, atol=1e-6)


def test_relative_ridge_is_in_mean_eigenvalues():
    """It equals the absolute ridge times trace / d, so a side's scale is no matter."""
    x, y = draw((6, 9, 8), 3)
    s_xx, _, s_yy = covariances(x, y)
    relative = fit_cca(x, y, ridge_x=0.5, ridge_y=2.0, relative=True)
    absolute = fit_cca(
        x, y, ridge_x=0.5 * np.trace(s_xx) / 9, ridge_y=2.0 * np.trace(s_yy) / 8
    )
    np.testing.assert_allclose(relative.kernel_x, absolute.kernel_x, atol=1e-10)
    np.testing.assert_allclose(relative.kernel_y, absolute.kernel_y, atol=1e-10)
    scaled = fit_cca(100 * x, y, ridge_x=0.5, ridge_y=2.0, relative=True)
    np.testing.assert_allclose(scaled.correlations, relative.correlations, atol=1e-9)


def test_floor_of_the_eigenvalues():
    """A direction of variance v << floor keeps sqrt(v / floor) of its correlation."""
    a, b = scipy.linalg.hadamard(8)[1:3].astype(float)
    x = np.stack([a, 1e-2 * b], axis=1)
    floored = fit_cca(x, np.stack([a, b], axis=1), ridge_x=0, ridge_y=0, floor=0.04)
    np.testing.assert_allclose(floored.correlations, [1.0, 0.05], atol=1e-9)
    free = fit_cca(x, np.stack([a, b], axis=1), ridge_x=0, ridge_y=0, floor=0.0)
    np.testing.assert_allclose(free.correlations, [1.0, 1.0], atol=1e-9)


def test_dims_keeps_the_most_correlated():
    """At most dims coordinates, the first of all."""
    x, y = draw((30, 5, 4), 0)
    whole = fit_cca(x, y, ridge_x=0.1, ridge_y=0.1)
    part = fit_cca(x, y, ridge_x=0.1, ridge_y=0.1, dims=2)
    np.testing.assert_array_equal(part.kernel_x, whole.kernel_x[:, :2])
    np.testing.assert_array_equal(part.kernel_y, whole.kernel_y[:, :2])
    np.testing.assert_array_equal(part.correlations, whole.correlations[:2])
    assert fit_cca(x, y, ridge_x=1, ridge_y=1, dims=99).correlations.shape == (4,)


def test_factors_serve_several_ridges():
    """One factorisation gives what separate fits give, bit by bit."""
    x, y = draw((9, 12, 3), 0)
    factors = factorize(x, y)
    for ridge in (0.0, 0.1, 10.0):
        shared = cca_from_factors(factors, ridge_x=ridge, ridge_y=3 * ridge)
        alone = fit_cca(x, y, ridge_x=ridge, ridge_y=3 * ridge)
        for one, other in zip(shared, alone, strict=True):
            np.testing.assert_array_equal(one, other)


def test_repeated_float32_rows_have_no_spurious_rank():
    """Copies of one row around another leave a rank of one, not of rounding."""
    rows = np.random.default_rng(0).normal(size=(2, 6)).astype(np.float32)
    factors = factorize(np.repeat(rows, [3, 1], axis=0), np.eye(4))
    assert factors.x.singular_values.shape == (1,)
    assert factors.y.singular_values.shape == (3,)


@pytest.mark.parametrize("y", [np.ones((3, 2)), np.ones(4), np.ones((4, 2, 2))])
def test_rows_must_be_paired(y):
    """Other numbers of rows, or of axes, are refused."""
    with pytest.raises(InputError, match="as many rows in x as in y"):
        factorize(np.ones((4, 2)), y)


def test_one_pair_is_too_few():
    """A single pair has no covariance."""
    with pytest.raises(InputError, match="at least 2 pairs, got 1"):
        factorize(np.ones((1, 2)), np.ones((1, 2)))


def test_sides_must_vary():
    """A side of equal rows is named."""
    same = np.full((5, 3), 0.1)
    with pytest.raises(InputError, match="All anchors of side y are the same"):
        factorize(np.eye(5), same)
    with pytest.raises(InputError, match="All anchors of side x are the same"):
        factorize(same, np.eye(5))


@pytest.mark.parametrize("name", ["ridge_x", "ridge_y", "floor"])
@pytest.mark.parametrize("value", [-1e-3, float("nan"), float("inf")])
def test_settings_must_not_be_negative(name, value):
    """Ridges and floor are finite and at least 0."""
    options = {"ridge_x": 1.0, "ridge_y": 1.0, name: value}
    with pytest.raises(InputError, match=f"{name} must be a finite number >= 0"):
        fit_cca(TOY_X, TOY_Y, **options)


def test_dims_must_be_positive():
    """No coordinates are refused."""
    with pytest.raises(InputError, match="dims must be at least 1, got 0"):
        fit_cca(TOY_X, TOY_Y, ridge_x=1.0, ridge_y=1.0, dims=0)
