"""CSA: canonical similarity analysis, a correlation-weighted cosine (Li et al. 2025).

CCA of the centred pairs gives coordinates u of an x, v of a y and correlations rho. Of
the first s coordinates,

    S(u, v) = sum_j rho_j u_j v_j / (|u| |v|),

so the weights enter once, after the scaling to unit norm.

The authors' retrieval class has no ridge. With N anchors the centred sides are two
subspaces of R^(N-1), which meet in at least dx + dy - (N - 1) dimensions: so many
correlations are exactly 1 and say nothing, at N = 500 and 384 + 384 columns 269 of
them. `csa` keeps that; `csa-ridge` is the same similarity on a regularised CCA.
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
from anchordot_jax.matching.nearest import check_count
from anchordot_jax.model import AlignedModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class CsaSettings:
    """Numbers of coordinates of the unregularised CCA."""

    fitted: int = 200
    """Canonical coordinates that are fitted."""
    kept: int = 200
    """Of these, coordinates that the similarity uses."""

    def __post_init__(self) -> None:
        """Raise InputError for a setting out of range."""
        check_count("fitted", self.fitted)
        check_count("kept", self.kept)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CsaRidgeSettings:
    """The regularised CCA."""

    ridge: float = 2.0
    """Added to both covariances, in units of their mean eigenvalue."""
    kept: int = 200
    """Coordinates that the similarity uses."""

    def __post_init__(self) -> None:
        """Raise InputError for a setting out of range."""
        cca.check_not_negative(ridge=self.ridge)
        check_count("kept", self.kept)


def unregularised_cca(factors: cca.Factors) -> cca.CCA:
    """Return CCA scaled as cca-zoo 2.x leaves it to the authors' code.

    There the variance of u over the anchors is 1, that of v (N / (N - 1))^2, and the
    weights, mean u_i v_i over the anchors, are the correlations times N / (N - 1). A
    common factor changes no ranking.

    PCA there keeps directions of no variance and divides by their deviation, so that
    N <= d ends in NaN; here they are left out, which leaves at most N - 1 coordinates.
    """
    found = cca.cca_from_factors(factors, ridge_x=0.0, ridge_y=0.0, floor=0.0)
    n = len(factors.x.left)
    return found._replace(
        kernel_y=found.kernel_y * n / (n - 1),
        correlations=found.correlations * n / (n - 1),
    )


def fit_csa(
    anchors: Anchors, pools: Pools, *, settings: CsaSettings, key: jax.Array
) -> AlignedModel:
    """Return CSA with the authors' unregularised CCA.

    Args:
        anchors: paired rows.
        pools: not used.
        settings: numbers of coordinates.
        key: not used.
    """
    return next(fit_csa_many(anchors, pools, candidates=[settings], key=key))


def fit_csa_many(
    anchors: Anchors,
    pools: Pools,
    *,
    candidates: Sequence[CsaSettings],
    key: jax.Array,
) -> Iterator[AlignedModel]:
    """Yield the CSA of each candidate; all share one CCA."""
    del pools, key
    found = unregularised_cca(cca.factorize(*anchors))
    for settings in candidates:
        kept = min(settings.fitted, settings.kept)
        yield _model("csa", anchors, settings, found, kept)


def fit_csa_ridge(
    anchors: Anchors, pools: Pools, *, settings: CsaRidgeSettings, key: jax.Array
) -> AlignedModel:
    """Return CSA with a ridge on both covariances.

    Args:
        anchors: paired rows.
        pools: not used.
        settings: ridge and number of coordinates.
        key: not used.
    """
    return next(fit_csa_ridge_many(anchors, pools, candidates=[settings], key=key))


def fit_csa_ridge_many(
    anchors: Anchors,
    pools: Pools,
    *,
    candidates: Sequence[CsaRidgeSettings],
    key: jax.Array,
) -> Iterator[AlignedModel]:
    """Yield the CSA of each candidate; all share the sides' factors."""
    del pools, key
    factors = cca.factorize(*anchors)
    for settings in candidates:
        found = cca.cca_from_factors(
            factors, ridge_x=settings.ridge, ridge_y=settings.ridge, relative=True
        )
        yield _model("csa-ridge", anchors, settings, found, settings.kept)


def _model(
    name: str,
    anchors: Anchors,
    settings: CsaSettings | CsaRidgeSettings,
    found: cca.CCA,
    kept: int,
) -> AlignedModel:
    params = {
        "x": linear_side(
            found.kernel_x[:, :kept],
            mean=found.mean_x,
            weights=found.correlations[:kept],
        ),
        "y": linear_side(found.kernel_y[:, :kept], mean=found.mean_y),
    }
    return make_model(name, params, anchors=anchors, settings=settings, kind="linear")


_SOURCE = (
    "Li et al. (2025), CSA: Data-efficient Mapping of Unimodal Features to Multimodal "
    "Features, arXiv:2410.07610"
)

METHODS = (
    Method(
        name="csa",
        title="CSA",
        source=_SOURCE,
        trust="code",
        notes=(
            "The authors' retrieval class: CCA without a ridge. With fewer anchors "
            "than columns of both sides together its leading correlations are exactly "
            "1, and which of them are kept is up to rounding. Directions without "
            "variance are left out where the original divides by zero. The number of "
            "coordinates kept, which the authors vary, is chosen on held-out anchors."
        ),
        needs=Needs(pairs=True),
        settings=CsaSettings(),
        grid={"kept": (200, 100, 50, 10)},
        fit=fit_csa,
        fit_many=fit_csa_many,
    ),
    Method(
        name="csa-ridge",
        title="CSA + ridge",
        source=_SOURCE,
        trust="ours",
        notes=(
            "CSA's similarity on a regularised CCA, which is not the authors'; the "
            "ridge is chosen on held-out anchors."
        ),
        needs=Needs(pairs=True),
        settings=CsaRidgeSettings(),
        grid={
            "kept": (200, 50),
            "ridge": (2.0, 1.0, 4.0, 0.5, 8.0, 0.125, 32.0, 0.03),
        },
        fit=fit_csa_ridge,
        fit_many=fit_csa_ridge_many,
    ),
)
