"""The optimiser of the students, and the state that it moves (Appendix A)."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PRNGKeyArray

from anchordot_jax.config import DistillationConfig
from anchordot_jax.students import Params, init_params


class TrainState(NamedTuple):
    """What the next step needs."""

    params: Params
    opt_state: optax.OptState
    epoch: Int[Array, ""]


def make_optimizer(
    config: DistillationConfig, total_steps: int
) -> optax.GradientTransformation:
    """Return AdamW with a linear warm-up; weight decay touches matrices only.

    LayerNorm's gains, biases and the logit scale are never decayed.
    """
    rate, warmup = config.learning_rate, config.warmup_steps
    # The first step already moves: its rate is rate / warmup, not 0.
    rise = optax.linear_schedule(rate / max(1, warmup), rate, max(1, warmup - 1))
    if config.schedule == "cosine":
        after = optax.cosine_decay_schedule(rate, max(1, total_steps - warmup))
    else:
        after = optax.constant_schedule(rate)
    return optax.adamw(
        optax.join_schedules([rise, after], [warmup]),
        weight_decay=config.weight_decay,
        mask=lambda params: jax.tree.map(lambda leaf: leaf.ndim >= 2, params),
    )


def init_training(
    dim_x: int,
    dim_y: int,
    config: DistillationConfig,
    *,
    total_steps: int,
    key: PRNGKeyArray,
    start: Params | None = None,
) -> TrainState:
    """Return the state before the first step, from given parameters or drawn ones."""
    # The state is donated to the first epoch, so the given ones are copied.
    params = (
        init_params(dim_x, dim_y, config.dim, temperature=config.temperature, key=key)
        if start is None
        else jax.tree.map(jnp.array, start)
    )
    optimizer = make_optimizer(config, total_steps)
    return TrainState(params, optimizer.init(params), jnp.asarray(0, jnp.int32))


def apply_gradient(
    optimizer: optax.GradientTransformation,
    params: Params,
    opt_state: optax.OptState,
    grads: Params,
    config: DistillationConfig,
) -> tuple[Params, optax.OptState]:
    """Return the parameters and the optimiser's state after one step."""
    updates, opt_state = optimizer.update(grads, opt_state, params)
    params = optax.apply_updates(params, updates)
    return clamp_scale(params, config.max_logit_scale), opt_state


def clamp_scale(params: Params, max_logit_scale: float) -> Params:
    """Return the parameters with the logit scale limited, after CLIP."""
    limit = jnp.asarray(math.log(max_logit_scale), jnp.float32)
    return {**params, "log_scale": jnp.minimum(params["log_scale"], limit)}
