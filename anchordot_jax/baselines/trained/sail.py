"""SAIL: the students trained with a sigmoid loss on the pairs, and with pseudo-pairs.

Zhang et al. (2025), "Assessing and Learning Alignment of Unimodal Vision and Language
Models", train two light maps on frozen encoders with SigLIP's loss, averaged over all
n^2 entries of a batch. SOTAlign compares with it and with a semi-supervised form.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from anchordot_jax.arrays import AnyArray
from anchordot_jax.baselines import tuning
from anchordot_jax.baselines.protocol import Anchors, Method, Needs, Pools, make_model
from anchordot_jax.baselines.trained.sail_loss import sail_loss
from anchordot_jax.baselines.trained.training import (
    Trained,
    TrainingSettings,
    check_count,
    check_weight,
    draw_rows,
    train,
)
from anchordot_jax.config import check_setting
from anchordot_jax.model import AlignedModel
from anchordot_jax.students import Params
from anchordot_jax.training.affinity import (
    outputs,
    standardized_sides,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SailSettings(TrainingSettings):
    """Settings of supervised SAIL."""

    batch: int = 32768
    """Pairs a step; all of them where there are no more."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        check_count("batch", self.batch)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SailSemiSettings(SailSettings):
    """Settings of semi-supervised SAIL."""

    pool_batch: int = 1000
    """Unpaired rows of each side a step; all of them where there are no more."""
    unpaired_weight: float = 1.0
    """Weight of the pseudo-pairs' loss, beside 1 for the pairs'."""
    ramp: float = 0.5
    """Share of the steps over which that weight rises linearly from 0."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        check_count("pool_batch", self.pool_batch)
        check_weight("unpaired_weight", self.unpaired_weight)
        check_setting(0 <= self.ramp <= 1, "ramp", "in [0, 1]", self.ramp)


class Rows(NamedTuple):
    """What a semi-supervised loss reads."""

    anchors: Anchors
    pools: Pools


def ramp_up(step: Array, steps: int, share: float) -> Array:
    """Return min(1, step / (share steps)): 0 at the first step, 1 if share is 0."""
    return jnp.minimum(1.0, step / max(share * steps, 1e-6)) if share else jnp.ones(())


def mutual_neighbours(similarities: Float[AnyArray, "n m"]) -> Array:
    """Return, as booleans `[n, m]`, which entries are the largest of row and column."""
    by_row = similarities == jnp.max(similarities, axis=1, keepdims=True)
    by_column = similarities == jnp.max(similarities, axis=0, keepdims=True)
    return by_row & by_column


def pseudo_pair_loss(
    similarities: Float[AnyArray, "n m"],
    log_scale: Float[AnyArray, ""],
    bias: Float[AnyArray, ""],
) -> Float[Array, ""]:
    """Return the SAIL loss of the mutual nearest neighbours among themselves.

    With z_ij = 1 where i and j are each other's nearest and -1 elsewhere,

        -mean log sigmoid(z_ij (s S_ij + b))

    over the rows and columns that have a mutual neighbour; the others are left out,
    neither positive nor negative. No gradient goes through the choice. The largest
    entry of all is always chosen, so the mean is never empty.
    """
    chosen = mutual_neighbours(jax.lax.stop_gradient(similarities))
    counted = jnp.any(chosen, axis=1)[:, None] & jnp.any(chosen, axis=0)[None, :]
    logits = jnp.exp(log_scale) * similarities + bias
    losses = jax.nn.softplus(jnp.where(chosen, -logits, logits))
    return jnp.mean(losses, where=counted)


def sail_objective(
    params: Params, state: Any, data: Anchors, key: jax.Array, static: SailSettings
) -> tuple[Array, Any]:
    """Return the SAIL loss of one step's pairs."""
    rows = draw_rows(len(data.x), static.batch, key=key)
    x = outputs(params["x"], data.x[rows])
    y = outputs(params["y"], data.y[rows])
    similarities = x @ y.T
    return sail_loss(similarities, params["log_scale"], params["logit_bias"]), state


def sail_semi_objective(
    params: Params, state: Array, data: Rows, key: jax.Array, static: SailSemiSettings
) -> tuple[Array, Array]:
    """Return the pairs' SAIL loss plus that of the pools' pseudo-pairs."""
    key_pairs, key_x, key_y = jax.random.split(key, 3)
    paired, _ = sail_objective(params, (), data.anchors, key_pairs, static)
    pool_x, pool_y = data.pools
    rows_x = draw_rows(len(pool_x), static.pool_batch, key=key_x)
    rows_y = draw_rows(len(pool_y), static.pool_batch, key=key_y)
    x = outputs(params["x"], pool_x[rows_x])
    y = outputs(params["y"], pool_y[rows_y])
    unpaired = pseudo_pair_loss(x @ y.T, params["log_scale"], params["logit_bias"])
    weight = static.unpaired_weight * ramp_up(state, static.steps, static.ramp)
    return paired + weight * unpaired, state + 1


def fit_sail(
    anchors: Anchors, pools: Pools, *, settings: SailSettings, key: jax.Array
) -> AlignedModel:
    """Return students trained with the SAIL loss on the pairs alone."""
    del pools
    trained = train(
        sail_objective,
        Anchors(*standardized_sides(*anchors)),
        dim_x=anchors.x.shape[1],
        dim_y=anchors.y.shape[1],
        settings=settings,
        static=settings,
        key=key,
    )
    return finish("sail", trained, anchors, None, settings)


def fit_sail_semi(
    anchors: Anchors, pools: Pools, *, settings: SailSemiSettings, key: jax.Array
) -> AlignedModel:
    """Return students trained with the SAIL loss on the pairs and on pseudo-pairs."""
    trained = train(
        sail_semi_objective,
        Rows(
            Anchors(*standardized_sides(*anchors)), Pools(*standardized_sides(*pools))
        ),
        dim_x=anchors.x.shape[1],
        dim_y=anchors.y.shape[1],
        settings=settings,
        static=settings,
        state=jnp.zeros((), jnp.float32),
        key=key,
    )
    return finish("sail-semi", trained, anchors, pools, settings)


def finish(
    method: str,
    trained: Trained,
    anchors: Anchors,
    pools: Pools | None,
    settings: TrainingSettings,
) -> AlignedModel:
    """Return the trained students as a model."""
    params = jax.tree.map(np.asarray, trained.params)
    return make_model(
        method,
        params,
        anchors=anchors,
        pools=pools,
        settings=settings,
        final_loss=float(trained.losses[-1]),
    )


RATES = (3e-4, 1e-4)
"""Learning rates chosen among. The authors' 1e-5 is for batches of 32768 pairs; over
2000 steps, or fewer, it hardly moves students of a few hundred."""


def choose_rate(
    anchors: Anchors, pools: Pools, *, settings: Any, key: jax.Array
) -> tuple[Any, int]:
    """Return the settings with supervised SAIL's rate, and the anchors held out.

    Chosen on the pairs alone, which is much quicker than training on the pools for
    every candidate.
    """
    names = ("steps", "optimizer", "weight_decay", "warmup", "schedule", "dim")
    plain = SailSettings(**{name: getattr(settings, name) for name in names})
    chosen = tuning.choose(METHODS[0], anchors, pools, settings=plain, key=key)
    rate = chosen.settings.learning_rate
    return dataclasses.replace(settings, learning_rate=rate), chosen.n_heldout


WEIGHTS = (0.01, 0.1)
"""Weights of the pseudo-pairs' loss chosen among, the pairs' being 1. The smaller one
is preferred: pseudo-pairs of students that know little can mislead more than help, and
at 1 held-out ranks were far behind on photographs and molecules."""


def choose_rate_and_weight(
    anchors: Anchors, pools: Pools, *, settings: SailSemiSettings, key: jax.Array
) -> tuple[SailSemiSettings, int]:
    """Return the settings with supervised SAIL's rate, and then the best weight."""
    with_rate, _ = choose_rate(anchors, pools, settings=settings, key=key)
    chosen = tuning.choose(METHODS[1], anchors, pools, settings=with_rate, key=key)
    return chosen.settings, chosen.n_heldout


SOTALIGN = 'Roschmann, Krzakala et al., "SOTAlign" (ICML 2026)'

METHODS = (
    Method(
        name="sail",
        title="SAIL",
        source='Zhang et al., "Assessing and Learning Alignment of Unimodal Vision and '
        'Language Models" (CVPR 2025)',
        trust="code",
        notes="The linear map only, not SAIL's MLP nor its star block. One text an "
        "item: no second caption. Weight decay touches matrices only, where the "
        "authors' also touches biases, gains, scale and logit bias.",
        settings=SailSettings(),
        grid={"learning_rate": RATES},
        short={"steps": 150},
        fit=fit_sail,
    ),
    Method(
        name="sail-semi",
        title="SAIL (semi-supervised)",
        source=f"a baseline of {SOTALIGN}",
        trust="readme",
        notes="An experimental reading: the README names a script and no more. Here "
        "the supervised loss plus the same loss on mutual nearest neighbours between "
        "unpaired batches under the current students, its weight rising linearly.",
        needs=Needs(pools=True),
        settings=SailSemiSettings(),
        grid={"unpaired_weight": WEIGHTS},
        tuned=("learning_rate",),
        choose=choose_rate_and_weight,
        short={"steps": 150, "pool_batch": 500},
        fit=fit_sail_semi,
    ),
)
