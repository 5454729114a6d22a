"""STRUCTURE: training on the pairs that keeps each side's neighbourhoods.

Gröger, Wen, Le and Brbić (NeurIPS 2025), "With Limited Data for Multimodal Alignment,
Let the STRUCTURE Guide You", arXiv:2506.16895. To the loss on the pairs is added how
far each side's similarities have moved from those of its frozen encoder.
"""

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax.arrays import AnyArray
from anchordot_jax.baselines import tuning
from anchordot_jax.baselines.protocol import Anchors, Method, Needs, Pools
from anchordot_jax.baselines.trained.sail import SOTALIGN, finish, ramp_up
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
from anchordot_jax.distillation import info_nce
from anchordot_jax.model import AlignedModel
from anchordot_jax.profiles import normalize
from anchordot_jax.students import Params
from anchordot_jax.training.affinity import outputs, standardized_sides

SMALLEST = 1e-12
"""Added inside logarithms, the authors' value."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StructureSettings(TrainingSettings):
    """Settings of STRUCTURE, supervised."""

    learning_rate: float = 1e-3
    """Step size after the warm-up."""
    optimizer: Literal["lion", "adamw"] = "adamw"
    """Lion (betas 0.9, 0.99) or AdamW."""
    loss: Literal["infonce", "sail"] = "infonce"
    """Loss on the pairs: InfoNCE at the fixed scale `logit_scale`, or SAIL's."""
    batch: int = 4096
    """Pairs a step; all of them where there are no more."""
    structure_weight: float = 10.0
    """Weight lambda of the regulariser."""
    levels: int = 1
    """Neighbours of how many steps count, each level l by 1/l."""
    temperature: float = 0.05
    """Temperature of the similarities within a side."""
    ramp: float = 0.5
    """Share of the steps over which lambda rises linearly from 0."""
    swapped: bool = False
    """Take KL(M|P) + KL(M|Q) as in the authors' code, whose arguments are the other
    way round than in a Jensen-Shannon divergence."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        ok = self.loss in ("infonce", "sail")
        check_setting(ok, "loss", "'infonce' or 'sail'", self.loss)
        check_count("batch", self.batch)
        check_count("levels", self.levels)
        check_weight("structure_weight", self.structure_weight)
        ok = 0 < self.temperature < float("inf")
        check_setting(ok, "temperature", "a number > 0", self.temperature)
        check_setting(0 <= self.ramp <= 1, "ramp", "in [0, 1]", self.ramp)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StructureSemiSettings(StructureSettings):
    """Settings of STRUCTURE with unpaired rows in its regulariser."""

    pool_batch: int = 1000
    """Unpaired rows of each side a step; all of them where there are no more."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        check_count("pool_batch", self.pool_batch)


class RawAnd(NamedTuple):
    """Rows of both sides, of the frozen encoders and as `outputs` takes them."""

    raw_x: AnyArray
    raw_y: AnyArray
    x: AnyArray
    y: AnyArray


def neighbourhoods(
    rows: Float[AnyArray, "n d"], temperature: float
) -> Float[Array, "n n"]:
    """Return the row softmax of the centred unit rows' inner products / temperature.

    The rows are scaled to unit norm first and then centred by the batch's mean, as in
    the authors' code; they are not scaled again.
    """
    unit = normalize(rows)
    centred = unit - jnp.mean(unit, axis=0, keepdims=True)
    return jax.nn.softmax(centred @ centred.T / temperature, axis=1)


def divergence(
    p: Float[AnyArray, "n m"], q: Float[AnyArray, "n m"], *, swapped: bool = False
) -> Float[Array, ""]:
    """Return the mean over rows of the Jensen-Shannon divergence, in [0, ln 2].

    JS = (KL(P|M) + KL(Q|M)) / 2 with M = (P + Q) / 2; swapped: (KL(M|P) + KL(M|Q)) / 2,
    which agrees with it to second order in P - Q and has no upper bound.
    """
    mean = (p + q) / 2
    log_p, log_q, log_mean = (jnp.log(part + SMALLEST) for part in (p, q, mean))
    if swapped:
        terms = mean * (2 * log_mean - log_p - log_q)
    else:
        terms = p * (log_p - log_mean) + q * (log_q - log_mean)
    return jnp.mean(jnp.sum(terms, axis=1)) / 2


def structure_loss(
    raw: Float[AnyArray, "n d"],
    aligned: Float[AnyArray, "n k"],
    *,
    temperature: float,
    levels: int = 1,
    swapped: bool = False,
) -> Float[Array, ""]:
    """Return one side's regulariser, without gradient to the raw rows.

        R = (1/L) sum_{l=1..L} (1/l) JS(P_raw^l, P_aligned^l)

    P^l is the l-th matrix power of the neighbourhoods: where a walk of l steps from
    neighbour to neighbour ends.
    """
    p = jax.lax.stop_gradient(neighbourhoods(raw, temperature))
    q = neighbourhoods(aligned, temperature)
    walk_p, walk_q = p, q
    total = divergence(p, q, swapped=swapped)
    for level in range(2, levels + 1):
        walk_p, walk_q = walk_p @ p, walk_q @ q
        total = total + divergence(walk_p, walk_q, swapped=swapped) / level
    return total / levels


def paired_loss(
    params: Params, similarities: Float[Array, "n n"], settings: StructureSettings
) -> Array:
    """Return the pairs' loss: InfoNCE at the initial scale, or SAIL's."""
    if settings.loss == "sail":
        return sail_loss(similarities, params["log_scale"], params["logit_bias"])
    return info_nce(settings.logit_scale * similarities)


def structure_objective(
    params: Params,
    state: Array,
    data: tuple[RawAnd, RawAnd],
    key: jax.Array,
    static: StructureSettings,
) -> tuple[Array, Array]:
    """Return the pairs' loss plus the ramped regulariser of both sides.

    With pool rows in the settings, the regulariser is that of pairs and pool rows
    together.
    """
    anchors, pools = data
    key_pairs, key_x, key_y = jax.random.split(key, 3)
    pairs = draw_rows(len(anchors.x), static.batch, key=key_pairs)
    raw_x, raw_y, x, y = (rows[pairs] for rows in anchors)
    if isinstance(static, StructureSemiSettings):
        i = draw_rows(len(pools.x), static.pool_batch, key=key_x)
        j = draw_rows(len(pools.y), static.pool_batch, key=key_y)
        raw_x = jnp.concatenate([raw_x, pools.raw_x[i]])
        raw_y = jnp.concatenate([raw_y, pools.raw_y[j]])
        x = jnp.concatenate([x, pools.x[i]])
        y = jnp.concatenate([y, pools.y[j]])
    aligned_x, aligned_y = outputs(params["x"], x), outputs(params["y"], y)
    n = len(pairs)
    paired = paired_loss(params, aligned_x[:n] @ aligned_y[:n].T, static)
    moved = [
        structure_loss(
            raw,
            aligned,
            temperature=static.temperature,
            levels=static.levels,
            swapped=static.swapped,
        )
        for raw, aligned in ((raw_x, aligned_x), (raw_y, aligned_y))
    ]
    weight = static.structure_weight * ramp_up(state, static.steps, static.ramp)
    return paired + weight * (moved[0] + moved[1]) / 2, state + 1


def fit_structure(
    anchors: Anchors, pools: Pools, *, settings: StructureSettings, key: jax.Array
) -> AlignedModel:
    """Return students trained on the pairs, with the regulariser on their rows."""
    trained = _train(anchors, Pools(pools.x[:0], pools.y[:0]), settings, key)
    return finish("structure", trained, anchors, None, settings)


def fit_structure_semi(
    anchors: Anchors, pools: Pools, *, settings: StructureSemiSettings, key: jax.Array
) -> AlignedModel:
    """Return students trained on the pairs, with the regulariser on pool rows too."""
    trained = _train(anchors, pools, settings, key)
    return finish("structure-semi", trained, anchors, pools, settings)


def _train(
    anchors: Anchors, pools: Pools, settings: StructureSettings, key: jax.Array
) -> Trained:
    return train(
        structure_objective,
        (
            RawAnd(*anchors, *standardized_sides(*anchors)),
            RawAnd(*pools, *standardized_sides(*pools)),
        ),
        dim_x=anchors.x.shape[1],
        dim_y=anchors.y.shape[1],
        settings=settings,
        static=settings,
        state=jnp.zeros((), jnp.float32),
        key=key,
    )


RATES = (1e-3, 3e-4)
"""Learning rates chosen among."""


def choose_rate(
    anchors: Anchors, pools: Pools, *, settings: StructureSemiSettings, key: jax.Array
) -> tuple[StructureSemiSettings, int]:
    """Return the settings with the supervised form's rate, and the anchors held out."""
    names = [field.name for field in dataclasses.fields(StructureSettings)]
    plain = StructureSettings(**{name: getattr(settings, name) for name in names})
    chosen = tuning.choose(METHODS[0], anchors, pools, settings=plain, key=key)
    rate = chosen.settings.learning_rate
    return dataclasses.replace(settings, learning_rate=rate), chosen.n_heldout


SOURCE = (
    'Gröger et al., "With Limited Data for Multimodal Alignment, Let the STRUCTURE '
    'Guide You" (NeurIPS 2025)'
)

METHODS = (
    Method(
        name="structure",
        title="STRUCTURE",
        source=SOURCE,
        trust="code",
        notes="The regulariser was read in a copy of the authors' code, the settings "
        "in another project's summary of their configurations. The divergence is the "
        "Jensen-Shannon divergence itself; `swapped` gives the code's, which exchanges "
        "the arguments. LayerNorm and a linear map as elsewhere here; no choice of "
        "encoder layers. Their batch, steps and dimension are not known.",
        settings=StructureSettings(),
        grid={"learning_rate": RATES},
        short={"steps": 150},
        fit=fit_structure,
    ),
    Method(
        name="structure-semi",
        title="STRUCTURE (semi-supervised)",
        source=f"{SOURCE}; a baseline of {SOTALIGN}",
        trust="code",
        notes="An experimental reading: SOTAlign's README names a script and no more. "
        "Here unpaired rows join the pairs in the regulariser, which the code of "
        "STRUCTURE allows for.",
        needs=Needs(pools=True),
        settings=StructureSemiSettings(),
        tuned=("learning_rate",),
        choose=choose_rate,
        short={"steps": 100, "pool_batch": 250},
        fit=fit_structure_semi,
    ),
)
