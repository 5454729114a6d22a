"""Contrastive training on the anchors alone: the students without the plan."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from anchordot_jax import distillation
from anchordot_jax.baselines.anchordot import seed_of
from anchordot_jax.baselines.protocol import Anchors, Method, Pools, make_model
from anchordot_jax.config import Config, DistillationConfig, check_setting
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
        config: the students' settings are used. `pool_memory` does not apply: arrays
            given are in memory already.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContrastiveSettings:
    """Settings of the contrastive fit."""

    steps: int | None = None
    """Gradient steps; None: as many as `length` says."""
    length: Literal["epochs", "steps"] = "epochs"
    """As many passes over the anchors as the paper's recipe has epochs, or as many
    gradient steps as it takes on these pools."""
    distillation: DistillationConfig = dataclasses.field(
        default_factory=DistillationConfig
    )
    """Students, optimiser and schedule. Its pool_memory does not apply: arrays given
    are in memory already."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        ok = self.steps is None or (isinstance(self.steps, int) and self.steps >= 1)
        check_setting(ok, "steps", "a whole number >= 1", self.steps)
        ok = self.length in ("epochs", "steps")
        check_setting(ok, "length", "'epochs' or 'steps'", self.length)


def fit_method(
    anchors: Anchors, pools: Pools, *, settings: ContrastiveSettings, key: jax.Array
) -> AlignedModel:
    """Return students trained with InfoNCE on the anchors; pools are only counted."""
    # The recipe that looks at all of these settings.
    config = Config(
        recipe="paper", distillation=settings.distillation, seed=seed_of(key)
    )
    steps = settings.steps
    if steps is None and settings.length == "steps":
        sizes = len(pools.x), len(pools.y), len(anchors.x)
        chunks = distillation.plan_chunks(*sizes, settings.distillation.chunk_size)
        steps = settings.distillation.epochs * chunks.steps
    model = fit_contrastive(*anchors, config, steps=steps)
    return make_model(
        "contrastive",
        model.params,
        anchors=anchors,
        settings=settings,
        steps=model.info["steps"],
    )


_SOURCE = "Kordes and Dorent, arXiv:2610.12781 (2026), Section 4"

METHODS = (
    Method(
        name="contrastive",
        title="contrastive, equal epochs",
        source=_SOURCE,
        trust="paper",
        notes="With up to 2000 anchors an epoch is one step: training ends with the "
        "warm-up.",
        settings=ContrastiveSettings(),
        fit=fit_method,
    ),
    Method(
        name="contrastive-steps",
        title="contrastive, equal steps",
        source=_SOURCE,
        trust="paper",
        settings=ContrastiveSettings(length="steps"),
        fit=fit_method,
    ),
    Method(
        name="contrastive-tuned",
        title="contrastive, steps chosen",
        source=_SOURCE,
        trust="ours",
        notes="The number of steps is chosen by held-out anchors.",
        settings=ContrastiveSettings(),
        grid={"steps": (200, 100, 50)},
        fit=fit_method,
    ),
)
