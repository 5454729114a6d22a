"""The variants of the refined recipe: what each changes, and what counts as a gain."""

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"


@pytest.fixture
def variants(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module of the variants."""
    return load("search_variants", monkeypatch)


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a script as a module."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    spec = importlib.util.spec_from_file_location(name, EXPERIMENTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def planted(rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return unit rows of two sides with a common latent."""
    latent = rng.normal(size=(rows, 4))
    sides = []
    for dim in (9, 7):
        side = latent @ rng.normal(size=(4, dim)) + 0.2 * rng.normal(size=(rows, dim))
        side /= np.linalg.norm(side, axis=1, keepdims=True)
        sides.append(side.astype(np.float32))
    return sides[0], sides[1]


@pytest.mark.slow
def test_every_variant_has_its_figures(
    variants: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variants, "GALLERY", 20)
    x, y = planted(140, np.random.default_rng(0))
    held_x = np.concatenate([x[30:40], x[100:120]])
    held_y = np.concatenate([y[30:40], y[120:]])
    given = variants.Given(x[:30], y[:30], x[40:70], y[70:100], held_x, held_y, 10)
    found = variants.all_variants(given, key=jax.random.key(0))
    names = {key.split("/")[0] for key in found if "/" in key}
    teachers = {"profiles", "kernel", "cca-and-profiles", "cca-and-kernel"}
    assert {f"teacher-{name}" for name in teachers} < names
    assert {"closed", "student", "averaged", "soup", "ensemble"} < names
    assert all(math.isfinite(value) for value in found.values())
    # The planted latent is found by all that are no accident: chance is log(30) - 1.
    assert found["closed/bank_log_rank"] < 1
    assert found["teacher-profiles/log_rank"] < 1
    # A bank of other strength or size is another correction.
    assert found["bank-beta-3/bank_log_rank"] != found["closed/bank_log_rank"]


def test_stacked_products_are_the_mean_of_both_in_their_deviations(
    variants: ModuleType,
) -> None:
    rng = np.random.default_rng(1)
    one = [jnp.asarray(rng.normal(size=(6, 3))), jnp.asarray(rng.normal(size=(5, 3)))]
    other = [jnp.asarray(rng.normal(size=(6, 2))), jnp.asarray(rng.normal(size=(5, 2)))]
    products = [np.asarray(u @ v.T) for u, v in (one, other)]
    u, v = variants.stacked(tuple(one), tuple(other))
    expected = sum(s / s.std() for s in products) / 2
    np.testing.assert_allclose(u @ v.T, expected, rtol=1e-4, atol=1e-5)


def test_mean_weights_is_the_mean_of_each_leaf(variants: ModuleType) -> None:
    several = [{"x": {"w": np.full(2, value)}, "s": value} for value in (1.0, 2.0, 6.0)]
    found = variants.mean_weights(several)
    np.testing.assert_allclose(found["x"]["w"], [3, 3])
    assert float(found["s"]) == 3


def test_ranks_count_ties_half(variants: ModuleType) -> None:
    scores = np.array([[0.5, 0.5, 0.1], [0.9, 0.2, 0.3]])
    np.testing.assert_allclose(variants.partner_ranks(scores), [1.5, 3])
    assert variants.log_rank(np.array([[1.0, np.e]])) == pytest.approx(0.5)
    assert variants.recall(np.array([[1, 3, 8, 20]])) == pytest.approx(100 * 1.5 / 3)


def test_a_gain_needs_an_interval_below_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "results", raising=False)
    search = load("beyond_search", monkeypatch)
    better = [
        {"closed/bank_log_rank": 1.0, "pools-0.5/bank_log_rank": 0.9 + 0.01 * k}
        for k in range(3)
    ]
    mean, half = search.difference(better, "pools-0.5", "closed", "bank_log_rank")
    # Student's quantile of two degrees of freedom is 4.303.
    assert mean == pytest.approx(-0.09)
    assert half == pytest.approx(4.303 * 0.01 / 3**0.5, rel=1e-3)
    line = search.table({("a", 500): better, ("b", 500): better})[2]
    assert line.endswith("| a, b |")
    worse = [{**own, "pools-0.5/bank_log_rank": 1.1} for own in better]
    assert search.table({("a", 500): worse})[2].endswith("| - |")
