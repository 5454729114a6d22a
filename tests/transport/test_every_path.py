"""Every way to the potentials against float64, and how often it reads the cost."""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
import unbalanced_reference
from anchordot_jax import geometry, log_sums
from anchordot_jax.config import CouplingConfig
from anchordot_jax.coupling import Coupling, solve_cost, solve_coupling
from anchordot_jax.errors import InputError
from anchordot_jax.parallel.mesh import make_mesh
from anchordot_jax.transport import sinkhorn_blocks, warm_start
from anchordot_jax.transport.coupling_solve import Problem
from anchordot_jax.transport.half_steps import stored_rows

N, M, R, EPSILON = 53, 37, 6, 0.03
ROW = 4 * M
ANDERSON = {"anderson": 5, "overrelaxation": 1.0}
WAYS: dict[str, dict[str, Any]] = {
    "stored": {},
    "streamed": {"cost_memory": 0},
    "20 rows stored": {"cost_memory": 20 * ROW + 3},
    "52 rows stored": {"cost_memory": 52 * ROW},
    "anderson": ANDERSON,
    "anderson streamed": {**ANDERSON, "cost_memory": 0},
    "from epsilon": {"warm_start": "epsilon"},
    "from subsample": {"warm_start": "subsample"},
    "pallas": {"cost_memory": 0, "kernel": "pallas"},
    "pallas for the rest": {"cost_memory": 20 * ROW, "kernel": "pallas"},
}
SOFT_WAYS = [name for name in WAYS if "anderson" not in name]
# Each is a compilation; the others are slow tests.
QUICK = ("20 rows stored", "anderson", "from epsilon", "pallas for the rest")


def ways(names: Iterable[str], quick: Sequence[str]) -> list[Any]:
    """Return the names as parameters, those that are not quick marked as slow."""
    return [
        name if name in quick else pytest.param(name, marks=pytest.mark.slow)
        for name in names
    ]


def pools() -> tuple[np.ndarray, np.ndarray]:
    return reference.unit_rows(N, R, 0), reference.unit_rows(M, R, 1)


def marginals() -> tuple[np.ndarray, np.ndarray]:
    """Return uneven weights with a zero on both sides."""
    random = np.random.default_rng(7)
    a, b = random.uniform(0.2, 2, N), random.uniform(0.2, 2, M)
    a[[3, 40]], b[11] = 0, 0
    return a / a.sum(), b / b.sum()


@functools.cache
def float64_potentials() -> tuple[np.ndarray, np.ndarray]:
    """Return the solution by plain float64 iterations."""
    x, y = pools()
    a, b = marginals()
    cost = reference.cost(x, y)
    f, g = np.zeros(N), np.zeros(M)
    with np.errstate(divide="ignore"):
        log_a, log_b = EPSILON * np.log(a), EPSILON * np.log(b)
    for _ in range(4000):
        g = log_b - reference.log_kernel(f, cost, EPSILON, 0)[0]
        f = log_a - reference.log_kernel(g, cost, EPSILON, 1)[0]
    return f, g


@pytest.mark.parametrize("way", ways(WAYS, QUICK))
def test_potentials_are_the_float64_ones(way: str) -> None:
    """Within a thousandth of epsilon, and the error told is that of the columns."""
    x, y = pools()
    a, b = marginals()
    config = CouplingConfig(tolerance=1e-5, **WAYS[way])
    solved = solve_coupling(x, y, EPSILON, a=a, b=b, config=config)
    assert bool(solved.converged)
    rows, columns = a > 0, b > 0
    np.testing.assert_array_equal(np.isneginf(solved.f), ~rows)
    np.testing.assert_array_equal(np.isneginf(solved.g), ~columns)
    found = reference.centred(np.asarray(solved.f)[rows], np.asarray(solved.g)[columns])
    f, g = float64_potentials()
    expected = reference.centred(f[rows], g[columns])
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-3 * EPSILON)


@pytest.mark.parametrize(
    "way", ways(["stored", "20 rows stored", "anderson streamed"], ["20 rows stored"])
)
def test_the_error_is_that_of_the_columns(way: str) -> None:
    """At the potentials that are returned, although no pass was made for it."""
    x, y = pools()
    a, b = marginals()
    config = CouplingConfig(max_iterations=10, **WAYS[way])
    solved = solve_coupling(x, y, 0.01, a=a, b=b, config=config)
    plan = reference.plan(reference.cost(x, y), solved.f, solved.g, 0.01)
    expected = np.abs(plan.sum(axis=0) - b).sum()
    assert expected > 1e-3
    np.testing.assert_allclose(solved.marginal_error, expected, rtol=2e-3)


@pytest.mark.parametrize("way", ways(SOFT_WAYS, ["20 rows stored"]))
def test_soft_marginals_have_the_float64_plan(way: str) -> None:
    """Every start and every memory for the cost, with a rho."""
    x, y = pools()
    a, b = (np.full(k, 1 / k) for k in (N, M))
    config = CouplingConfig(tolerance=1e-5, **WAYS[way])
    solved = solve_coupling(x, y, 0.05, rho=0.3, config=config)
    assert bool(solved.converged)
    cost = reference.cost(x, y)
    expected = unbalanced_reference.solve(cost, 0.05, 0.3, 0.3, a=a, b=b).plan
    found = reference.plan(cost, solved.f, solved.g, 0.05)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-8)


def counted(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: Counter[str]
) -> None:
    """Count a function's executions, not its tracings."""
    plain: Callable[..., Any] = getattr(owner, name)

    def spy(*args: Any, **kwargs: Any) -> Any:
        jax.debug.callback(lambda: calls.update([name]))
        return plain(*args, **kwargs)

    monkeypatch.setattr(owner, name, spy)


@pytest.mark.parametrize(
    ("memory", "anderson", "rho"),
    [
        (0, None, None),
        (None, None, None),
        pytest.param(0, 3, None, marks=pytest.mark.slow),
        pytest.param(0, None, 0.3, marks=pytest.mark.slow),
    ],
)
def test_no_pass_is_made_for_evidence(
    monkeypatch: pytest.MonkeyPatch,
    memory: int | None,
    anderson: int | None,
    rho: float | None,
) -> None:
    """Two passes an iteration, two for the one that starts, and one to begin with.

    Streamed, a pass recomputes the cost; stored, it is a product with the plan, and
    the cost is read by the first iteration only. Three checks are made on the way.
    """
    calls: Counter[str] = Counter()
    counted(monkeypatch, log_sums, "computed", calls)
    counted(monkeypatch, log_sums, "read", calls)
    counted(monkeypatch, geometry.KernelGeometry, "apply_kernel", calls)
    # A shape of its own: what other tests compiled does not count.
    x, y = reference.unit_rows(12, R, 0), reference.unit_rows(9, R, 1)
    config = CouplingConfig(
        max_iterations=21,
        check_every=7,
        tolerance=1e-9,
        cost_memory=memory,
        anderson=anderson,
        overrelaxation=1.0,
    )
    solved = solve_coupling(x, y, 0.02, rho=rho, config=config)
    jax.effects_barrier()
    assert int(solved.n_iterations) == 21
    if memory is None:
        assert calls == {"read": 3, "apply_kernel": 42}
    elif rho is None:
        assert calls == {"computed": 45}
    else:
        assert calls == {"computed": 44}


@pytest.mark.parametrize(
    ("memory", "rows"),
    [(0, 0), (ROW - 1, 0), (ROW, 1), (20 * ROW + 3, 20), (N * ROW, N), (1 << 40, N)],
)
def test_as_many_rows_as_fit(memory: int, rows: int) -> None:
    """Whole rows of the cost, none beyond the budget, and never more than there are."""
    assert stored_rows(N, M, memory) == rows


def test_anderson_needs_fewer_iterations() -> None:
    """Than plain Sinkhorn, at the same tolerance."""
    x, y = pools()
    plain, faster = (
        solve_coupling(x, y, 0.01, config=CouplingConfig(**settings))
        for settings in ({"overrelaxation": 1.0}, ANDERSON)
    )
    assert bool(plain.converged & faster.converged)
    assert int(faster.n_iterations) < 0.7 * int(plain.n_iterations)


@pytest.mark.parametrize("wrong", [np.nan, pytest.param(5.0, marks=pytest.mark.slow)])
def test_anderson_is_safeguarded(monkeypatch: pytest.MonkeyPatch, wrong: float) -> None:
    """Where extrapolations are far off, or no numbers, plain iterations take over."""

    def astray(history: sinkhorn_blocks.History, f: jax.Array) -> jax.Array:
        return f + wrong * jnp.arange(len(f)) * (history.recorded > 12)

    monkeypatch.setattr(sinkhorn_blocks, "_extrapolated", astray)
    # A shape of its own, for the compiled program to be this one.
    shift = 1 if np.isnan(wrong) else 2
    x, y = reference.unit_rows(N - shift, R, 0), reference.unit_rows(M - shift, R, 1)
    config = CouplingConfig(**ANDERSON)
    solved = solve_coupling(x, y, EPSILON, config=config)
    errors = np.asarray(solved.errors)
    # The second check sees what went wrong.
    assert not errors[1] < errors[0]
    assert bool(solved.converged)
    assert np.isfinite(solved.f).all()


def test_anderson_and_rho_do_not_go_together() -> None:
    """Soft marginals are solved by plain iterations: one sentence says so."""
    x, y = pools()
    config = CouplingConfig(**ANDERSON)
    with pytest.raises(InputError, match=r"^coupling.anderson is 5, but .* rho"):
        solve_coupling(x, y, EPSILON, rho=0.3, config=config)


def clusters(shares: Sequence[float], n: int, seed: int) -> np.ndarray:
    """Return unit rows around five directions, which have shares of the rows."""
    random = np.random.default_rng(seed)
    member = random.choice(len(shares), n, p=shares)
    noise = 0.2 * random.normal(size=(n, R))
    return reference.unit(np.eye(R)[member] + noise).astype(np.float32)


def start_error(way: str | None) -> float:
    """Return the column error of one plain iteration from a start."""
    n, m, epsilon = 300, 200, 0.1
    x = clusters([0.5, 0.2, 0.1, 0.1, 0.1], n, 0)
    y = clusters([0.1, 0.1, 0.1, 0.2, 0.5], m, 1)
    a, b = (jnp.full(k, 1 / k, jnp.float32) for k in (n, m))
    problem = Problem(
        jnp.asarray(x), jnp.asarray(y), None, a, b, jnp.asarray(epsilon), None
    )
    (f, _), _ = warm_start.start(problem, CouplingConfig(warm_start=way))
    cost = reference.cost(x, y)
    g = epsilon * np.log(1 / m) - reference.log_kernel(f, cost, epsilon, 0)[0]
    f = epsilon * np.log(1 / n) - reference.log_kernel(g, cost, epsilon, 1)[0]
    return float(np.abs(reference.plan(cost, f, g, epsilon).sum(0) - 1 / m).sum())


@pytest.mark.parametrize("way", ["epsilon", "subsample"])
def test_a_warm_start_is_nearer(way: str) -> None:
    """Of pools with other shares of five clusters: than zeros are to the solution."""
    assert start_error(way) < 0.7 * start_error(None)


def test_a_subsample_of_all_rows_is_the_solution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The part's potentials, extended, are then those of all rows, in their order."""
    monkeypatch.setattr(warm_start, "SHARE", 1)
    monkeypatch.setattr(warm_start, "ROUGH", 1e-5)
    assert start_error("subsample") < 1e-4 < start_error(None)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["epsilon", "subsample"])
@pytest.mark.parametrize("rho", [None, 0.3])
def test_warm_starts_of_a_cost_given_whole(way: str, rho: float | None) -> None:
    """The same potentials as those of its coordinates, from the same start."""
    x, y = pools()
    config = CouplingConfig(warm_start=way)
    cost = reference.cost(x, y).astype(np.float32)
    whole = solve_cost(cost, 0.05, rho=rho, config=config)
    factored = solve_coupling(x, y, 0.05, rho=rho, config=config)
    assert int(whole.n_iterations) == int(factored.n_iterations)
    np.testing.assert_allclose(whole.f, factored.f, atol=1e-4 * 0.05)


def test_given_potentials_come_before_a_warm_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With `init` no other start is looked for."""
    x, y = pools()
    cold = solve_coupling(x, y, EPSILON)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a start was looked for")

    monkeypatch.setattr(warm_start, "start", refuse)
    config = CouplingConfig(warm_start="epsilon")
    again: Coupling = solve_coupling(
        x, y, EPSILON, init=(cold.f, cold.g), config=config
    )
    assert int(again.n_iterations) == 10
    with pytest.raises(AssertionError, match="looked for"):
        solve_coupling(x, y, EPSILON, config=config)


def test_a_ladders_iterations_are_counted() -> None:
    """Those at larger epsilons are over all rows, and reported with the others."""
    x, y = pools()
    config = CouplingConfig(warm_start="epsilon", max_iterations=10, tolerance=1e-7)
    solved = solve_coupling(x, y, EPSILON, config=config)
    assert int(solved.n_iterations) == 10 * (1 + len(warm_start.LADDER))


def test_a_subsample_is_for_one_device() -> None:
    """With a mesh it is refused in one sentence."""
    x, y = pools()
    config = CouplingConfig(warm_start="subsample")
    with pytest.raises(InputError, match=r"^coupling.warm_start subsample is for one"):
        solve_coupling(x, y, EPSILON, config=config, mesh=make_mesh("1"))
