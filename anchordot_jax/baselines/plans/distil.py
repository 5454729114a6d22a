"""Any plan, distilled into the same students as AnchorDOT's."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anchordot_jax import distillation
from anchordot_jax.arrays import AnyArray
from anchordot_jax.baselines.protocol import Anchors, Pools, make_model
from anchordot_jax.config import DistillationConfig
from anchordot_jax.model import AlignedModel


def distil_plan(
    method: str,
    anchors: Anchors,
    pools: Pools,
    log_plan: AnyArray,
    *,
    settings: Any,
    distillation_config: DistillationConfig,
    key: jax.Array,
    use_anchors: bool = True,
    **facts: Any,
) -> AlignedModel:
    """Return students distilled from a plan between the pools (Section 3.4).

    The loss, encoders and schedule are AnchorDOT's; only the plan is another.

    Args:
        method: the method's name.
        anchors: the pairs; one more chunk with the identity as target.
        pools: the pools, `[n, dx]` and `[m, dy]`, that the plan is between.
        log_plan: logarithm of the plan `[n, m]`, up to constants a row and a column.
        settings: the method's settings, kept with the model.
        distillation_config: students and schedule. `pool_memory` does not apply: arrays
            given are in memory already.
        key: fixes the initial weights and the chunks.
        use_anchors: whether the anchors are trained on; not in zero-pair methods.
        facts: further JSON values to keep with the model.

    Raises:
        FloatingPointError: the training diverged.
    """
    key_students, key_chunks = jax.random.split(key)
    rows = slice(None) if use_anchors else slice(0)
    state = distillation.train(
        distillation.given_plan(pools.x, pools.y, log_plan),
        distillation.Anchors(
            jnp.asarray(anchors.x[rows]), jnp.asarray(anchors.y[rows])
        ),
        config=distillation_config,
        key_students=key_students,
        key_chunks=key_chunks,
    )
    params = jax.tree.map(np.asarray, state.params)
    return make_model(
        method, params, anchors=anchors, pools=pools, settings=settings, **facts
    )
