"""ASIF: items described by their similarities to the anchors, without training.

Norelli et al. (2023), "ASIF: Coupled Data Turns Unimodal Models to Multimodal Without
Training". With unit-norm anchors A of its own side, an item z becomes

    r_k = <z, a_k>^p for the `non_zeros` largest <z, a_k>, else 0,

and an x and a y are compared by the inner product of their r. The authors scale the
text's r to unit norm and leave the image's as it is: that changes no image's ranking of
texts, but lets images of large r win a text's ranking. So `asif` scales both sides, and
`asif-literal`, where x must be the image, only y.
"""

import dataclasses

import jax

from anchordot_jax.baselines.protocol import (
    Anchors,
    Method,
    Needs,
    Pools,
    make_model,
)
from anchordot_jax.matching.nearest import check_count
from anchordot_jax.model import AlignedModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsifSettings:
    """How similarities to the anchors are made sparse and sharp."""

    non_zeros: int = 800
    """Largest similarities kept an item; all where there are fewer anchors."""
    exponent: int = 8
    """Power the kept similarities are raised to; an even one makes negative
    similarities, which are kept only where anchors are few, count as positive."""
    clip: bool = False
    """Whether negative similarities become zero first."""

    def __post_init__(self) -> None:
        """Raise InputError for a setting out of range."""
        check_count("non_zeros", self.non_zeros)
        check_count("exponent", self.exponent)


def fit_asif(
    anchors: Anchors, pools: Pools, *, settings: AsifSettings, key: jax.Array
) -> AlignedModel:
    """Return ASIF with both sides scaled to unit norm; the anchors are the model.

    Args:
        anchors: paired rows, kept as they are.
        pools: not used.
        settings: sparsity and power.
        key: not used.
    """
    del pools, key
    return _model("asif", anchors, settings, normalize_x=True)


def fit_asif_literal(
    anchors: Anchors, pools: Pools, *, settings: AsifSettings, key: jax.Array
) -> AlignedModel:
    """Return ASIF as in the authors' code: only y, the text, is scaled to unit norm.

    Args:
        anchors: paired rows, kept as they are.
        pools: not used.
        settings: sparsity and power.
        key: not used.
    """
    del pools, key
    return _model("asif-literal", anchors, settings, normalize_x=False)


def _model(
    name: str, anchors: Anchors, settings: AsifSettings, *, normalize_x: bool
) -> AlignedModel:
    shared = {
        "non_zeros": min(settings.non_zeros, len(anchors.x)),
        "exponent": settings.exponent,
        "clip": settings.clip,
    }
    return make_model(
        name,
        {"x": {"anchors": anchors.x}, "y": {"anchors": anchors.y}},
        anchors=anchors,
        settings=settings,
        kind="relative",
        side_settings={
            "x": {**shared, "normalize": normalize_x},
            "y": {**shared, "normalize": True},
        },
    )


_SOURCE = (
    "Norelli et al. (2023), ASIF: Coupled Data Turns Unimodal Models to Multimodal "
    "Without Training, arXiv:2210.01738"
)

METHODS = (
    Method(
        name="asif",
        title="ASIF",
        source=_SOURCE,
        trust="code",
        notes=(
            "Both sides are scaled to unit norm, the authors scale the text only. "
            "Sparsity and power, 800 and 8 for 1.6 million anchors, are chosen on "
            "held-out anchors. The default of 800 was read in another method's port "
            "of ASIF."
        ),
        needs=Needs(pairs=True),
        settings=AsifSettings(),
        grid={"non_zeros": (800, 200, 50), "exponent": (8, 4, 2, 1)},
        fit=fit_asif,
    ),
    Method(
        name="asif-literal",
        title="ASIF (literal)",
        source=_SOURCE,
        trust="code",
        notes=(
            "The authors' code and defaults: x, the image, is not scaled to unit "
            "norm, which harms y -> x, and nothing is tuned. With at most 800 anchors "
            "nothing is sparse, and negative similarities turn positive at power 8."
        ),
        needs=Needs(pairs=True),
        settings=AsifSettings(),
        fit=fit_asif_literal,
    ),
)
