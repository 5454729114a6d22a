"""Contrastive training on the anchors alone: the students without the plan."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from anchordot_jax import distillation
from anchordot_jax.config import Config
from anchordot_jax.model import AlignedModel


def fit_contrastive(
    anchors_x: ArrayLike,
    anchors_y: ArrayLike,
    config: Config,
    *,
    steps: int | None = None,
) -> AlignedModel:
    """Return students trained with InfoNCE on the anchors only.

    The same encoders, loss and optimiser as AnchorDOT, with the anchor chunk as the
    only one (Section 4: "our encoders and loss trained on the anchor chunk alone").

    Args:
        anchors_x: `[N, dx]`; row k belongs to row k of `anchors_y`.
        anchors_y: `[N, dy]`.
        config: the students' settings are used.
        steps: gradient steps; by default as many epochs as the config says. With up to
            2000 anchors an epoch is one step, so 200 epochs end with the warm-up.
    """
    x = jnp.asarray(np.asarray(anchors_x, np.float32))
    y = jnp.asarray(np.asarray(anchors_y, np.float32))
    settings = config.distillation
    chunks = distillation.plan_chunks(0, 0, len(x), settings.chunk_size)
    if steps is not None:
        settings = dataclasses.replace(settings, epochs=-(-steps // chunks.steps))
    total_steps = settings.epochs * chunks.steps
    key_students, key_chunks = jax.random.split(jax.random.key(config.seed))
    nothing = distillation.given_plan(x[:0], y[:0], None)
    state = distillation.train(
        nothing,
        distillation.Anchors(x, y),
        config=settings,
        key_students=key_students,
        key_chunks=key_chunks,
    )
    info = {
        "method": "contrastive",
        "dim_x": x.shape[1],
        "dim_y": y.shape[1],
        "dim": settings.dim,
        "n_anchors": len(x),
        "steps": total_steps,
        "settings": config.to_dict(),
    }
    return AlignedModel(params=state.params, info=info)

