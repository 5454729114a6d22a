"""Corrections after the fact: what each of them must and must not change."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation  # type: ignore[import-untyped]

from anchordot_jax.diagnostics import corrections, pairs
from reference import unit

RNG = np.random.default_rng(0)
X = unit(RNG.normal(size=(60, 3)) + 0.4).astype(np.float32)


def norms(rows: np.ndarray) -> np.ndarray:
    return np.linalg.norm(rows, axis=1)


def test_mean_shift_closes_the_gap_and_keeps_unit_rows() -> None:
    y = unit(X - np.array([0.9, 0, 0])).astype(np.float32)
    moved = corrections.mean_shift(X, y)
    assert pairs.mean_gap(*moved) < 0.3 * pairs.mean_gap(X, y)
    for side in moved:
        np.testing.assert_allclose(norms(side), 1, atol=1e-6)
        assert side.dtype == np.float32


def test_procrustes_undoes_a_rotation_from_some_of_the_pairs() -> None:
    rotation = Rotation.from_euler("xyz", [0.4, -0.7, 1.1]).as_matrix()
    y = (X @ rotation).astype(np.float32)
    moved_x, moved_y = corrections.procrustes(X, y, X[:20], y[:20])
    np.testing.assert_allclose(moved_x, moved_y, atol=1e-5)


def test_procrustes_is_scipys_rotation() -> None:
    y = unit(X @ RNG.normal(size=(3, 3))).astype(np.float32)
    moved_x, _ = corrections.procrustes(X, y, X, y)
    centred = [unit(side - side.mean(axis=0)) for side in (X, y)]
    from scipy.linalg import orthogonal_procrustes  # type: ignore[import-untyped]

    rotation, _ = orthogonal_procrustes(*centred)
    np.testing.assert_allclose(moved_x, centred[0] @ rotation, atol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.2, 5.0])
def test_barycentric_moves_along_the_tangent(alpha: float) -> None:
    targets = unit(RNG.normal(size=X.shape)).astype(np.float32) * 0.7
    moved = corrections.barycentric(X, targets, alpha)
    np.testing.assert_allclose(norms(moved), 1, atol=1e-6)
    tangent = targets - (X * targets).sum(axis=1, keepdims=True) * X
    np.testing.assert_allclose(moved, unit(X + alpha * tangent), atol=1e-6)
    expected = float((tangent.astype(np.float64) ** 2).sum() / len(X))
    rate = corrections.descent_rate(X, targets, np.full(len(X), 1 / len(X)))
    assert rate == pytest.approx(expected, rel=1e-5)
