"""Profiles: the eigen-clipped formula, hand values, exact coordinates, invariances."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from anchordot_jax import profiles

GAMMAS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)

# Anchors, x and x' of a worked example in the plane.
TOY_ANCHORS = np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32)
TOY_X = np.array([[0.8, 0.6], [0, 1]], np.float32)
TOY_PROFILES = {
    0.0: (0.8, 0.6, 0.96),
    0.5: (0.932249, 0.628831, 1.062415),
    1.0: (1.093432, 0.649620, 1.175755),
    2.0: (1.536, 0.648, 1.44),
}
TOY_COSINES = {0.0: 0.770607, 0.5: 0.694421, 1.0: 0.6, 2.0: 0.356717}


def almost_flat_rows(n, seed):
    """Unit rows in four dimensions of which the last is too small for the clipping."""
    rows = np.random.default_rng(seed).normal(size=(n, 4)) * [1, 0.7, 0.5, 1e-4]
    return reference.unit(rows)


def profile64(x, basis, gamma):
    """Return U diag(w) V^T x in float64, from the package's basis and weights."""
    weights = profiles.spectral_weights(basis, gamma)
    return reference.unit(x) @ (basis.right * weights) @ basis.left.T


def cosines(x, anchors_x, y, anchors_y, gamma, *, center=False):
    """Return the inner products of the package's coordinates."""
    z_x, z_y = coordinates(x, anchors_x, y, anchors_y, gamma, center=center)
    return np.asarray(z_x, np.float64) @ np.asarray(z_y, np.float64).T


def coordinates(x, anchors_x, y, anchors_y, gamma, *, center=False):
    maps = profiles.coordinate_maps(
        profiles.fit_basis(anchors_x, center=center),
        profiles.fit_basis(anchors_y, center=center),
        gamma,
    )
    return profiles.coordinates(jnp.asarray(x), jnp.asarray(y), maps)


def two_sides(n_anchors, dim_x, dim_y, seed=0):
    """Return x, anchors_x, y, anchors_y, with 9 and 7 rows beside the anchors."""
    return (
        reference.unit_rows(9, dim_x, seed),
        reference.unit_rows(n_anchors, dim_x, seed + 1),
        reference.unit_rows(7, dim_y, seed + 2),
        reference.unit_rows(n_anchors, dim_y, seed + 3),
    )


def test_normalize_keeps_zero_rows():
    """Rows get unit norm, and a zero row stays zero instead of NaN."""
    rows = jnp.asarray([[3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(profiles.normalize(rows), [[0.6, 0.8], [0, 0]])


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize(("n_anchors", "dim"), [(20, 6), (6, 6), (5, 8)])
def test_svd_form_is_the_eigenvalue_formula(gamma, n_anchors, dim):
    """U S (S^2/N)^(-gamma/2) V^T x = A M^(-gamma/2) x where nothing is clipped."""
    x, anchors = reference.unit_rows(9, dim, 0), reference.unit_rows(n_anchors, dim, 1)
    basis = profiles.fit_basis(anchors)
    assert basis.singular_values[-1] ** 2 > 1e-6 * n_anchors / dim
    expected = reference.profile(x, anchors, gamma)
    scale = np.abs(expected).max()
    found = profile64(x, basis, gamma)
    np.testing.assert_allclose(found / scale, expected / scale, atol=1e-10)
    found = profiles.profile(jnp.asarray(x), basis, gamma)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found / scale, expected / scale, atol=1e-5)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_small_eigenvalues_are_clipped_as_published(gamma):
    """Eigenvalues below 1e-6 of their mean act as if they were that large."""
    anchors, x = almost_flat_rows(20, 0), reference.unit_rows(9, 4, 1)
    values = np.linalg.eigvalsh(anchors.T @ anchors / 20)
    assert values[0] < 1e-6 * values.mean() < values[1]
    found = profile64(x, profiles.fit_basis(anchors), gamma)
    clipped = reference.profile(x, anchors, gamma, clip=1e-6)
    scale = np.abs(clipped).max()
    np.testing.assert_allclose(found, clipped, atol=1e-10 * scale)
    unclipped = reference.profile(x, anchors, gamma, clip=1e-13)
    assert np.abs(found - unclipped).max() > 1e-3 * scale


@pytest.mark.parametrize("gamma", TOY_PROFILES)
def test_hand_values(gamma):
    """The worked example: phi(x) and cos(phi(x), phi(x')) for four gammas."""
    basis = profiles.fit_basis(TOY_ANCHORS)
    found = profiles.profile(jnp.asarray(TOY_X), basis, gamma)
    np.testing.assert_allclose(found[0], TOY_PROFILES[gamma], atol=2e-6)
    found = cosines(TOY_X, TOY_ANCHORS, TOY_X, TOY_ANCHORS, gamma)
    np.testing.assert_allclose(found[0, 1], TOY_COSINES[gamma], atol=2e-6)
    np.testing.assert_allclose(np.diag(found), 1, atol=2e-6)


@pytest.mark.parametrize(("n_anchors", "dim"), [(20, 6), (6, 6)])
def test_gamma_one_is_an_isometry(n_anchors, dim):
    """With N >= d and gamma = 1: phi(x) . phi(x') = N x . x'."""
    x, anchors = reference.unit_rows(9, dim, 0), reference.unit_rows(n_anchors, dim, 1)
    phi = np.asarray(profiles.profile(jnp.asarray(x), profiles.fit_basis(anchors), 1.0))
    expected = n_anchors * x.astype(np.float64) @ x.T
    np.testing.assert_allclose(phi @ phi.T, expected, atol=1e-5 * n_anchors)


def test_gamma_one_with_few_anchors_projects_on_their_span():
    """With N < d and gamma = 1: phi(x) . phi(x') = N x . P x', P onto the anchors."""
    x, anchors = reference.unit_rows(9, 8, 0), reference.unit_rows(5, 8, 1)
    phi = np.asarray(profiles.profile(jnp.asarray(x), profiles.fit_basis(anchors), 1.0))
    projector = np.linalg.pinv(anchors) @ anchors
    np.testing.assert_allclose(phi @ phi.T, 5 * x @ projector @ x.T, atol=5e-5)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize(
    ("n_anchors", "dim_x", "dim_y"),
    [(20, 6, 4), (20, 4, 6), (5, 8, 6), (5, 4, 8), (2, 6, 4)],
    ids=["N>d", "N>d, dx<dy", "N<d", "dx<N<dy", "N=2"],
)
def test_coordinates_give_the_cosine_of_profiles(gamma, n_anchors, dim_x, dim_y):
    """z_x . z_y is the cosine of the N-dimensional profiles, in min(N, dx, dy) dims."""
    sides = two_sides(n_anchors, dim_x, dim_y)
    z_x, z_y = coordinates(*sides, gamma)
    rank = min(n_anchors, dim_x, dim_y)
    assert z_x.shape == (9, rank)
    assert z_y.shape == (7, rank)
    assert z_x.dtype == z_y.dtype == jnp.float32
    expected = reference.profile_cosine(*sides, gamma)
    np.testing.assert_allclose(z_x @ z_y.T, expected, atol=1e-5)


def test_coordinates_of_clipped_spectra():
    """Where eigenvalues are clipped, the cosines are those of the clipped profiles."""
    anchors = almost_flat_rows(20, 0)
    x, y = almost_flat_rows(9, 1), reference.unit_rows(7, 6, 2)
    anchors_y = reference.unit_rows(20, 6, 3)
    for gamma in (0.75, 2.0):
        found = cosines(x.astype(np.float32), anchors, y, anchors_y, gamma)
        expected = reference.profile_cosine(x, anchors, y, anchors_y, gamma)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("gamma", [0.0, 0.75, 2.0])
def test_duplicate_anchors(gamma):
    """Anchors given three times lower the rank, not the truth of the cosines."""
    x, anchors_x, y, anchors_y = two_sides(4, 6, 8)
    anchors_x, anchors_y = np.tile(anchors_x, (3, 1)), np.tile(anchors_y, (3, 1))
    found = coordinates(x, anchors_x, y, anchors_y, gamma)
    assert found[0].shape == (9, 4)
    expected = reference.profile_cosine(x, anchors_x, y, anchors_y, gamma)
    np.testing.assert_allclose(found[0] @ found[1].T, expected, atol=1e-5)


@pytest.mark.parametrize("gamma", [0.0, 0.75, 2.0])
def test_rank_deficient_anchors(gamma):
    """Anchors in a subspace of one side: its rank counts, and all stays finite."""
    x, _, y, anchors_y = two_sides(20, 6, 8)
    flat = np.random.default_rng(4).normal(size=(20, 3))
    anchors_x = flat @ np.random.default_rng(5).normal(size=(3, 6))
    assert len(profiles.fit_basis(anchors_x).singular_values) == 3
    z_x, z_y = coordinates(x, anchors_x, y, anchors_y, gamma)
    assert z_x.shape[1] == z_y.shape[1] == 3
    assert bool(jnp.isfinite(z_x).all() & jnp.isfinite(z_y).all())
    expected = reference.profile_cosine(x, anchors_x, y, anchors_y, gamma)
    np.testing.assert_allclose(z_x @ z_y.T, expected, atol=1e-5)


def test_all_anchors_equal():
    """One anchor given N times: rank 1, every cosine is the product of two signs."""
    anchors = np.tile(TOY_X[:1], (5, 1))
    x = np.array([[1, 0], [0, 1], [-1, 0]], np.float32)
    found = cosines(x, anchors, x, anchors, 0.75)
    np.testing.assert_allclose(found, np.outer([1, 1, -1], [1, 1, -1]), atol=1e-6)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), gamma=st.sampled_from(GAMMAS))
def test_rotating_one_encoder_changes_nothing(seed, gamma):
    """An orthogonal map of one side's rows and anchors leaves the cosines."""
    x, anchors_x, y, anchors_y = two_sides(20, 6, 4, seed)
    normal = np.random.default_rng(seed).normal(size=(6, 6))
    turn = np.linalg.qr(normal)[0].astype(np.float32)
    before = cosines(x, anchors_x, y, anchors_y, gamma)
    after = cosines(x @ turn, anchors_x @ turn, y, anchors_y, gamma)
    np.testing.assert_allclose(after, before, atol=1e-5)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), gamma=st.sampled_from(GAMMAS))
def test_row_lengths_change_nothing(seed, gamma):
    """Rows and anchors are normalised: positive factors a row leave the cosines."""
    x, anchors_x, y, anchors_y = two_sides(20, 6, 4, seed)
    random = np.random.default_rng(seed)
    factors = [10 ** random.uniform(-3, 3, (len(r), 1)) for r in (x, anchors_x)]
    before = cosines(x, anchors_x, y, anchors_y, gamma)
    scaled = np.asarray(x * factors[0], np.float32), anchors_x * factors[1]
    after = cosines(*scaled, y, anchors_y, gamma)
    np.testing.assert_allclose(after, before, atol=1e-5)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), gamma=st.sampled_from(GAMMAS))
def test_anchor_order_changes_nothing(seed, gamma):
    """Permuting the pairs jointly leaves the cosines; permuting one side does not."""
    x, anchors_x, y, anchors_y = two_sides(20, 6, 4, seed)
    order = np.random.default_rng(seed).permutation(20)
    before = cosines(x, anchors_x, y, anchors_y, gamma)
    after = cosines(x, anchors_x[order], y, anchors_y[order], gamma)
    np.testing.assert_allclose(after, before, atol=1e-5)
    broken = cosines(x, anchors_x, y, np.roll(anchors_y, 1, axis=0), gamma)
    assert np.abs(broken - before).max() > 1e-2


def test_centring_subtracts_the_mean_of_the_unit_anchors():
    """center=True equals shifting all unit rows by the anchors' mean beforehand."""
    sides = [rows + 0.4 for rows in two_sides(20, 6, 4)]
    x, anchors_x, y, anchors_y = (reference.unit(rows) for rows in sides)
    mean_x, mean_y = anchors_x.mean(axis=0), anchors_y.mean(axis=0)
    assert np.linalg.norm(mean_x) > 0.3
    shifted = x - mean_x, anchors_x - mean_x, y - mean_y, anchors_y - mean_y
    expected = reference.profile_cosine(*shifted, 0.75)
    found = cosines(*sides, 0.75, center=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    plain = cosines(*sides, 0.75)
    assert np.abs(plain - expected).max() > 1e-2
    basis = profiles.fit_basis(sides[1], center=True)
    phi = profiles.profile(jnp.asarray(sides[0], jnp.float32), basis, 0.75)
    expected = reference.profile(shifted[0], shifted[1], 0.75)
    np.testing.assert_allclose(phi, expected, atol=1e-4)


def test_basis_is_a_thin_svd_in_float64():
    """U S V^T gives the unit anchors back, U and V have orthonormal columns."""
    anchors = 3 * reference.unit_rows(20, 6, 0)
    basis = profiles.fit_basis(anchors)
    rebuilt = basis.left * basis.singular_values @ basis.right.T
    np.testing.assert_allclose(rebuilt, reference.unit(anchors), atol=1e-12)
    np.testing.assert_allclose(basis.left.T @ basis.left, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(basis.right.T @ basis.right, np.eye(6), atol=1e-12)
    assert np.all(np.diff(basis.singular_values) <= 0)
    assert basis.singular_values.dtype == np.float64
    np.testing.assert_array_equal(basis.mean, np.zeros(6))


def test_one_compilation_for_all_gammas():
    """The maps carry gamma: a new one never recompiles the coordinates."""
    sides = two_sides(20, 6, 4)
    coordinates(*sides, 0.0)
    before = profiles.coordinates._cache_size()
    coordinates(*sides, 1.5)
    assert profiles.coordinates._cache_size() == before


def test_half_precision_anchors():
    """float16 anchors give the cosines of the same anchors in float32."""
    x, anchors_x, y, anchors_y = two_sides(20, 6, 4)
    half = anchors_x.astype(np.float16), anchors_y.astype(np.float16)
    found = cosines(x, half[0], y, half[1], 0.75)
    single = half[0].astype(np.float32), half[1].astype(np.float32)
    np.testing.assert_array_equal(found, cosines(x, single[0], y, single[1], 0.75))
