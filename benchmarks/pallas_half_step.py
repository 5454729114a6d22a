"""One streamed half-step by the Pallas kernel and by XLA's tiles, timed.

On a machine with a GPU or TPU:

    python benchmarks/pallas_half_step.py --n 20000 --m 20000 --r 384

Printed are seconds of both, the largest difference, and the floor of the arithmetic:
2 n m r floating-point operations at the measured rate of a float32 matrix product of
one tile's rows. Without an accelerator the kernel is interpreted and says nothing of
its speed; only a small size is sensible then:

    python benchmarks/pallas_half_step.py --n 300 --m 200 --r 32
"""

import dataclasses
import functools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import tyro

from anchordot_jax.geometry import HIGHEST, ProfileGeometry
from anchordot_jax.tiles import tile_shape

GIGA = 1e9


@dataclasses.dataclass(frozen=True)
class Args:
    """What to time."""

    n: int = 300
    m: int = 200
    r: int = 32
    """Dimension of the coordinates."""
    epsilon: float = 0.01
    repeats: int = 5
    seed: int = 0


def unit_rows(key: jax.Array, rows: int, width: int) -> jax.Array:
    """Return random unit rows."""
    drawn = jax.random.normal(key, (rows, width))
    return drawn / jnp.linalg.norm(drawn, axis=1, keepdims=True)


@functools.partial(jax.jit, static_argnames="kernel")
def half_step(
    x: jax.Array, y: jax.Array, g: jax.Array, epsilon: jax.Array, kernel: str | None
) -> jax.Array:
    """Return epsilon log sum_j exp((g_j - C_ij)/epsilon)."""
    geom = ProfileGeometry(x, y, epsilon=epsilon, kernel=kernel)
    log_sum: jax.Array = geom.apply_lse_kernel(jnp.zeros(len(x)), g, epsilon, axis=1)[0]
    return log_sum


@jax.jit
def product(x: jax.Array, y: jax.Array) -> jax.Array:
    """Return one entry a row of x y^T, so that the product is made and not kept."""
    return jnp.max(jnp.matmul(x, y.T, precision=HIGHEST), axis=1)


def best_seconds(call: Callable[[], jax.Array], repeats: int) -> float:
    """Return the shortest of some calls, after one that compiles."""
    call().block_until_ready()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call().block_until_ready()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main(args: Args) -> None:
    """Time both kernels, and print."""
    keys = jax.random.split(jax.random.key(args.seed), 3)
    x = unit_rows(keys[0], args.n, args.r)
    y = unit_rows(keys[1], args.m, args.r)
    g = 0.1 * jax.random.normal(keys[2], (args.m,))
    given = x, y, g, jnp.asarray(args.epsilon, jnp.float32)
    device = jax.devices()[0]
    note = ", the kernel INTERPRETED" if device.platform == "cpu" else ""
    print(f"{device.device_kind}{note}: n = {args.n}, m = {args.m}, r = {args.r}")
    results = {}
    for name, kernel in (("XLA's tiles", None), ("Pallas", "pallas")):
        call = functools.partial(half_step, *given, kernel=kernel)
        results[name] = call()
        print(f"{name}: {best_seconds(call, args.repeats):.4f} s")
    rows, columns = map(min, (args.n, args.m), tile_shape(args.m))
    tile = functools.partial(product, x[:rows], y[:columns])
    seconds = best_seconds(tile, args.repeats)
    rate = 2 * rows * columns * args.r / seconds
    floor = 2 * args.n * args.m * args.r / rate
    print(f"floor of the arithmetic: {floor:.4f} s at {rate / GIGA:.0f} GFLOP/s")
    plain, pallas = results.values()
    most = float(jnp.abs(plain - pallas).max()) / args.epsilon
    print(f"largest difference: {most:.1e} of epsilon")


if __name__ == "__main__":
    main(tyro.cli(Args))
