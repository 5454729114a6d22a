"""The bootstrap interval of a mean against the normal approximation and its limits."""

import numpy as np
import pytest

from anchordot_jax.errors import InputError
from anchordot_jax.evaluation import bootstrap_mean


def test_close_to_the_normal_interval_for_many_values() -> None:
    """Mean +- 1.96 s / sqrt(q), within the noise of 2000 draws."""
    values = np.random.default_rng(1).random(900)
    found = bootstrap_mean(values)
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert found.mean == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.15 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.15 * half)


def test_a_constant_has_no_width_and_a_seed_fixes_the_draws() -> None:
    assert bootstrap_mean(np.ones(7)) == (1.0, 1.0, 1.0)
    values = np.arange(30) % 2
    assert bootstrap_mean(values, seed=3) == bootstrap_mean(values, seed=3)
    assert bootstrap_mean(values, seed=3) != bootstrap_mean(values, seed=4)


def test_it_covers_the_true_mean_as_often_as_it_says() -> None:
    """Of 200 samples of a coin of 0.3 about 90 % of the 90 % intervals hold 0.3."""
    rng = np.random.default_rng(2)
    held = 0
    for sample in range(200):
        found = bootstrap_mean(rng.random(80) < 0.3, level=0.9, draws=300, seed=sample)
        held += found.low <= 0.3 <= found.high
    assert 165 <= held <= 195


@pytest.mark.parametrize(
    ("values", "level", "message"),
    [
        (np.zeros(0), 0.95, "finite numbers, got shape"),
        (np.array([np.nan]), 0.95, "finite numbers"),
        (np.ones(3), 1.0, "level must be between 0 and 1"),
    ],
)
def test_what_has_no_interval_is_refused(
    values: np.ndarray, level: float, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        bootstrap_mean(values, level=level)
