"""The self-test passes here, and each check fails where its subject is broken."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from anchordot_jax import coupling, profiles
from anchordot_jax.doctor import selftest

GIVEN = selftest._planted()


def test_every_check_passes() -> None:
    """On a sound installation, with what was measured in words."""
    checks = selftest.run_selftest()
    assert [check.name for check in checks if not check.ok] == []
    assert len(checks) == 4
    assert all(check.found for check in checks)


def test_products_of_few_bits_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors rounded to 10 bits, as TF32 does, fail."""
    product = jnp.matmul

    def rounded(x: Any, y: Any, precision: Any) -> Any:
        step = np.float32(2.0**-11)
        return product(jnp.round(x / step) * step, y, precision=precision)

    monkeypatch.setattr(selftest.jnp, "matmul", rounded)
    assert not selftest._products(GIVEN)[0]


def test_lost_anchors_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coordinates in the wrong order fail both checks that look at neighbours."""
    coordinates = profiles.coordinates

    def backwards(x: Any, y: Any, maps: Any) -> Any:
        u, v = coordinates(x, y, maps)
        return u, v[::-1]

    monkeypatch.setattr(selftest.profiles, "coordinates", backwards)
    assert not selftest._anchors(GIVEN)[0]
    assert not selftest._shuffled(GIVEN)[0]


def test_an_answer_that_leaks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test items that are found with wrong pairs as well are no sign of health."""
    monkeypatch.setattr(selftest, "_recall", lambda *rest: 0.9)
    assert not selftest._shuffled(GIVEN)[0]


def test_two_transports_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A streamed plan that is off by a percent, or that did not converge, fails."""
    solve = coupling.solve_coupling

    def other(x: Any, y: Any, epsilon: Any, *, config: Any) -> Any:
        solved = solve(x, y, epsilon, config=config)
        if config.cost_memory == 0:
            off = solved.f.at[3].add(0.01 * solved.epsilon)
            return solved._replace(f=off)
        return solved

    monkeypatch.setattr(selftest.coupling, "solve_coupling", other)
    ok, found = selftest._streamed(GIVEN)
    assert not ok
    assert "potentials differ by 1.0e-02 epsilon" in found

    def stuck(x: Any, y: Any, epsilon: Any, *, config: Any) -> Any:
        solved = solve(x, y, epsilon, config=config)
        return solved._replace(converged=jnp.asarray(False))

    monkeypatch.setattr(selftest.coupling, "solve_coupling", stuck)
    ok, found = selftest._streamed(GIVEN)
    assert not ok
    assert "did not converge" in found
