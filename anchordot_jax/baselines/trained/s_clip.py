"""S-CLIP: pseudo-labels over the batch's captions for unlabelled x items.

Mo, Kim, Lee and Shin (NeurIPS 2023), "S-CLIP: Semi-supervised Vision-Language Learning
using Few Specialist Captions". An unlabelled item is transported to the labelled ones
of its own side, and the plan's rows are its soft labels over their y items.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax.arrays import AnyArray
from anchordot_jax.baselines.protocol import Anchors, Method, Needs, Pools
from anchordot_jax.baselines.trained.sail import SOTALIGN, choose_rate, finish
from anchordot_jax.baselines.trained.training import (
    TrainingSettings,
    check_count,
    check_weight,
    draw_rows,
    train,
)
from anchordot_jax.model import AlignedModel
from anchordot_jax.profiles import normalize
from anchordot_jax.students import Params
from anchordot_jax.training.affinity import (
    outputs,
    standardized,
    standardized_sides,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SClipSettings(TrainingSettings):
    """Settings of S-CLIP, without its keywords."""

    logit_scale: float = 1 / 0.07
    """Initial factor on the cosines; learned, at most 100. Its inverse is the
    regularisation of the pseudo-labels' transport."""
    batch: int = 4096
    """Pairs a step; all of them where there are no more."""
    pool_batch: int = 1000
    """Unlabelled x rows a step; all of them where there are no more."""
    caption_weight: float = 0.5
    """Weight of the pseudo-labels' cross-entropy."""
    iterations: int = 10
    """Sinkhorn iterations of the pseudo-labels."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        check_count("batch", self.batch)
        check_count("pool_batch", self.pool_batch)
        check_count("iterations", self.iterations)
        check_weight("caption_weight", self.caption_weight)


class LabelledAndNot(NamedTuple):
    """What the loss reads: x rows of the frozen encoder, and rows for `outputs`."""

    raw_x: AnyArray
    x: AnyArray
    y: AnyArray
    raw_unlabelled: AnyArray
    unlabelled: AnyArray


def pseudo_labels(
    unlabelled: Float[AnyArray, "u d"],
    labelled: Float[AnyArray, "n d"],
    scale: Float[AnyArray, ""] | float,
    iterations: int = 10,
) -> Float[Array, "u n"]:
    """Return every unlabelled item's distribution over the labelled items.

    The entropic plan between the two sets with uniform masses, cost 1 - cosine and
    regularisation 1 / scale, after some Sinkhorn iterations of columns, then rows; its
    rows divided by their sums. In the log domain: the authors' is not.
    """
    cosines = jnp.matmul(
        normalize(unlabelled),
        normalize(labelled).T,
        precision=jax.lax.Precision.HIGHEST,
    )

    def both(plan: Array, _: None) -> tuple[Array, None]:
        # Row and column masses are uniform, and constants cancel in the softmax.
        return jax.nn.log_softmax(jax.nn.log_softmax(plan, axis=0), axis=1), None

    plan, _ = jax.lax.scan(both, jnp.asarray(scale * cosines), length=iterations)
    return jnp.exp(plan)


def s_clip_loss(
    paired: Float[AnyArray, "n n"],
    unlabelled: Float[AnyArray, "u n"],
    labels: Float[AnyArray, "u n"],
    caption_weight: float = 0.5,
) -> Float[Array, ""]:
    """Return the CLIP loss plus the pseudo-labels' cross-entropy.

    The unlabelled items are further negatives of every y item:

        (CE(x -> y) + CE(y -> [x, unlabelled])) / 2 + w CE(unlabelled -> y, labels).

    Args:
        paired: logits of the labelled x items with the y items.
        unlabelled: logits of the unlabelled x items with the same y items.
        labels: rows that sum to 1, see `pseudo_labels`.
        caption_weight: w.
    """
    own = jnp.diagonal(paired)
    x_to_y = jax.nn.logsumexp(paired, axis=1) - own
    both = jnp.concatenate([paired, unlabelled])
    y_to_x = jax.nn.logsumexp(both, axis=0) - own
    captions = -jnp.sum(labels * jax.nn.log_softmax(unlabelled, axis=1), axis=1)
    supervised = (jnp.mean(x_to_y) + jnp.mean(y_to_x)) / 2
    return supervised + caption_weight * jnp.mean(captions)


def s_clip_objective(
    params: Params,
    state: Array,
    data: LabelledAndNot,
    key: jax.Array,
    static: SClipSettings,
) -> tuple[Array, Array]:
    """Return the loss of one step's pairs and unlabelled x rows."""
    key_pairs, key_pool = jax.random.split(key)
    i = draw_rows(len(data.x), static.batch, key=key_pairs)
    j = draw_rows(len(data.unlabelled), static.pool_batch, key=key_pool)
    scale = jnp.exp(params["log_scale"])
    labels = pseudo_labels(
        data.raw_unlabelled[j],
        data.raw_x[i],
        jax.lax.stop_gradient(scale),
        static.iterations,
    )
    x = outputs(params["x"], jnp.concatenate([data.x[i], data.unlabelled[j]]))
    logits = scale * (x @ outputs(params["y"], data.y[i]).T)
    n = len(i)
    loss = s_clip_loss(logits[:n], logits[n:], labels, static.caption_weight)
    return loss, state


def fit_s_clip(
    anchors: Anchors, pools: Pools, *, settings: SClipSettings, key: jax.Array
) -> AlignedModel:
    """Return students trained on the pairs and on pseudo-labelled x rows."""
    trained = train(
        s_clip_objective,
        LabelledAndNot(
            anchors.x,
            *standardized_sides(*anchors),
            pools.x,
            standardized(pools.x),
        ),
        dim_x=anchors.x.shape[1],
        dim_y=anchors.y.shape[1],
        settings=settings,
        static=settings,
        key=key,
    )
    return finish("s-clip", trained, anchors, pools, settings)


METHODS = (
    Method(
        name="s-clip",
        title="S-CLIP",
        source='Mo et al., "S-CLIP: Semi-supervised Vision-Language Learning using Few '
        f'Specialist Captions" (NeurIPS 2023); a baseline of {SOTALIGN}',
        trust="code",
        notes="Without the loss on keywords, which the data do not have. Pseudo-labels "
        "come from the frozen x embeddings, since the shared space begins at random "
        "here and not at CLIP's. The unpaired y rows are not used. Schedule as for "
        "SAIL.",
        needs=Needs(pools=True),
        settings=SClipSettings(),
        tuned=("learning_rate",),
        choose=choose_rate,
        short={"steps": 150, "pool_batch": 500},
        fit=fit_s_clip,
    ),
)
