"""Some Sinkhorn iterations in a row, in the log domain or by products with the plan.

Both are OTT's iterations. The balanced and the unbalanced solve are loops over such
blocks that look at their own evidence in between.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array
from ott.problems.linear import linear_problem
from ott.solvers.linear import acceleration, sinkhorn

from anchordot_jax import geometry
from anchordot_jax.transport.unbalanced_geometry import SoftKernelGeometry


class Soft(NamedTuple):
    """Both marginals' exponents tau = rho/(rho + eps), and 1/rho; rho may be infinite.

    See `unbalanced_geometry`.
    """

    tau_x: Array
    tau_y: Array
    inverse_x: Array
    inverse_y: Array

    @classmethod
    def of(cls, epsilon: Array, rho_x: Array, rho_y: Array) -> "Soft":
        """Return the exponents of a problem."""
        return cls(
            tau_x=1 / (1 + epsilon / rho_x),
            tau_y=1 / (1 + epsilon / rho_y),
            inverse_x=1 / rho_x,
            inverse_y=1 / rho_y,
        )


def log_iterations(
    problem: linear_problem.LinearProblem,
    f: Array,
    g: Array,
    *,
    count: int,
    omega: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Return the potentials after some iterations, and the L1 error of the columns.

    Args:
        problem: a geometry with its marginals.
        f: potential of x before.
        g: potential of y before.
        count: iterations.
        omega: step length of the over-relaxed updates; None: plain ones.
    """
    out = _solver(count, omega)(problem, init=(f, g))
    return out.f, out.g, out.errors[0]


def kernel_iterations(
    problem: linear_problem.LinearProblem,
    cost: Array,
    f: Array,
    g: Array,
    *,
    count: int,
    omega: Array | None = None,
    soft: Soft | None = None,
    guarded: bool = True,
) -> tuple[Array, Array, Array]:
    """Return what `log_iterations` does, by products with the current plan.

    The potentials are absorbed into the kernel (Schmitzer, SIAM J. Sci. Comput. 41(3),
    2019): with P = exp((f + g - C)/epsilon), an iteration is two products with P, which
    read it once each, and no exponential. The new potentials are f + epsilon log u and
    g + epsilon log v, and the update is u = a / (P v), or, where the marginals are
    soft, u = a exp(-(1 - tau) f/epsilon) / (P v)^tau.

    Args:
        problem: the cost's geometry with its marginals.
        cost: the cost whole.
        f: potential of x before.
        g: potential of y before.
        count: iterations.
        omega: see `log_iterations`.
        soft: None: the plan has the marginals themselves. Else the error returned is
            not that of the problem.
        guarded: whether to iterate in the log domain where a sum of P is out of
            float32's comfortable range.
    """
    a, b, epsilon = problem.a, problem.b, problem.geom.epsilon
    plan = jnp.exp((f[:, None] + g[None, :] - cost) / epsilon)

    def products() -> tuple[Array, Array, Array]:
        if soft is None:
            kernel = geometry.KernelGeometry(kernel_matrix=plan, epsilon=epsilon)
            absorbed = linear_problem.LinearProblem(kernel, a=a, b=b)
        else:
            kernel = SoftKernelGeometry(plan, epsilon, soft.tau_x, soft.tau_y)
            absorbed = linear_problem.LinearProblem(
                kernel,
                a=_absorbed(a, f, epsilon, soft.tau_x),
                b=_absorbed(b, g, epsilon, soft.tau_y),
            )
        solver = _solver(count, omega, lse_mode=False)
        out = solver(absorbed, init=(jnp.ones_like(f), jnp.ones_like(g)))
        return f + out.f, g + out.g, out.errors[0]

    if not guarded:
        return products()

    def logarithms() -> tuple[Array, Array, Array]:
        return log_iterations(problem, f, g, count=count, omega=omega)

    low, high = geometry.SAFE_SUM
    rows, columns = jnp.sum(plan, axis=1), jnp.sum(plan, axis=0)
    safe = jnp.all((rows > low) & (rows < high) | (a == 0))
    safe &= jnp.all((columns > low) & (columns < high) | (b == 0))
    moved: tuple[Array, Array, Array] = jax.lax.cond(safe, products, logarithms)
    return moved


def _absorbed(weights: Array, potential: Array, epsilon: Array, tau: Array) -> Array:
    """Return a exp(-(1 - tau) f/epsilon); 0 where a row has no weight."""
    known = jnp.where(weights > 0, potential, 0)
    return weights * jnp.exp(-(1 - tau) * known / epsilon)


def _solver(
    count: int, omega: Array | None, *, lse_mode: bool = True
) -> sinkhorn.Sinkhorn:
    return sinkhorn.Sinkhorn(
        lse_mode=lse_mode,
        inner_iterations=count,
        min_iterations=count,
        max_iterations=count,
        momentum=None if omega is None else acceleration.Momentum(value=omega),
    )
