"""The streamed half-step as one Pallas kernel: log-sum-exp over tiles never written.

Each tile of z = (h_j + x_i . y_j - 1)/epsilon is made of a product in full float32 and
folded at once into a running maximum and a running sum of every row (Milakov and
Gimelshein, arXiv:1805.02867), so that nothing of n x m leaves the chip and the
coordinates of a column tile are read once a row tile.

On a GPU (Triton) a program takes one tile of rows and loops over the columns; on a TPU
the tiles are a grid, whose steps come one after the other. On a CPU the GPU's program
is interpreted: slow, and there to be tested. No accelerator has timed it, so that the
plain path stays the default and the reference.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from anchordot_jax.arrays import AnyArray

HIGHEST = jax.lax.Precision.HIGHEST

# Rows, columns and depth of a tile; Triton wants powers of two.
LOOP_TILE = (64, 64, 32)
GRID_TILE = (256, 512)


def log_sum(
    rows: Float[AnyArray, "n r"],
    others: Float[AnyArray, "m r"],
    h: Float[AnyArray, " m"],
    epsilon: Float[AnyArray, ""] | float,
    *,
    form: str | None = None,
    interpret: bool | None = None,
) -> Float[Array, " n"]:
    """Return log sum_j exp((h_j + x_i . y_j - 1)/epsilon) of every row.

    -inf where no column has any weight (h = -inf).

    Args:
        rows: coordinates x.
        others: coordinates y.
        h: potential of the others.
        epsilon: regularisation.
        form: "loop" (GPU) or "grid" (TPU); the backend's by default.
        interpret: whether to emulate the kernel; by default on a CPU.
    """
    backend = jax.default_backend()
    if form is None:
        form = "grid" if backend == "tpu" else "loop"
    if interpret is None:
        interpret = backend == "cpu"
    x, y = jnp.asarray(rows, jnp.float32), jnp.asarray(others, jnp.float32)
    h, eps = jnp.asarray(h, jnp.float32), jnp.asarray(epsilon, jnp.float32)
    run = _by_grid if form == "grid" else _by_loop
    return run(x, y, h, eps, interpret=interpret)[: len(x)]


def _by_loop(x: Array, y: Array, h: Array, eps: Array, *, interpret: bool) -> Array:
    height, width, depth = LOOP_TILE
    x, y = _filled(x, height, depth), _filled(y, width, depth)
    h = _filled(h, width, value=-jnp.inf)
    call = pl.pallas_call(
        _loop_kernel,
        out_shape=jax.ShapeDtypeStruct((len(x),), jnp.float32),
        grid=(len(x) // height,),
        interpret=interpret,
        compiler_params=triton.CompilerParams(num_warps=4),
        name="log_sum",
    )
    result: Array = call(x, y, h, eps[None])
    return result


def _loop_kernel(
    x_ref: Any, y_ref: Any, h_ref: Any, eps_ref: Any, out_ref: Any
) -> None:
    """Fold all columns into one tile of rows; the refs are the whole arrays."""
    height, width, depth = LOOP_TILE
    rows = pl.ds(pl.program_id(0) * height, height)
    eps = eps_ref[0]

    def visit(j: Array, folded: tuple[Array, Array]) -> tuple[Array, Array]:
        columns = pl.ds(j * width, width)

        def add(k: Array, product: Array) -> Array:
            part = pl.ds(k * depth, depth)
            return product + _product(x_ref[rows, part], y_ref[columns, part])

        start = jnp.zeros((height, width), jnp.float32)
        product = jax.lax.fori_loop(0, x_ref.shape[1] // depth, add, start)
        return _fold(*folded, (h_ref[columns][None, :] + product - 1) / eps)

    start = jnp.full(height, -jnp.inf, jnp.float32), jnp.zeros(height, jnp.float32)
    top, total = jax.lax.fori_loop(0, y_ref.shape[0] // width, visit, start)
    out_ref[rows] = top + jnp.log(total)


def _by_grid(x: Array, y: Array, h: Array, eps: Array, *, interpret: bool) -> Array:
    height, width = GRID_TILE
    x, y = _filled(x, height), _filled(y, width)
    h = _filled(h, width, value=-jnp.inf)
    r = x.shape[1]
    column = pl.BlockSpec((height, 1), lambda i, j: (i, 0))
    shape = jax.ShapeDtypeStruct((len(x), 1), jnp.float32)
    call = pl.pallas_call(
        _grid_kernel,
        out_shape=(shape, shape),
        grid=(len(x) // height, len(y) // width),
        in_specs=[
            pl.BlockSpec((height, r), lambda i, j: (i, 0)),
            pl.BlockSpec((width, r), lambda i, j: (j, 0)),
            pl.BlockSpec((1, width), lambda i, j: (0, j)),
            pl.BlockSpec((1, 1), lambda i, j: (0, 0)),
        ],
        out_specs=(column, column),
        interpret=interpret,
        name="log_sum",
    )
    top, total = call(x, y, h[None], eps[None, None])
    result: Array = (top + jnp.log(total))[:, 0]
    return result


def _grid_kernel(
    x_ref: Any, y_ref: Any, h_ref: Any, eps_ref: Any, top_ref: Any, total_ref: Any
) -> None:
    """Fold one tile of columns into the rows' running maximum and sum."""

    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        top_ref[...] = jnp.full(top_ref.shape, -jnp.inf, jnp.float32)
        total_ref[...] = jnp.zeros(total_ref.shape, jnp.float32)

    z = (h_ref[...] + _product(x_ref[...], y_ref[...]) - 1) / eps_ref[...]
    top, total = _fold(top_ref[...][:, 0], total_ref[...][:, 0], z)
    top_ref[...], total_ref[...] = top[:, None], total[:, None]


def _product(x: Array, y: Array) -> Array:
    contracted = (((1,), (1,)), ((), ()))
    product: Array = jax.lax.dot_general(x, y, contracted, precision=HIGHEST)
    return product


def _fold(top: Array, total: Array, z: Array) -> tuple[Array, Array]:
    """Return the maximum and the sum around it after some more columns."""
    higher = jnp.maximum(top, jnp.max(z, axis=1))
    # Without any weight so far the maximum is -inf, and no exponent may be NaN.
    around = jnp.where(higher > -jnp.inf, higher, 0.0)
    terms = jnp.sum(jnp.exp(z - around[:, None]), axis=1)
    return higher, total * jnp.exp(top - around) + terms


def _filled(array: Array, *multiples: int, value: float = 0.0) -> Array:
    """Return the array with its leading axes filled up to multiples of a tile."""
    missing = [(0, -size % k) for size, k in zip(array.shape, multiples, strict=False)]
    missing += [(0, 0)] * (array.ndim - len(missing))
    return jnp.pad(array, missing, constant_values=value)
