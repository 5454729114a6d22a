"""Pair-aware metrics: hand-worked values, and the published table's arithmetic."""

import math

import numpy as np
import pytest

from anchordot_jax.diagnostics import pairs
from reference import unit

RNG = np.random.default_rng(0)
X = unit(RNG.normal(size=(40, 5))).astype(np.float32)
Y = unit(RNG.normal(size=(50, 5))).astype(np.float32)


def test_the_published_table_fixes_the_residual() -> None:
    """Table 1: full and shuffled captions share the transport cost 0.807."""
    assert pairs.pair_residual(0.681, 0.807) == pytest.approx(-0.126)
    assert pairs.pair_residual(0.824, 0.807) == pytest.approx(0.017)


def test_strain_is_the_sum_it_says() -> None:
    assert pairs.strain(0.1, 0.02, 0.03, -0.05) == pytest.approx(0.1)


def test_mean_gap_and_pair_costs_by_hand() -> None:
    x = np.array([[1, 0], [0, 1]], np.float32)
    y = np.array([[0, 1], [0, 1], [0.6, 0.8]], np.float32)
    # Centroids (0.5, 0.5) and (0.2, 14/15).
    assert pairs.mean_gap(x, y) == pytest.approx(math.hypot(0.3, 14 / 15 - 0.5))
    np.testing.assert_allclose(pairs.pair_costs(x, y[:2]), [1, 0], atol=1e-7)


def test_logit_entropy_is_numpys_and_knows_its_ends() -> None:
    logits = 100 * X.astype(np.float64) @ Y.T.astype(np.float64)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    expected = -(shares * np.log(np.maximum(shares, 1e-300))).sum(axis=1).mean()
    assert pairs.logit_entropy(X, Y) == pytest.approx(expected, abs=1e-4)
    assert pairs.logit_entropy(X, Y, scale=0.0) == pytest.approx(math.log(50), abs=2e-5)
    order = RNG.permutation(50)
    assert pairs.logit_entropy(X, Y[order]) == pytest.approx(
        pairs.logit_entropy(X, Y), abs=1e-5
    )


def test_modality_auc_tells_separate_clouds_from_mixed_ones() -> None:
    apart = unit(Y + np.array([3, 0, 0, 0, 0])).astype(np.float32)
    assert pairs.modality_auc(X, apart) > 0.95
    both = unit(RNG.normal(size=(600, 5))).astype(np.float32)
    assert 0.4 < pairs.modality_auc(both[:300], both[300:]) < 0.6
    assert pairs.modality_auc(X, Y, seed=3) == pairs.modality_auc(X, Y, seed=3)


def test_modality_auc_takes_at_most_so_many_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pairs, "PROBE_ROWS", 10)
    few = pairs.modality_auc(X, Y)
    monkeypatch.setattr(pairs, "PROBE_ROWS", 1000)
    assert few != pairs.modality_auc(X, Y)
