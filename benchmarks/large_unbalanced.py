"""Time and memory of one streamed unbalanced solve of large sides.

Command (some minutes on 2 CPU cores):

    python benchmarks/large_unbalanced.py --n 20000

Two noisy views of one cloud on the sphere, eps 0.08 and rho 0.8. The cost is never
stored. Prints the iterations, the error, the seconds and the process's peak memory.
"""

import dataclasses
import resource
import time

import numpy as np
import tyro

from anchordot_jax.diagnostics.decomposition import decompose, plan_rows
from anchordot_jax.diagnostics.settings import UnbalancedConfig
from anchordot_jax.diagnostics.unbalanced import solve_unbalanced


@dataclasses.dataclass(frozen=True)
class Args:
    """What to solve."""

    n: int = 20_000
    """Rows of each side."""
    dim: int = 64
    max_iterations: int = 5000
    seed: int = 0


def main(args: Args) -> None:
    """Solve, decompose and print."""
    rng = np.random.default_rng(args.seed)
    x = rng.normal(size=(args.n, args.dim)).astype(np.float32)
    y = x + 0.5 * rng.normal(size=x.shape).astype(np.float32) + 0.2
    x, y = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (x, y))
    config = UnbalancedConfig(cost_memory=0, max_iterations=args.max_iterations)
    start = time.perf_counter()
    solved = solve_unbalanced(x, y, config=config)
    count = int(solved.n_iterations)
    middle = time.perf_counter()
    terms = decompose(solved, plan_rows(solved, x, y))
    end = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"{args.n} x {args.n}, {args.dim} dimensions: {count} iterations, error "
        f"{float(solved.error):.1e}, converged {bool(solved.converged)}; solve "
        f"{middle - start:.0f} s, decomposition {end - middle:.0f} s; peak "
        f"{peak / 1e9:.2f} GB"
    )
    print(terms)


if __name__ == "__main__":
    main(tyro.cli(Args))
