"""Solve one stored problem with another library and print what it took.

    PEER/bin/python benchmarks/rival_cell.py ott-online profiles.npz --epsilon 0.01

It runs in the rivals' environment, with the libraries that it measures and NumPy. Each
gets the unit-norm profiles phi of both pools, as its users would have them, and the
cosine cost; the time to compute phi is not counted. The call ends with the potentials
f and g of the plan exp((f_i + g_j - C_ij)/epsilon).
"""

import argparse
import functools
import importlib.metadata
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from measuring import Solved, column_error, report, start

Array = np.ndarray[Any, Any]
# Rows of the cost that OTT's online mode holds: 256 rows took 2.7 times as long.
OTT_ROWS = 1024
# POT looks at its own error, which is an L2 one, every so many iterations.
POT_BLOCK = 10
MAX_ITERATIONS = 1000
# Our default over-relaxation, for the row that gives OTT the same.
MOMENTUM = 1.5
PACKAGES = ("jax", "jaxlib", "ott-jax", "POT", "geomloss", "pykeops", "torch", "numpy")


def ott(
    rows: int | None, *, momentum: float | None = None
) -> Callable[[Array, Array, float, float], Solved]:
    """Return OTT-JAX's Sinkhorn on a PointCloud, dense (None) or online.

    With a momentum it over-relaxes by that factor; None is its default, plain Sinkhorn.
    """
    import jax
    from ott.geometry import costs, pointcloud
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import acceleration, sinkhorn

    faster = None if momentum is None else acceleration.Momentum(value=momentum)

    @functools.partial(jax.jit, static_argnames=("tolerance",))
    def compiled(x: Array, y: Array, epsilon: float, tolerance: float) -> Any:
        cloud = pointcloud.PointCloud(
            x, y, cost_fn=costs.Cosine(), epsilon=epsilon, batch_size=rows
        )
        solver = sinkhorn.Sinkhorn(
            max_iterations=MAX_ITERATIONS, threshold=tolerance, momentum=faster
        )
        return solver(linear_problem.LinearProblem(cloud))

    def solve(x: Array, y: Array, epsilon: float, tolerance: float) -> Solved:
        out = compiled(x, y, epsilon, tolerance)
        return Solved(np.asarray(out.f), np.asarray(out.g), int(out.n_iters))

    return solve


def pot(*, torch: bool) -> Callable[[Array, Array, float, float], Solved]:
    """Return POT's `sinkhorn_log` on a float32 cost, by its torch or NumPy backend.

    NumPy's exponentials run on one thread, torch's on all that it is given.

    Its threshold is on an L2 error. So that it stops by the L1 error, as the others do,
    the first call looks at that error itself every ten iterations, and the second runs
    as many iterations in one go.
    """
    import ot

    if torch:
        from torch import from_numpy as backend
    else:
        backend = np.asarray
    known: list[int] = []

    def solve(x: Array, y: Array, epsilon: float, tolerance: float) -> Solved:
        cost = backend(1 - x @ y.T)
        a = np.full(len(x), 1 / len(x), np.float32)
        b = np.full(len(y), 1 / len(y), np.float32)
        start, count, error = None, 0, np.inf
        block = known[0] if known else POT_BLOCK
        while error > tolerance and count < MAX_ITERATIONS:
            plan, log = ot.bregman.sinkhorn_log(
                *(backend(a), backend(b), cost),
                epsilon if torch else np.float32(epsilon),
                numItermax=block,
                stopThr=0,
                log=True,
                warn=False,
                warmstart=start,
            )
            start = (log["log_u"], log["log_v"])
            count += block
            columns = np.asarray(plan.sum(axis=0))
            error = 0.0 if known else float(np.abs(columns - b).sum())
        known[:] = [count]
        f, g = (epsilon * np.asarray(log[name]) for name in ("log_u", "log_v"))
        return Solved(f, g, count)

    return solve


def geomloss(lazy: bool) -> Callable[[Array, Array, float, float], Solved]:
    """Return GeomLoss's solver, on KeOps' lazy cost or on a stored one.

    Its symmetric iterations, with epsilon annealed over all of them, have a number and
    no tolerance. The first call doubles that number until the L1 error is small enough,
    and the second runs it once; so the first is several solves.
    """
    import torch
    from geomloss import ot

    if lazy:
        import pykeops

        pykeops.set_verbose(False)
    known: list[int] = []

    def once(x: Any, y: Any, epsilon: float, count: int) -> tuple[Array, Array]:
        if lazy:
            # |x - y|^2 = 2 (1 - cos) of unit rows, so twice the epsilon.
            out = ot.solve_sample(x, y, reg=2 * epsilon, max_iter=count)
            scale = 0.5
        else:
            out = ot.solve(1 - x @ y.T, reg=epsilon, max_iter=count)
            scale = 1.0
        f, g = (scale * p.numpy() for p in (out.potential_a, out.potential_b))
        # Its plan has the factor a_i b_j.
        return f - epsilon * np.log(len(f)), g - epsilon * np.log(len(g))

    def solve(x: Array, y: Array, epsilon: float, tolerance: float) -> Solved:
        sides = torch.from_numpy(x), torch.from_numpy(y)
        if known:
            return Solved(*once(*sides, epsilon, known[0]), known[0])
        count = 10
        while True:
            f, g = once(*sides, epsilon, count)
            error = column_error(x, y, f, g, epsilon)
            told = {"iterations": count, "column_error": error}
            print(json.dumps(told), flush=True)
            if error <= tolerance or 2 * count > MAX_ITERATIONS:
                known[:] = [count]
                return Solved(f, g, count)
            count *= 2

    return solve


RIVALS: Mapping[str, Callable[[], Callable[[Array, Array, float, float], Solved]]] = {
    "ott-online": lambda: ott(OTT_ROWS),
    "ott-dense": lambda: ott(None),
    "ott-dense-momentum": lambda: ott(None, momentum=MOMENTUM),
    "pot-torch": lambda: pot(torch=True),
    "pot-log": lambda: pot(torch=False),
    "geomloss-keops": lambda: geomloss(lazy=True),
    "geomloss-dense": lambda: geomloss(lazy=False),
}


def main() -> None:
    """Read the arguments, solve twice and print."""
    began = start()
    parser = argparse.ArgumentParser()
    parser.add_argument("rival", choices=[*RIVALS, "versions"])
    parser.add_argument("inputs", type=Path, nargs="?")
    parser.add_argument("--epsilon", type=float)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--limit", type=float, default=float("inf"))
    args = parser.parse_args()
    if args.rival == "versions":
        print(json.dumps(versions()))
        return
    with np.load(args.inputs) as arrays:
        x, y = arrays["x"], arrays["y"]
    solver = RIVALS[args.rival]()

    def solve() -> Solved:
        return solver(x, y, args.epsilon, args.tolerance)

    def error(solved: Solved) -> float:
        return column_error(x, y, solved.f, solved.g, args.epsilon)

    report(solve, error, limit=args.limit, began=began)


def versions() -> dict[str, str]:
    """Return the versions of the libraries that are here."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


if __name__ == "__main__":
    main()
