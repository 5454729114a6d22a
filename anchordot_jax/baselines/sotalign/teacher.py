"""SOTAlign's first stage: a linear teacher of the pairs, with its ridge.

Only the README of Roschmann et al. 2026 was at hand for it. The teacher's affinity of
two items is the cosine of their projections; CCA is its default.
"""

import dataclasses
from typing import Any, Literal, NamedTuple

import jax

from anchordot_jax.baselines.closed_form import cca, linear
from anchordot_jax.baselines.protocol import Anchors, Method, Pools, make_model
from anchordot_jax.baselines.tuning import Choice, choose
from anchordot_jax.maps.linear import linear_side
from anchordot_jax.model import AlignedModel

Affinity = Literal["cca", "procrustes", "ridge-x2y", "ridge-y2x"]
Ridge = float | Literal["auto"]

LINEAR: dict[str, Method] = {method.name: method for method in linear.METHODS}


class Ridges(NamedTuple):
    """How a teacher is regularised."""

    ridge: Ridge = "auto"
    """Of both sides; "auto" chooses it, and its unit, by held-out anchors."""
    ridge_y: float | None = None
    """Of CCA's y side, where it differs."""
    relative: bool = False
    """Whether a given ridge of CCA is in units of a side's mean eigenvalue."""
    floor: float = cca.EIGENVALUE_FLOOR
    """Least eigenvalue of CCA's regularised covariances."""


def choose_ridge(
    affinity: Affinity, anchors: Anchors, pools: Pools, *, key: jax.Array
) -> Choice:
    """Return the linear method's settings that rank held-out anchors best.

    A training of the students for every candidate would take far longer; the teacher is
    a closed form, and the students are taught what it ranks.

    Args:
        affinity: which linear method; its grid is searched.
        anchors: the pairs; parts of them are held out.
        pools: the held-out pairs are ranked among these.
        key: fixes what is held out.
    """
    method = LINEAR[affinity]
    return choose(method, anchors, pools, settings=method.settings, key=key)


def fit_teacher(
    anchors: Anchors,
    pools: Pools,
    affinity: Affinity,
    ridges: Ridges,
    *,
    key: jax.Array,
) -> tuple[AlignedModel, dict[str, Any]]:
    """Return the linear teacher, and how it was made as JSON values.

    Args:
        anchors: the pairs.
        pools: the unpaired items, for the choice of the ridge.
        affinity: which linear method.
        ridges: its regularisation; Procrustes has none.
        key: fixes the choice.
    """
    method = LINEAR[affinity]
    facts: dict[str, Any] = {"affinity": affinity}
    if ridges.ridge == "auto":
        choice = choose_ridge(affinity, anchors, pools, key=key)
        settings = choice.settings
        facts["candidates"] = [
            {**dataclasses.asdict(one.settings), "log_rank": one.log_rank}
            for one in choice.curve
        ]
    elif affinity == "cca":
        own = _fit_cca(anchors, ridges.ridge, ridges)
        return own, facts | ridges._asdict()
    else:
        known = hasattr(method.settings, "ridge")
        changes = {"ridge": ridges.ridge} if known else {}
        settings = dataclasses.replace(method.settings, **changes)
    model = method.fit(anchors, pools, settings=settings, key=key)
    if not isinstance(model, AlignedModel):
        raise TypeError(f"{affinity} embeds nothing, so it cannot teach.")
    return model, facts | dataclasses.asdict(settings)


def _fit_cca(anchors: Anchors, ridge: float, ridges: Ridges) -> AlignedModel:
    """Return a CCA teacher with one ridge a side."""
    found = cca.fit_cca(
        *anchors,
        ridge_x=ridge,
        ridge_y=ridge if ridges.ridge_y is None else ridges.ridge_y,
        relative=ridges.relative,
        floor=ridges.floor,
    )
    params = {
        "x": linear_side(found.kernel_x, mean=found.mean_x),
        "y": linear_side(found.kernel_y, mean=found.mean_y),
    }
    settings = linear.CcaSettings(
        ridge=ridge, relative=ridges.relative, floor=ridges.floor
    )
    return make_model("cca", params, anchors=anchors, settings=settings, kind="linear")
