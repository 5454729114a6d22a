"""Regularised CCA, its coordinates weighed by their correlation on both sides.

A canonical coordinate of correlation rho predicts its partner as rho times itself, so
of two coordinates the one of lower correlation is noise to the cosine in the same
measure. With u of an x and v of a y,

    S(u, v) = cos(diag(rho) u, diag(rho) v).

The ridges are ridge * balance of x and ridge / balance of y: one side may be noisier.

Nothing here is new: ridge CCA is Vinod's (1976), and the weighting with a power of the
correlations is Gong et al.'s (2014), "A Multi-View Embedding Space", who favour the
fourth. The papers on alignment from few pairs leave this comparison out.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import jax

from anchordot_jax.baselines.closed_form import cca
from anchordot_jax.baselines.protocol import (
    Anchors,
    Method,
    Needs,
    Pools,
    make_model,
)
from anchordot_jax.maps.linear import linear_side
from anchordot_jax.model import AlignedModel
from anchordot_jax.settings.checks import check_positive


@dataclasses.dataclass(frozen=True, kw_only=True)
class RidgeCcaSettings:
    """The regularisation."""

    ridge: float = 2.0
    """Added to both covariances, in units of their mean eigenvalue."""
    balance: float = 1.0
    """Square root of the ratio of x's ridge to y's."""

    def __post_init__(self) -> None:
        """Raise InputError for a setting out of range."""
        cca.check_not_negative(ridge=self.ridge)
        check_positive("balance", self.balance)


def fit_ridge_cca(
    anchors: Anchors, pools: Pools, *, settings: RidgeCcaSettings, key: jax.Array
) -> AlignedModel:
    """Return the correlation-weighted canonical coordinates of both sides.

    Args:
        anchors: paired rows.
        pools: not used.
        settings: the ridges.
        key: not used.
    """
    return next(fit_ridge_cca_many(anchors, pools, candidates=[settings], key=key))


def fit_ridge_cca_many(
    anchors: Anchors,
    pools: Pools,
    *,
    candidates: Sequence[RidgeCcaSettings],
    key: jax.Array,
) -> Iterator[AlignedModel]:
    """Yield the model of each candidate; all share the sides' factors."""
    del pools, key
    factors = cca.factorize(*anchors)
    for settings in candidates:
        found = cca.cca_from_factors(
            factors,
            ridge_x=settings.ridge * settings.balance,
            ridge_y=settings.ridge / settings.balance,
            relative=True,
        )
        weights = found.correlations[None, :]
        params = {
            "x": linear_side(found.kernel_x * weights, mean=found.mean_x),
            "y": linear_side(found.kernel_y * weights, mean=found.mean_y),
        }
        yield make_model(
            "ridge-cca", params, anchors=anchors, settings=settings, kind="linear"
        )


METHODS = (
    Method(
        name="ridge-cca",
        title="Ridge CCA",
        source=(
            "This project; after Vinod (1976), Canonical ridge and econometrics of "
            "joint production, and Gong et al. (2014), A Multi-View Embedding Space "
            "for Modeling Internet Images, Tags, and their Semantics"
        ),
        trust="ours",
        notes=(
            "A closed form that papers on alignment from few pairs leave out. The "
            "ridges of both sides are chosen on held-out anchors."
        ),
        needs=Needs(pairs=True),
        settings=RidgeCcaSettings(),
        grid={
            "ridge": (
                2.0,
                1.0,
                4.0,
                0.5,
                8.0,
                0.25,
                16.0,
                0.125,
                32.0,
                0.06,
                64.0,
                0.03,
            ),
            "balance": (1.0, 2.0, 0.5),
        },
        fit=fit_ridge_cca,
        fit_many=fit_ridge_cca_many,
    ),
)
