"""NNCLR: neighbours among the unpaired rows as further positives.

Dwibedi et al. (ICCV 2021), "With a Little Help from My Friends: Nearest-Neighbor
Contrastive Learning of Visual Representations", replace an item by its nearest
neighbour in a support set to get another positive. SOTAlign's baseline precomputes 64
neighbours of each item on the frozen features of its own side.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from anchordot_jax import matching
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
from anchordot_jax.distillation import info_nce
from anchordot_jax.errors import InputError
from anchordot_jax.model import AlignedModel
from anchordot_jax.students import Params
from anchordot_jax.training.affinity import outputs, standardized_sides


@dataclasses.dataclass(frozen=True, kw_only=True)
class NnclrSettings(TrainingSettings):
    """Settings of NNCLR."""

    logit_scale: float = 10.0
    """Factor on the cosines, 1 / temperature; not learned."""
    batch: int = 4096
    """Pairs a step; all of them where there are no more."""
    neighbours: int = 64
    """Pool rows among which an item's neighbour is drawn."""
    neighbour_weight: float = 1.0
    """Weight of each loss with a neighbour, beside 1 for the pairs'."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        check_count("batch", self.batch)
        check_count("neighbours", self.neighbours)
        check_weight("neighbour_weight", self.neighbour_weight)


class Indexed(NamedTuple):
    """Pairs, pools, and where in its pool each paired item's neighbours are."""

    anchors: Anchors
    pools: Pools
    index_x: Int[np.ndarray, "N k"]
    index_y: Int[np.ndarray, "N k"]


def neighbour_index(
    queries: np.ndarray, keys: np.ndarray, k: int, *, exclude_self: bool = False
) -> np.ndarray:
    """Return the positions `[q, k]` of the k keys of largest inner product.

    Args:
        queries: unit-norm rows `[q, d]`.
        keys: unit-norm rows `[m, d]`.
        k: neighbours; above the number of keys it counts as that number.
        exclude_self: leave key i out of query i's neighbours, for queries that are the
            keys.

    Raises:
        InputError: shapes do not match, or no key is left.
    """
    if not exclude_self:
        return matching.top_k(queries, keys, k).indices
    if len(queries) != len(keys) or len(keys) < 2:
        raise InputError(
            f"To leave itself out, every query must be a key and have another, got "
            f"{len(queries)} queries and {len(keys)} keys; give the same rows twice, "
            f"at least two."
        )
    found = matching.top_k(queries, keys, k + 1).indices
    # Of k + 1 neighbours one is dropped: the item itself, or, where copies of it have
    # pushed it out of the list, the last.
    own = found == np.arange(len(found))[:, None]
    own[~own.any(axis=1), -1] = True
    others: np.ndarray = found[~own].reshape(len(found), -1)
    return others


def drawn_neighbours(pool: AnyArray, index: AnyArray, *, key: jax.Array) -> Array:
    """Return one row of the pool for each row of its index, drawn uniformly."""
    n, k = index.shape
    column = jax.random.randint(key, (n,), 0, k)
    rows = jnp.asarray(index)[jnp.arange(n), column]
    return jnp.asarray(pool)[rows]


def nnclr_objective(
    params: Params, state: Array, data: Indexed, key: jax.Array, static: NnclrSettings
) -> tuple[Array, Array]:
    """Return the mean of the losses of (x, y), (x', y) and (x, y').

    x' and y' are drawn among an item's neighbours; each loss is the symmetric InfoNCE
    of the batch, weighted 1, w and w.
    """
    key_pairs, key_x, key_y = jax.random.split(key, 3)
    rows = draw_rows(len(data.anchors.x), static.batch, key=key_pairs)
    friends_x = drawn_neighbours(data.pools.x, data.index_x[rows], key=key_x)
    friends_y = drawn_neighbours(data.pools.y, data.index_y[rows], key=key_y)
    rows_x = jnp.concatenate([data.anchors.x[rows], friends_x])
    rows_y = jnp.concatenate([data.anchors.y[rows], friends_y])
    x, near_x = jnp.split(outputs(params["x"], rows_x), 2)
    y, near_y = jnp.split(outputs(params["y"], rows_y), 2)
    scale, weight = static.logit_scale, static.neighbour_weight
    paired = info_nce(scale * (x @ y.T))
    near = info_nce(scale * (near_x @ y.T)) + info_nce(scale * (x @ near_y.T))
    return (paired + weight * near) / (1 + 2 * weight), state


def fit_nnclr(
    anchors: Anchors, pools: Pools, *, settings: NnclrSettings, key: jax.Array
) -> AlignedModel:
    """Return students trained on the pairs and on pairs with a neighbour."""
    k = settings.neighbours
    data = Indexed(
        Anchors(*standardized_sides(*anchors)),
        Pools(*standardized_sides(*pools)),
        neighbour_index(anchors.x, pools.x, k),
        neighbour_index(anchors.y, pools.y, k),
    )
    trained = train(
        nnclr_objective,
        data,
        dim_x=anchors.x.shape[1],
        dim_y=anchors.y.shape[1],
        settings=settings,
        static=settings,
        key=key,
    )
    return finish("nnclr", trained, anchors, pools, settings)


METHODS = (
    Method(
        name="nnclr",
        title="NNCLR",
        source='Dwibedi et al., "With a Little Help from My Friends" (ICCV 2021); a '
        f"baseline of {SOTALIGN}",
        trust="readme",
        notes="An experimental reading: SOTAlign's README gives the neighbour index "
        "(64 a modality, on frozen features) and no loss. Here a paired item is also "
        "replaced by one of its neighbours in the pool of its side. Temperature 0.1 as "
        "in common reimplementations; no support queue. Schedule as for SAIL.",
        needs=Needs(pools=True),
        settings=NnclrSettings(),
        tuned=("learning_rate",),
        choose=choose_rate,
        short={"steps": 150},
        fit=fit_nnclr,
    ),
)
