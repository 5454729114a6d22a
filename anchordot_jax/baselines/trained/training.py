"""Training the students with any loss: the loop that the trained baselines share."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Hashable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from anchordot_jax.config import check_setting
from anchordot_jax.distillation import clamp_scale
from anchordot_jax.students import Params, init_params

MAX_LOGIT_SCALE = 100.0

State = Any
"""Arrays that a loss carries from step to step, such as potentials; no gradient."""

Loss = Callable[[Params, State, Any, PRNGKeyArray, Any], tuple[Array, State]]
"""loss(params, state, data, key, static) -> (value, next state). The key differs from
step to step: a loss draws its own batch from the data."""


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raise InputError unless the setting is a whole number of at least `least`."""
    ok = isinstance(value, int) and not isinstance(value, bool) and value >= least
    check_setting(ok, name, f"a whole number >= {least}", value)


def check_weight(name: str, value: float) -> None:
    """Raise InputError unless the setting is a finite number >= 0."""
    check_setting(0 <= value < math.inf, name, "a number >= 0", value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings of the students and their training, with SAIL's defaults."""

    steps: int = 2000
    """Gradient steps."""
    learning_rate: float = 1e-5
    """Step size after the warm-up."""
    optimizer: Literal["lion", "adamw"] = "lion"
    """Lion (betas 0.9, 0.99) or AdamW."""
    weight_decay: float = 1e-4
    """Decoupled weight decay, on the two weight matrices only."""
    warmup: float = 0.1
    """Share of the steps over which the learning rate rises linearly."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Learning rate after the warm-up."""
    dim: int = 1024
    """Dimension of the shared space."""
    logit_scale: float = 20.0
    """Initial factor on the cosines; learned, at most 100."""
    logit_bias: float = -10.0
    """Initial bias of the logits, where the loss has one; learned."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("steps", "dim"):
            check_count(name, getattr(self, name))
        for name in ("learning_rate", "logit_scale"):
            value = getattr(self, name)
            check_setting(0 < value < math.inf, name, "a number > 0", value)
        ok = self.logit_scale <= MAX_LOGIT_SCALE
        check_setting(ok, "logit_scale", "at most 100", self.logit_scale)
        check_weight("weight_decay", self.weight_decay)
        ok = math.isfinite(self.logit_bias)
        check_setting(ok, "logit_bias", "a finite number", self.logit_bias)
        check_setting(0 <= self.warmup <= 1, "warmup", "in [0, 1]", self.warmup)
        ok = self.optimizer in ("lion", "adamw")
        check_setting(ok, "optimizer", "'lion' or 'adamw'", self.optimizer)
        ok = self.schedule in ("cosine", "constant")
        check_setting(ok, "schedule", "'cosine' or 'constant'", self.schedule)


class Trained(NamedTuple):
    """What a training ends with."""

    params: Params
    """The students' parameters, without the logit bias."""
    losses: np.ndarray
    """Loss of every step that was taken, `[steps]`."""
    state: State
    step: int
    """The step that the parameters are of: the last one, or the best checkpoint's."""


def train(
    loss: Loss,
    data: Any,
    *,
    dim_x: int,
    dim_y: int,
    settings: TrainingSettings,
    key: PRNGKeyArray,
    state: State = (),
    static: Hashable = None,
    n_checkpoints: int = 1,
    validate: Callable[[Params], float] | None = None,
) -> Trained:
    """Return the students that minimise a loss.

    Args:
        loss: a function of a module (it is compiled once), see `Loss`. The params are
            those of `students.init_params` and a scalar `logit_bias`.
        data: arrays that the loss reads.
        dim_x: columns of x.
        dim_y: columns of y.
        settings: optimiser and schedule.
        key: fixes the initial weights and the keys of the steps.
        state: what the first step is given as state.
        static: hashable settings of the loss.
        n_checkpoints: the steps are run in so many parts.
        validate: scores the params after each part, larger is better; the best are
            returned instead of the last.

    Raises:
        FloatingPointError: the loss is not finite.
    """
    key_params, key_steps = jax.random.split(key)
    params = init_params(
        dim_x, dim_y, settings.dim, temperature=1 / settings.logit_scale, key=key_params
    )
    params["logit_bias"] = jnp.asarray(settings.logit_bias, jnp.float32)
    # Every step donates its state, and the caller's arrays must outlive the first.
    state = jax.tree.map(jnp.array, state)
    carry = (params, make_optimizer(_schedule_of(settings)).init(params), state)
    losses: list[np.ndarray] = []
    best: tuple[float, Params, int] | None = None
    edges = np.linspace(0, settings.steps, n_checkpoints + 1).round().astype(int)
    for start, stop in itertools.pairwise(edges.tolist()):
        if start == stop:
            continue
        carry, part = _run_steps(
            carry,
            data,
            key_steps,
            jnp.arange(start, stop, dtype=jnp.int32),
            loss=loss,
            schedule=_schedule_of(settings),
            static=static,
        )
        losses.append(np.asarray(part))
        if not np.isfinite(losses[-1]).all():
            raise FloatingPointError(
                f"The training loss is not finite before step {stop}; lower the "
                f"learning rate {settings.learning_rate:g}."
            )
        if validate is not None:
            value = validate(without_bias(carry[0]))
            if best is None or value > best[0]:
                best = (value, jax.tree.map(jnp.copy, carry[0]), stop)
    _, chosen, step = best or (0.0, carry[0], settings.steps)
    return Trained(without_bias(chosen), np.concatenate(losses), carry[2], step)


def without_bias(params: Params) -> Params:
    """Return the students' own parameters."""
    return {name: leaf for name, leaf in params.items() if name != "logit_bias"}


class Schedule(NamedTuple):
    """What the optimiser depends on; hashable, so that equal ones share a program."""

    optimizer: str
    learning_rate: float
    weight_decay: float
    warmup_steps: int
    steps: int
    schedule: str


def _schedule_of(settings: TrainingSettings) -> Schedule:
    return Schedule(
        settings.optimizer,
        settings.learning_rate,
        settings.weight_decay,
        round(settings.warmup * settings.steps),
        settings.steps,
        settings.schedule,
    )


def make_optimizer(schedule: Schedule) -> optax.GradientTransformation:
    """Return Lion or AdamW with warm-up; only matrices are decayed."""
    rate, warmup = schedule.learning_rate, schedule.warmup_steps
    # The first step already moves.
    rise = optax.linear_schedule(rate / max(1, warmup), rate, max(1, warmup - 1))
    if schedule.schedule == "cosine":
        after = optax.cosine_decay_schedule(rate, max(1, schedule.steps - warmup))
    else:
        after = optax.constant_schedule(rate)
    joined = optax.join_schedules([rise, after], [warmup])
    make = optax.lion if schedule.optimizer == "lion" else optax.adamw
    return make(
        joined,
        weight_decay=schedule.weight_decay,
        mask=lambda params: jax.tree.map(lambda leaf: leaf.ndim >= 2, params),
    )


@functools.partial(
    jax.jit,
    static_argnames=("loss", "schedule", "static"),
    donate_argnames=("carry",),
)
def _run_steps(
    carry: tuple[Params, optax.OptState, State],
    data: Any,
    key: PRNGKeyArray,
    steps: Array,
    *,
    loss: Loss,
    schedule: Schedule,
    static: Hashable,
) -> tuple[tuple[Params, optax.OptState, State], Float[Array, " steps"]]:
    """Return the carry after some steps, and their losses."""
    optimizer = make_optimizer(schedule)

    def step(
        carry: tuple[Params, optax.OptState, State], index: Array
    ) -> tuple[tuple[Params, optax.OptState, State], Array]:
        params, opt_state, state = carry
        own = jax.random.fold_in(key, index)
        (value, state), grads = jax.value_and_grad(loss, has_aux=True)(
            params, state, data, own, static
        )
        state = jax.lax.stop_gradient(state)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return (clamp_scale(params, MAX_LOGIT_SCALE), opt_state, state), value

    return jax.lax.scan(step, carry, steps)


def draw_rows(n: int, size: int, *, key: jax.Array) -> Array:
    """Return the row numbers of one step: all n in order, or `size` drawn ones."""
    if size >= n:
        return jnp.arange(n)
    return jax.random.permutation(key, n)[:size]
