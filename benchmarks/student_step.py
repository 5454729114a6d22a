"""Seconds of one distillation step, against the rate of a float32 matrix product.

    python benchmarks/student_step.py --chunk-size 2000 --dim-x 384 --dim-y 384

One pool chunk: the targets from the potentials, the students' logits, the loss, its
gradient and the optimiser. Float32 and bfloat16 products take turns; the fastest of the
repeats counts, by the wall and by the processor's clock. Beside the seconds stand the
operations of the step's matrix products, counted in its program, a second, and their
share of what a float32 product of the logits' shape reaches here.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import tyro

from anchordot_jax import distillation
from anchordot_jax.config import DistillationConfig
from anchordot_jax.training import optimizer

GIGA = 1e9
TYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Args:
    """Sizes of the step."""

    chunk_size: int = 2000
    """Rows of each side."""
    dim_x: int = 384
    dim_y: int = 384
    coordinates: int = 384
    """Columns of the coordinates: the least of anchors and both dimensions."""
    dim: int = 1024
    """Dimension of the shared space."""
    steps: int = 5
    """Steps timed together."""
    repeats: int = 7
    """Times that each is timed."""


def chunk_of(args: Args) -> distillation.Pools:
    """Return one chunk of random rows with potentials of 0."""
    keys = jax.random.split(jax.random.key(0), 4)
    columns = (args.dim_x, args.dim_y, args.coordinates, args.coordinates)
    x, y, z_x, z_y = (
        jax.random.normal(key, (args.chunk_size, n)) / math.sqrt(n)
        for key, n in zip(keys, columns, strict=True)
    )
    zero = jnp.zeros(args.chunk_size)
    return distillation.Pools(x, y, z_x, z_y, zero, zero, jnp.asarray(0.1))


def step_of(config: DistillationConfig) -> Callable[..., Any]:
    """Return one step of the training as a function of state and chunk."""
    adam = optimizer.make_optimizer(config, 1000)

    def step(
        state: distillation.TrainState, chunk: distillation.Pools
    ) -> distillation.TrainState:
        gradient = jax.grad(distillation.chunk_loss)(state.params, chunk, config)
        params, opt_state = optimizer.apply_gradient(
            adam, state.params, state.opt_state, gradient, config
        )
        return distillation.TrainState(params, opt_state, state.epoch)

    return step


def matmul_operations(jaxpr: Any) -> int:
    """Return the operations of all matrix products of a program."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            inner = math.prod(equation.invars[0].aval.shape[i] for i in contracted)
            total += 2 * inner * math.prod(equation.outvars[0].aval.shape)
        for value in equation.params.values():
            inside = getattr(value, "jaxpr", value)
            if hasattr(inside, "eqns"):
                total += matmul_operations(inside)
    return total


def seconds(work: Callable[[], Any]) -> tuple[float, float]:
    """Return the wall seconds of some work, and the processor's, all cores together."""
    wall, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(work())
    return time.perf_counter() - wall, time.process_time() - cpu


def main(args: Args) -> None:
    """Time and print."""
    chunk = chunk_of(args)
    works: dict[str, Callable[[], Any]] = {}
    states: dict[str, Any] = {}
    for name in TYPES:
        config = DistillationConfig(dim=args.dim, matmul=name)  # type: ignore[arg-type]
        states[name] = optimizer.init_training(
            args.dim_x, args.dim_y, config, total_steps=1000, key=jax.random.key(1)
        )
        step = step_of(config)
        if name == "float32":
            # The rounded products are the same ones.
            program = jax.make_jaxpr(step)(states[name], chunk)
            operations = matmul_operations(program.jaxpr)

        @functools.partial(jax.jit, static_argnames=("step",))
        def several(state: Any, chunk: Any, *, step: Callable[..., Any]) -> Any:
            return jax.lax.fori_loop(
                0, args.steps, lambda _, state: step(state, chunk), state
            )

        works[name] = functools.partial(several, states[name], chunk, step=step)
    size = args.chunk_size
    a, b = jnp.ones((size, args.dim_y)), jnp.ones((args.dim_y, size))
    product = jax.jit(lambda a, b: a @ b)
    works["product"] = functools.partial(product, a, b)
    for work in works.values():
        jax.block_until_ready(work())
    taken = dict.fromkeys(works, (math.inf, math.inf))
    for _ in range(args.repeats):
        for name, work in works.items():
            wall, cpu = seconds(work)
            taken[name] = min(taken[name][0], wall), min(taken[name][1], cpu)

    print(
        f"chunks of {size}, {args.dim_x} and {args.dim_y} columns, r "
        f"{args.coordinates}, dim {args.dim}, {jax.devices()[0]}; "
        f"{operations / GIGA:.1f} GFLOP a step in products"
    )
    for clock, what in enumerate(("wall", "processor, all cores")):
        rate = 2 * size * size * args.dim_y / taken["product"][clock]
        print(
            f"seconds of {what}: a float32 product {size} x {args.dim_y} x {size} "
            f"does {rate / GIGA:.0f} GFLOP/s"
        )
        for name in TYPES:
            each = taken[name][clock] / args.steps
            print(
                f"  {name}: {1000 * each:.1f} ms a step, "
                f"{operations / each / GIGA:.0f} GFLOP/s, "
                f"{operations / each / rate:.0%} of it"
            )


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
