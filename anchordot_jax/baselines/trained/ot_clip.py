"""OT-CLIP: the contrastive loss as a transport plan after more half steps of Sinkhorn.

Fan et al. (ICML 2024), "OT-CLIP: Understanding and Generalizing CLIP via Optimal
Transport", read the InfoNCE loss as inverse optimal transport: with P the plan of n
items of mass 1/n a side at cost -S and regularisation epsilon,

    L = -(1/n) sum_i log(n P_ii).

After one half step of Sinkhorn, which makes the rows sum to 1/n, L is the row InfoNCE
at scale 1/epsilon. More half steps let the items compete for the columns too.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax.arrays import AnyArray
from anchordot_jax.baselines.protocol import Anchors, Method, Pools
from anchordot_jax.baselines.trained.sail import RATES, SOTALIGN, finish
from anchordot_jax.baselines.trained.training import (
    TrainingSettings,
    check_count,
    draw_rows,
    train,
)
from anchordot_jax.config import check_setting
from anchordot_jax.model import AlignedModel
from anchordot_jax.students import Params
from anchordot_jax.training.affinity import outputs, standardized_sides

TOLERANCE = 1e-4
"""A converged plan's rows and columns miss their sums by less, in L1 all together."""
MAX_HALF_STEPS = 2000


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtClipSettings(TrainingSettings):
    """Settings of OT-CLIP; epsilon is 1 / the logit scale, learned."""

    logit_scale: float = 1 / 0.07
    """Initial factor on the cosines, 1 / epsilon; learned, at most 100."""
    batch: int = 4096
    """Pairs a step; all of them where there are no more."""
    half_steps: int = 10
    """Half steps of Sinkhorn; 1 is InfoNCE, 2 one whole iteration."""
    converged: bool = False
    """Iterate to the end instead, and use the gradient that this simplifies to."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        check_count("batch", self.batch)
        check_count("half_steps", self.half_steps)
        ok = isinstance(self.converged, bool)
        check_setting(ok, "converged", "true or false", self.converged)


def log_plan(logits: Float[AnyArray, "n n"], half_steps: int) -> Float[Array, "n n"]:
    """Return log(n P) after some half steps of Sinkhorn, rows first.

    An odd number ends with rows that sum to 1, an even number with such columns.
    Differentiable through all steps.
    """

    def both(plan: Array, _: None) -> tuple[Array, None]:
        return jax.nn.log_softmax(jax.nn.log_softmax(plan, axis=1), axis=0), None

    plan = jnp.asarray(logits)
    plan, _ = jax.lax.scan(both, plan, length=half_steps // 2)
    return jax.nn.log_softmax(plan, axis=1) if half_steps % 2 else plan


def converged_log_plan(logits: Float[AnyArray, "n n"]) -> Float[Array, "n n"]:
    """Return log(n P) of the converged plan; not differentiable."""
    n = len(logits)

    def unfinished(loop: tuple[Array, Array, Array]) -> Array:
        _, error, half_steps = loop
        return (error >= TOLERANCE) & (half_steps < MAX_HALF_STEPS)

    def advance(loop: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        plan, _, half_steps = loop
        plan = log_plan(plan, 10)
        # The last half step was the columns'; the rows tell how far the plan is off.
        rows = jnp.exp(jax.nn.logsumexp(plan, axis=1))
        return plan, jnp.sum(jnp.abs(rows - 1)) / n, half_steps + 10

    start = (jnp.asarray(logits), jnp.asarray(jnp.inf), jnp.asarray(0))
    plan, _, _ = jax.lax.while_loop(unfinished, advance, start)
    return plan


def ot_loss(logits: Float[AnyArray, "n n"], half_steps: int) -> Float[Array, ""]:
    """Return -mean log(n P_ii) after some half steps of Sinkhorn, rows first."""
    return -jnp.mean(jnp.diagonal(log_plan(logits, half_steps)))


def converged_ot_loss(logits: Float[AnyArray, "n n"]) -> Float[Array, ""]:
    """Return -mean log(n P_ii) of the converged plan.

    Its gradient to the logits is P - I/n exactly (P_ii is exp of a logit plus two
    potentials, whose mean is the dual value, and the dual's gradient is the plan), so
    none goes through the iterations.
    """
    n = len(logits)
    plan = jax.lax.stop_gradient(converged_log_plan(jax.lax.stop_gradient(logits)))
    value = -jnp.mean(jnp.diagonal(plan))
    gradient = (jnp.exp(plan) - jnp.eye(n, dtype=plan.dtype)) / n
    linear = jnp.sum(gradient * logits)
    return value + linear - jax.lax.stop_gradient(linear)


def ot_clip_objective(
    params: Params, state: Any, data: Anchors, key: jax.Array, static: OtClipSettings
) -> tuple[Array, Any]:
    """Return the loss of one step's pairs: the mean of rows first and columns first.

    With one half step this is the symmetric InfoNCE; converged, the order is nothing.
    """
    rows = draw_rows(len(data.x), static.batch, key=key)
    x = outputs(params["x"], data.x[rows])
    y = outputs(params["y"], data.y[rows])
    logits = jnp.exp(params["log_scale"]) * (x @ y.T)
    if static.converged:
        return converged_ot_loss(logits), state
    rows_first = ot_loss(logits, static.half_steps)
    columns_first = ot_loss(logits.T, static.half_steps)
    return (rows_first + columns_first) / 2, state


def fit_ot_clip(
    anchors: Anchors, pools: Pools, *, settings: OtClipSettings, key: jax.Array
) -> AlignedModel:
    """Return students trained with the transport loss on the pairs."""
    del pools
    trained = train(
        ot_clip_objective,
        Anchors(*standardized_sides(*anchors)),
        dim_x=anchors.x.shape[1],
        dim_y=anchors.y.shape[1],
        settings=settings,
        static=settings,
        key=key,
    )
    return finish("ot-clip", trained, anchors, None, settings)


METHODS = (
    Method(
        name="ot-clip",
        title="OT-CLIP",
        source='Fan et al., "OT-CLIP: Understanding and Generalizing CLIP via Optimal '
        f'Transport" (ICML 2024); a baseline of {SOTALIGN}',
        trust="paper",
        notes="The entropic variant from its formula. The public code hands a plan to "
        "a cross-entropy as if it were logits, and is not followed. Schedule as for "
        "SAIL; the number of half steps is this project's choice.",
        settings=OtClipSettings(),
        grid={"learning_rate": RATES},
        short={"steps": 150},
        fit=fit_ot_clip,
    ),
)
