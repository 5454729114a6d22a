"""The rule of one standard error, against SciPy and by hand."""

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

from anchordot_jax.evaluation.heldout_choice import (
    errors_behind_best,
    preferred_near_best,
)


def test_errors_are_those_of_the_paired_difference() -> None:
    """Zero for the best itself; the standard error of the mean for the others."""
    logs = np.random.default_rng(0).normal(size=(3, 12)) + np.array([[1], [0], [2]])
    errors = errors_behind_best(logs)
    assert errors[1] == 0
    for own in (0, 2):
        expected = stats.sem(logs[own] - logs[1])
        np.testing.assert_allclose(errors[own], expected, rtol=1e-12)


def test_one_anchor_has_no_error() -> None:
    """Nothing can be said about its noise."""
    np.testing.assert_array_equal(errors_behind_best(np.ones((2, 1))), [0, 0])


def test_the_preferred_of_those_near_the_best_is_taken() -> None:
    """The end of the interval counts as near; of equal costs the first is taken."""
    log_ranks, errors = [1.5, 1.0, 1.25, 2.0], [0.4, 0.0, 0.25, 0.5]
    assert preferred_near_best(log_ranks, errors, [0, 3, 1, 0]) == 2
    assert preferred_near_best(log_ranks, errors, [0, 1, 1, 0]) == 1
    assert preferred_near_best(log_ranks, [0.5, 0, 0.25, 0.5], [0, 1, 2, 0]) == 0
