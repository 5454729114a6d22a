"""What SOTAlign's students minimise in a step: SAIL on pairs, KLOT on the pools."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax.baselines.protocol import Anchors
from anchordot_jax.baselines.sotalign import klot, noise
from anchordot_jax.baselines.sotalign.settings import SotalignSettings
from anchordot_jax.baselines.trained.sail_loss import Reduction, sail_loss
from anchordot_jax.baselines.trained.training import draw_rows
from anchordot_jax.students import Params
from anchordot_jax.training.affinity import cosines, outputs


class LossSettings(NamedTuple):
    """The settings that the loss depends on; fits that share them share a program."""

    alpha_sail: float
    alpha_klot: float
    reduction: Reduction
    epsilon: float
    iterations: int
    warm_iterations: int
    epsilon_teacher: float
    iterations_teacher: int
    batch_size: int
    batch_size_pairs: int
    sigma_k: float


def loss_settings(settings: SotalignSettings) -> LossSettings:
    """Return the part of the settings that the loss depends on."""
    return LossSettings(*(getattr(settings, name) for name in LossSettings._fields))


class Unpaired(NamedTuple):
    """The pools as the loss reads them, and what the teacher says of them."""

    x: Float[Array, "n ex"]
    """Standardized rows."""
    y: Float[Array, "m ey"]
    plan: klot.Teacher | None
    """The teacher's plan, where a step takes both pools whole."""
    teacher_x: Float[Array, "n k"] | None
    """The teacher's embeddings, where every step draws its own rows."""
    teacher_y: Float[Array, "m k"] | None


class Data(NamedTuple):
    """What the loss reads."""

    anchors: Anchors
    """Standardized rows."""
    pools: Unpaired | None
    """None where KLOT weighs nothing."""


def sotalign_loss(
    params: Params,
    state: Any,
    data: Data,
    key: jax.Array,
    static: LossSettings,
) -> tuple[Array, Any]:
    """Return alpha_sail SAIL + alpha_klot KLOT of one step, and the new potentials.

    The state is the column potentials `[m]` of the students' plan.
    """
    pairs = data.anchors
    if static.batch_size_pairs < len(pairs.x):
        rows = draw_rows(len(pairs.x), static.batch_size_pairs, key=key)
        pairs = Anchors(pairs.x[rows], pairs.y[rows])
    similarities = outputs(params["x"], pairs.x) @ outputs(params["y"], pairs.y).T
    supervised = static.alpha_sail * sail_loss(
        similarities,
        params["log_scale"],
        params["logit_bias"],
        reduction=static.reduction,
    )
    if data.pools is None:
        return supervised, state
    if data.pools.plan is not None:
        value, state = _klot(params, state, data.pools, data.pools.plan, static)
    else:
        size = static.batch_size - len(pairs.x)
        value, state = _klot_of_batch(
            params,
            state,
            data.pools,
            static,
            size=size,
            key=jax.random.fold_in(key, 1),
        )
    return supervised + static.alpha_klot * value, state


def _klot(
    params: Params,
    v: Array,
    pools: Unpaired,
    plan: klot.Teacher,
    static: LossSettings,
) -> tuple[Array, Array]:
    """Return KLOT of the pools and the students' new column potentials."""
    similarities = cosines(params, pools.x, pools.y)
    fixed = jax.lax.stop_gradient(similarities)
    if static.warm_iterations:
        student, potentials = klot.warm_plan(
            fixed, static.epsilon, v, static.warm_iterations
        )
    else:
        potentials = klot.sinkhorn_potentials(fixed, static.epsilon, static.iterations)
        student = jnp.exp(klot.log_plan(fixed, static.epsilon, potentials))
    value = klot.divergence(similarities, plan, student, potentials, static.epsilon)
    return value, potentials.v


def _klot_of_batch(
    params: Params,
    v: Array,
    pools: Unpaired,
    static: LossSettings,
    *,
    size: int,
    key: jax.Array,
) -> tuple[Array, Array]:
    """Return KLOT of drawn rows, whose teacher's plan is solved here."""
    if pools.teacher_x is None or pools.teacher_y is None:
        raise TypeError("Without a plan, the teacher's embeddings are needed.")
    key_x, key_y, key_noise = jax.random.split(key, 3)
    i = draw_rows(len(pools.x), size, key=key_x)
    j = draw_rows(len(pools.y), size, key=key_y)
    taught = pools.teacher_x[i] @ pools.teacher_y[j].T
    if static.sigma_k:
        taught = noise.blur(taught, static.sigma_k, key=key_noise)
    plan = klot.fast_teacher_plan(
        taught, static.epsilon_teacher, static.iterations_teacher
    )
    drawn = Unpaired(pools.x[i], pools.y[j], plan, None, None)
    value, own = _klot(params, v[j], drawn, plan, static)
    return value, v.at[j].set(own)
