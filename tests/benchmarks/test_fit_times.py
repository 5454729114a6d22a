"""The benchmark of whole fits."""

import fit_times
import pytest


@pytest.mark.parametrize("method", ["anchordot-refined", "ridge-cca"])
def test_a_method_is_timed_whether_or_not_it_takes_gamma(method: str) -> None:
    args = fit_times.Args(
        methods=(method,), schedule="short", m=80, n=60, dim_x=8, dim_y=6
    )
    told = fit_times.time_method(args)
    assert told["seconds"] > 0
    assert told["gigabytes"] > 0
