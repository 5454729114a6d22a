"""The transport problem: POT and OTT as references, laws, safeguard, memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.core import ClosedJaxpr, Jaxpr
from ott.geometry import pointcloud
from ott.problems.linear import linear_problem
from ott.solvers.linear import acceleration, sinkhorn

import reference
from anchordot_jax import coupling, geometry, log_sums, tiles
from anchordot_jax.config import CouplingConfig
from anchordot_jax.coupling import (
    block_targets,
    log_plan,
    plan_block,
    solve_cost,
    solve_coupling,
)
from anchordot_jax.transport import coupling_solve
from anchordot_jax.transport.half_steps import by_products, costs
from anchordot_jax.transport.sinkhorn_blocks import (
    Marginals,
    column_error,
    first_iterate,
    relaxed_iterations,
)

N, M, R = 53, 37, 6
EPSILON = 0.05
TIGHT = CouplingConfig(tolerance=2e-6)
STREAMED = CouplingConfig(tolerance=2e-6, cost_memory=0)

# A cost of 2 x 3 worked by hand, as coordinates: x y^T = 1 - C.
TOY_COST = np.array([[0.1, 0.6, 0.3], [0.8, 0.2, 0.5]])
TOY_PLAN = [[0.331138, 0.000838, 0.168024], [0.002195, 0.332496, 0.165309]]


def pools(n=N, m=M, seed=0):
    return reference.unit_rows(n, R, seed), reference.unit_rows(m, R, seed + 1)


def marginals(n=N, m=M):
    """Return uneven marginals, summing to 1."""
    random = np.random.default_rng(7)
    a, b = random.uniform(0.2, 2, n), random.uniform(0.2, 2, m)
    return a / a.sum(), b / b.sum()


def solve_pot(costs, a, b, epsilon):
    """Return POT's float64 potentials in our convention: they carry the marginals."""
    _, log = ot.bregman.sinkhorn(
        a,
        b,
        costs,
        epsilon,
        method="sinkhorn_log",
        log=True,
        stopThr=1e-13,
        numItermax=20_000,
    )
    return epsilon * log["log_u"], epsilon * log["log_v"]


@functools.partial(jax.jit, static_argnames=("omega", "iterations"))
def solve_ott(x, y, a, b, epsilon, *, omega=1.0, iterations=2000):
    """Return OTT's own dense solve, without our geometry and without a safeguard."""
    cost_fn = geometry.OneMinusDot()
    geom = pointcloud.PointCloud(x, y, cost_fn=cost_fn, epsilon=epsilon)
    momentum = acceleration.Momentum(value=omega)
    solver = sinkhorn.Sinkhorn(
        threshold=2e-6, max_iterations=iterations, momentum=momentum
    )
    out = solver(linear_problem.LinearProblem(geom, a=a, b=b))
    return out.f, out.g, out.errors


def assert_same_potentials(found, expected, epsilon, *, tolerance=1e-4):
    """Compare up to the free constant, within a share of epsilon."""
    pairs = zip(reference.centred(*found), reference.centred(*expected), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * epsilon)


def errors_of(solved):
    errors = np.asarray(solved.errors)
    return errors[~np.isnan(errors)]


def test_assertion_helper_sees_a_difference():
    """A shift of both potentials passes, a change of shape does not."""
    f, g = np.arange(3.0), np.arange(2.0)
    assert_same_potentials((f + 5, g - 5), (f, g), 1.0)
    with pytest.raises(AssertionError):
        assert_same_potentials((f, g + 1e-3), (f, g), 1.0)


@pytest.mark.parametrize(
    ("n", "m", "epsilon"),
    [(N, M, 0.1), (N, M, 0.05), (24, 24, 0.1), (24, 24, 0.07), (5, 40, 0.05)],
)
@pytest.mark.parametrize("uniform", [True, False])
def test_potentials_are_those_of_pot(n, m, epsilon, uniform):
    """The potentials equal POT's float64 log-domain solution to 1e-4 of epsilon."""
    x, y = pools(n, m)
    a, b = (np.full(n, 1 / n), np.full(m, 1 / m)) if uniform else marginals(n, m)
    given = {} if uniform else {"a": a, "b": b}
    solved = solve_coupling(x, y, epsilon, **given, config=TIGHT)
    assert bool(solved.converged)
    assert float(solved.marginal_error) < TIGHT.tolerance
    expected = solve_pot(reference.cost(x, y), a, b, epsilon)
    assert_same_potentials((solved.f, solved.g), expected, epsilon)


def test_potentials_are_those_of_ott():
    """The potentials equal OTT's own dense Sinkhorn on the same cost."""
    x, y = pools()
    a, b = marginals()
    solved = solve_coupling(x, y, EPSILON, a=a, b=b, config=STREAMED)
    with jax.numpy_rank_promotion("allow"):
        f, g, _ = solve_ott(x, y, a, b, EPSILON)
    assert_same_potentials((solved.f, solved.g), (f, g), EPSILON)


def test_hand_values():
    """The worked 2 x 3 plan at epsilon = 0.1."""
    x, y = np.asarray(1 - TOY_COST, np.float32), np.eye(3, dtype=np.float32)
    solved = solve_coupling(x, y, 0.1, config=TIGHT)
    found = plan_block(x, y, solved.f, solved.g, solved.epsilon)
    np.testing.assert_allclose(found, TOY_PLAN, atol=2e-6)


@pytest.mark.parametrize("config", [TIGHT, STREAMED], ids=["stored", "streamed"])
def test_zero_marginals(config):
    """Items of weight 0 get -inf; the others solve the problem without them."""
    x, y = pools()
    a, b = marginals()
    a[[0, 9]], b[5] = 0, 0
    a, b = a / a.sum(), b / b.sum()
    solved = solve_coupling(x, y, EPSILON, a=a, b=b, config=config)
    assert bool(solved.converged)
    np.testing.assert_array_equal(np.isneginf(solved.f), a == 0)
    np.testing.assert_array_equal(np.isneginf(solved.g), b == 0)
    rows, columns = a > 0, b > 0
    costs = reference.cost(x, y)[np.ix_(rows, columns)]
    expected = solve_pot(costs, a[rows], b[columns], EPSILON)
    found = np.asarray(solved.f)[rows], np.asarray(solved.g)[columns]
    assert_same_potentials(found, expected, EPSILON)


@pytest.mark.parametrize("config", [TIGHT, STREAMED], ids=["stored", "streamed"])
def test_plan_has_the_marginals(config):
    """Rows of the whole plan sum to a, columns to b; the error reported is theirs."""
    x, y = pools()
    a, b = marginals()
    solved = solve_coupling(x, y, EPSILON, a=a, b=b, config=config)
    whole = np.asarray(plan_block(x, y, solved.f, solved.g, solved.epsilon))
    assert np.abs(whole.sum(axis=1) - a).sum() < 1e-5
    assert np.abs(whole.sum(axis=0) - b).sum() < 1e-5
    expected = reference.plan(reference.cost(x, y), solved.f, solved.g, EPSILON)
    np.testing.assert_allclose(whole, expected, atol=1e-6)


def test_reported_error_is_the_column_error():
    """marginal_error is the L1 distance of the plan's column sums from b."""
    x, y = pools()
    solved = solve_coupling(x, y, 0.01, config=CouplingConfig(max_iterations=20))
    whole = reference.plan(reference.cost(x, y), solved.f, solved.g, 0.01)
    expected = np.abs(whole.sum(axis=0) - 1 / M).sum()
    assert expected > 1e-2
    np.testing.assert_allclose(solved.marginal_error, expected, rtol=1e-3)


@pytest.mark.parametrize("epsilon", [0.1, 0.05, 0.01])
def test_streamed_equals_stored(epsilon):
    """Recomputing the cost or storing it gives the same potentials and errors."""
    x, y = pools()
    stored, streamed = (
        solve_coupling(x, y, epsilon, config=config) for config in (TIGHT, STREAMED)
    )
    assert_same_potentials((stored.f, stored.g), (streamed.f, streamed.g), epsilon)
    assert abs(int(stored.n_iterations) - int(streamed.n_iterations)) <= 20


def test_cost_memory():
    """The budget in bytes decides; without one the CPU may store 1 GiB."""
    assert coupling.cost_memory(CouplingConfig(cost_memory=5)) == 5
    on_cpu = jax.default_backend() == "cpu"
    assert coupling.cost_memory(CouplingConfig()) == (1 << 30 if on_cpu else 0)


def test_warm_start_is_faster():
    """Starting from the solution takes one check, from a near one fewer than cold."""
    x, y = pools()
    cold = solve_coupling(x, y, 0.01, config=CouplingConfig())
    near = solve_coupling(x, y, 0.012, config=CouplingConfig())
    again = solve_coupling(x, y, 0.01, init=(cold.f, cold.g))
    warm = solve_coupling(x, y, 0.01, init=(near.f, near.g))
    assert int(again.n_iterations) == 10
    assert 10 < int(warm.n_iterations) < int(cold.n_iterations)
    assert bool(warm.converged)


def test_overrelaxation_is_faster():
    """Omega = 1.5 reaches plain Sinkhorn's potentials in less than half the steps."""
    x, y = pools()
    plain, faster = (
        solve_coupling(
            x, y, 0.03, config=CouplingConfig(tolerance=2e-6, overrelaxation=omega)
        )
        for omega in (1.0, 1.5)
    )
    assert bool(plain.converged & faster.converged)
    assert 2 * int(faster.n_iterations) < int(plain.n_iterations)
    assert_same_potentials((faster.f, faster.g), (plain.f, plain.g), 0.03)


@pytest.mark.parametrize("epsilon", [0.03, 0.003])
@pytest.mark.parametrize("config", [{}, {"cost_memory": 0}], ids=["stored", "streamed"])
def test_overrelaxation_is_safeguarded(epsilon, config):
    """Omega = 1.95 alone blows up; our solve falls back and finds the solution."""
    x, y = pools()
    a, b = np.full(N, 1 / N, np.float32), np.full(M, 1 / M, np.float32)
    with jax.numpy_rank_promotion("allow"):
        _, _, errors = solve_ott(x, y, a, b, epsilon, omega=1.95, iterations=500)
    assert not (np.isfinite(errors) & (errors >= 0) & (errors < 1)).any()
    settings = CouplingConfig(overrelaxation=1.95, **config)
    solved = solve_coupling(x, y, epsilon, config=settings)
    assert bool(solved.converged)
    found = errors_of(solved)
    assert found.max() > 0.1
    assert found[-1] < 1e-4
    plain = solve_coupling(x, y, epsilon, config=CouplingConfig(overrelaxation=1.0))
    ours = reference.plan(reference.cost(x, y), solved.f, solved.g, epsilon)
    theirs = reference.plan(reference.cost(x, y), plain.f, plain.g, epsilon)
    assert np.abs(ours - theirs).sum() < 5e-3
    if not np.isfinite(found[0]):
        # What overflowed is thrown away: from there on it is the plain solve.
        np.testing.assert_allclose(found[1:6], errors_of(plain)[:5], rtol=1e-3)


def test_unconverged_is_said():
    """Ten iterations of a hard problem: converged is False and the error is told."""
    x, y = pools()
    solved = solve_coupling(x, y, 0.003, config=CouplingConfig(max_iterations=10))
    assert not bool(solved.converged)
    assert int(solved.n_iterations) == 10
    assert float(solved.marginal_error) > 1e-2
    np.testing.assert_array_equal(solved.errors, [solved.marginal_error])
    assert bool(jnp.isfinite(solved.f).all() & jnp.isfinite(solved.g).all())


@pytest.mark.parametrize("config", [{}, {"cost_memory": 0}], ids=["stored", "streamed"])
def test_tiny_epsilon_stays_finite(config):
    """At epsilon = 1e-4 every exp(-C/eps) underflows; potentials and errors do not."""
    x, y = pools()
    settings = CouplingConfig(max_iterations=100, **config)
    solved = solve_coupling(x, y, 1e-4, config=settings)
    assert bool(jnp.isfinite(solved.f).all() & jnp.isfinite(solved.g).all())
    assert 1e-4 < float(solved.marginal_error) < 2


@functools.partial(jax.jit, static_argnames=("stored", "count"))
def seven_iterations(x, y, marginals, omega, *, stored, count=7):
    """Return the iterate after some iterations by products, or by logarithms."""
    cost = costs(x, y, marginals.epsilon, stored=stored)
    start = first_iterate(
        cost.logarithms, marginals, jnp.zeros(len(x)), jnp.zeros(len(y))
    )
    half_steps = cost.logarithms
    if cost.stored is not None:
        half_steps = by_products(cost.stored, marginals.epsilon, start.f, start.g)
    end, _ = relaxed_iterations(
        half_steps,
        marginals,
        start,
        None,
        omega=omega,
        accelerated=jnp.asarray(False),
        count=count,
    )
    return end, column_error(marginals, end)


@pytest.mark.parametrize("stored", [N, 20, 1])
def test_products_are_the_logarithms(stored):
    """Iterations by products with the plan, or with a part of it, are the same ones."""
    x, y = pools()
    a, b = (np.asarray(side, np.float32) for side in marginals())
    a[2], b[[0, 30]] = 0.0, 0.0
    given = Marginals(jnp.asarray(a), jnp.asarray(b), jnp.asarray(0.02, jnp.float32))
    omega = jnp.asarray(1.3, jnp.float32)
    with jax.numpy_rank_promotion("allow"):
        found, error = seven_iterations(x, y, given, omega, stored=stored)
        expected, exact = seven_iterations(x, y, given, omega, stored=0)
    assert np.isneginf(found.f[2])
    assert np.isneginf(found.g[30])
    for one, other in zip(found, expected, strict=True):
        known = np.isfinite(one)
        assert known.sum() >= len(one) - 2
        weighted = np.asarray(a if len(one) == N else b) > 0
        np.testing.assert_allclose(one[weighted], other[weighted], atol=2e-6)
    np.testing.assert_allclose(error, exact, rtol=1e-3)
    assert float(error) > 1e-4


def test_logarithms_take_over_out_of_range(monkeypatch):
    """Where the plan's sums leave float32's range (here: none is allowed) all is well.

    The products are then never read: they are made to be wrong.
    """
    monkeypatch.setattr(log_sums, "SAFE_SUM", (1e30, 1e-30))
    monkeypatch.setattr(geometry.KernelGeometry, "apply_kernel", wrong_product)
    x, y = pools(N + 1, M + 1)
    stored, streamed = (
        solve_coupling(x, y, EPSILON, config=config) for config in (TIGHT, STREAMED)
    )
    assert bool(stored.converged)
    assert_same_potentials((stored.f, stored.g), (streamed.f, streamed.g), EPSILON)


def wrong_product(self, vec, eps=None, axis=0):
    return jnp.full(self.kernel_matrix.shape[1 - axis], 3.0)


def test_not_a_number_is_never_converged():
    """NaN coordinates end the solve at once, unconverged, with no NaN potential."""
    x, y = pools()
    x[3] = np.nan
    solved = solve_coupling(x, y, EPSILON, config=CouplingConfig())
    assert not bool(solved.converged)
    assert int(solved.n_iterations) <= 20
    assert bool(jnp.isfinite(solved.f).all() & jnp.isfinite(solved.g).all())


@pytest.mark.parametrize(("limit", "every", "used"), [(25, 10, 20), (7, 10, 7)])
def test_iterations_stay_within_the_limit(limit, every, used):
    """A limit between two checks is never passed; one below the first is used up."""
    x, y = pools()
    config = CouplingConfig(max_iterations=limit, check_every=every)
    solved = solve_coupling(x, y, 0.003, config=config)
    assert int(solved.n_iterations) == used <= limit
    assert not bool(solved.converged)
    assert len(solved.errors) == used // min(limit, every)


def test_errors_after_the_last_check_are_nan():
    """One error a check, the last one the reported one, then NaN."""
    x, y = pools()
    solved = solve_coupling(x, y, EPSILON, config=CouplingConfig())
    checks = int(solved.n_iterations) // 10
    assert len(solved.errors) == 100
    assert np.isfinite(solved.errors[:checks]).all()
    assert np.isnan(solved.errors[checks:]).all()
    assert float(solved.errors[checks - 1]) == float(solved.marginal_error)


def test_swapping_the_pools_swaps_the_potentials():
    """The problem of (y, x) has the potentials (g, f)."""
    x, y = pools(24, 24)
    there = solve_coupling(x, y, 0.1, config=TIGHT)
    back = solve_coupling(y, x, 0.1, config=TIGHT)
    assert_same_potentials((back.g, back.f), (there.f, there.g), 0.1)


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_permuting_a_pool_permutes_its_potential(seed):
    """The order of a pool's rows is the order of its potential, and nothing else."""
    x, y = pools()
    order = np.random.default_rng(seed).permutation(N)
    one = solve_coupling(x, y, EPSILON, config=TIGHT)
    two = solve_coupling(x[order], y, EPSILON, config=TIGHT)
    assert_same_potentials((two.f, two.g), (one.f[order], one.g), EPSILON)


@settings(deadline=None, max_examples=10)
@given(scale=st.floats(0.1, 10))
def test_scaling_cost_and_epsilon_leaves_the_plan(scale):
    """With x . y and epsilon times k (C up to a constant), the plan is the same."""
    x, y = pools()
    one = solve_coupling(x, y, EPSILON, config=TIGHT)
    scaled = np.asarray(scale * x, np.float32)
    two = solve_coupling(scaled, y, scale * EPSILON, config=TIGHT)
    before = reference.plan(reference.cost(x, y), one.f, one.g, EPSILON)
    after = reference.plan(reference.cost(scaled, y), two.f, two.g, float(two.epsilon))
    np.testing.assert_allclose(after, before, atol=1e-6)


def sub_jaxprs(value):
    """Yield the jaxprs inside an equation's parameter."""
    if isinstance(value, ClosedJaxpr):
        yield value.jaxpr
    elif isinstance(value, Jaxpr):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from sub_jaxprs(item)


def sizes(jaxpr):
    """Yield the number of entries of every array in a jaxpr and all inside it."""
    for equation in jaxpr.eqns:
        for variable in equation.outvars:
            yield variable.aval.size
        for value in equation.params.values():
            for inner in sub_jaxprs(value):
                yield from sizes(inner)


def largest_array(n, m, config):
    """Return the entries of the largest array that a solve of [n, m] makes."""
    x, y = (jax.ShapeDtypeStruct((k, 64), jnp.float32) for k in (n, m))
    solve = functools.partial(solve_coupling, epsilon=0.01, config=config)
    return max(sizes(jax.make_jaxpr(solve)(x, y).jaxpr))


@pytest.mark.parametrize(
    ("n", "m"), [(30_000, 20_000), (400_000, 2_000), (2_000, 400_000)]
)
def test_streamed_solve_never_holds_the_cost(n, m):
    """No array of the streamed solve is larger than the coordinates or one tile."""
    # Either side's rows are cut, each by a tile of its own.
    shapes = [tiles.tile_shape(k) for k in (n, m)]
    tile = max((rows + 1) * columns for rows, columns in shapes)
    largest = largest_array(n, m, STREAMED)
    # 64 is the dimension of the coordinates, and the least number of rows of a tile.
    assert largest <= max(64 * max(n, m), tile)
    assert largest < n * m / 4


def test_stored_solve_does_hold_the_cost():
    """The search for large arrays finds the cost where it is stored on purpose."""
    config = CouplingConfig(cost_memory=4 * 3000 * 2000)
    assert largest_array(3000, 2000, config) == 3000 * 2000


def test_progress_is_called_at_every_check():
    """Progress sees increasing iterations and the errors that the result keeps."""
    x, y = pools()
    calls = []
    solved = solve_coupling(
        x, y, EPSILON, progress=lambda *call: calls.append(tuple(map(float, call)))
    )
    jax.effects_barrier()
    checks = int(solved.n_iterations) // 10
    assert [iteration for iteration, _ in calls] == [
        10 * (k + 1) for k in range(checks)
    ]
    np.testing.assert_allclose([error for _, error in calls], errors_of(solved))


def test_one_compilation_for_all_settings():
    """Epsilon, tolerance, omega, marginals and start never recompile the solve."""
    x, y = pools()
    a, b = marginals()
    first = solve_coupling(x, y, 0.1, config=CouplingConfig())
    before = coupling_solve._solve._cache_size()
    config = CouplingConfig(tolerance=1e-3, overrelaxation=1.2)
    solve_coupling(x, y, 0.07, a=a, b=b, init=(first.f, first.g), config=config)
    assert coupling_solve._solve._cache_size() == before


@pytest.mark.parametrize("epsilon", [0.3, 0.05, 0.02])
def test_targets_are_the_normalised_block(epsilon):
    """Where nothing underflows: rows and columns of the plan's block, normalised."""
    x, y = pools()
    solved = solve_coupling(x, y, epsilon, config=TIGHT)
    i, j = np.arange(3, 20), np.arange(8, 30)
    by_row, by_column = block_targets(
        x[i], y[j], solved.f[i], solved.g[j], solved.epsilon
    )
    costs = reference.cost(x, y)
    block = reference.plan(costs, solved.f, solved.g, epsilon)[np.ix_(i, j)]
    rows = block / block.sum(axis=1, keepdims=True)
    columns = block / block.sum(axis=0, keepdims=True)
    np.testing.assert_allclose(by_row, rows, atol=2e-5)
    np.testing.assert_allclose(by_column, columns, atol=2e-5)


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    shift_f=st.sampled_from([-50.0, 0.0, 5.0]),
    shift_g=st.sampled_from([-50.0, 0.0, 5.0]),
)
def test_targets_of_a_block_without_mass(seed, shift_f, shift_g):
    """Rows and columns sum to 1 although the block's whole mass under- or overflows."""
    x, y = pools(17, 11, seed)
    random = np.random.default_rng(seed)
    f = (shift_f + random.normal(scale=0.1, size=17)).astype(np.float32)
    g = (shift_g + random.normal(scale=0.1, size=11)).astype(np.float32)
    by_row, by_column = (np.asarray(t) for t in block_targets(x, y, f, g, 0.01))
    np.testing.assert_allclose(by_row.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(by_column.sum(axis=0), 1, rtol=1e-5)
    # f cancels in the rows and g in the columns: the shifts change nothing.
    costs = reference.cost(x, y)
    logits = (f.astype(np.float64)[:, None] + g - costs) / 0.01
    rows = np.exp(logits - logits.max(axis=1, keepdims=True))
    columns = np.exp(logits - logits.max(axis=0, keepdims=True))
    rows /= rows.sum(axis=1, keepdims=True)
    columns /= columns.sum(axis=0, keepdims=True)
    atol = 2e-4 if max(abs(shift_f), abs(shift_g)) > 1 else 5e-5
    np.testing.assert_allclose(by_row, rows, atol=atol)
    np.testing.assert_allclose(by_column, columns, atol=atol)


def test_a_cost_given_whole_is_solved_alike():
    """The potentials of a cost that is no inner product are POT's."""
    cost = np.random.default_rng(5).random((9, 7))
    a, b = marginals(9, 7)
    solved = solve_cost(cost.astype(np.float32), 0.1, a=a, b=b, config=TIGHT)
    assert bool(solved.converged)
    expected = solve_pot(cost, a, b, 0.1)
    assert_same_potentials((solved.f, solved.g), expected, 0.1)


def test_the_plan_of_a_cost_given_whole():
    """exp(log plan) has the marginals, and is what the potentials say."""
    cost = np.random.default_rng(6).random((9, 7)).astype(np.float32)
    solved = solve_cost(cost, 0.1, config=TIGHT)
    plan = np.exp(np.asarray(log_plan(solved, cost), np.float64))
    np.testing.assert_allclose(plan.sum(0), 1 / 7, atol=1e-5)
    np.testing.assert_allclose(plan.sum(1), 1 / 9, atol=1e-5)
    expected = reference.plan(cost, solved.f, solved.g, 0.1)
    np.testing.assert_allclose(plan, expected, rtol=1e-4)


def test_a_profile_cost_given_whole_is_the_same_problem():
    """solve_cost(1 - x y^T) gives solve_coupling(x, y)'s potentials."""
    x, y = pools()
    cost = reference.cost(x, y).astype(np.float32)
    whole, factored = solve_cost(cost, EPSILON), solve_coupling(x, y, EPSILON)
    assert int(whole.n_iterations) == int(factored.n_iterations)
    assert_same_potentials((whole.f, whole.g), (factored.f, factored.g), EPSILON)
