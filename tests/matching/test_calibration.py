"""Expected precision against matches of known truth."""

import numpy as np
import pytest

from anchordot_jax.errors import InputError
from anchordot_jax.matching.calibration import calibrate


def drawn(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return matches that are right as often as their confidence says."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.01, 1, n)
    return confidence, rng.random(n) < confidence


def test_honest_confidences_are_kept() -> None:
    found = calibrate(*drawn(6000))
    at = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    assert np.allclose(found(at), at, atol=0.06)
    assert found.n_known == 6000


def test_it_never_falls_and_stays_inside() -> None:
    found = calibrate(*drawn(150))
    values = found(np.linspace(0, 1, 50))
    assert (np.diff(values) >= 0).all()
    assert values.min() > 0
    assert values.max() < 1


def test_the_mean_on_fresh_matches_is_what_they_turn_out() -> None:
    """Overconfident matches, right with the square of what they say."""
    rng = np.random.default_rng(5)
    confidence = rng.uniform(0.01, 1, 2000)
    right = rng.random(2000) < confidence**2
    found = calibrate(confidence[:1000], right[:1000])
    assert found(confidence[1000:]).mean() == pytest.approx(
        right[1000:].mean(), abs=0.04
    )


@pytest.mark.parametrize(
    ("confidence", "right"),
    [([], []), ([0.5], [True, False]), ([[0.5]], [[True]])],
)
def test_what_cannot_be_calibrated_is_refused(
    confidence: list[float], right: list[bool]
) -> None:
    with pytest.raises(InputError, match="vectors of one length"):
        calibrate(np.array(confidence), np.array(right, bool))
