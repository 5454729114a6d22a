"""Linear maps fitted to the pairs in closed form: Procrustes, ridge regression, CCA.

SOTAlign's repository names a script of such baselines; neither the script nor its
settings were at hand, so these are the textbook forms. All subtract the pairs' means at
fit and ever after, and score by the cosine in the space mapped to.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import numpy as np
import threadpoolctl
from numpy.typing import ArrayLike

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcrustesSettings:
    """Procrustes has no settings."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RidgeMapSettings:
    """Ridge regression."""

    ridge: float = 1.0
    """Penalty, in units of the mean eigenvalue of the regressors' covariance."""

    def __post_init__(self) -> None:
        """Raise InputError for a setting out of range."""
        cca.check_not_negative(ridge=self.ridge)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CcaSettings:
    """Regularised CCA as SOTAlign's teacher has it."""

    ridge: float = 0.1
    """Added to the eigenvalues of both covariances."""
    relative: bool = False
    """Whether the ridge is in units of a side's mean eigenvalue."""
    floor: float = cca.EIGENVALUE_FLOOR
    """Least eigenvalue of a regularised covariance."""

    def __post_init__(self) -> None:
        """Raise InputError for a setting out of range."""
        cca.check_not_negative(ridge=self.ridge, floor=self.floor)


def procrustes_map(x: ArrayLike, y: ArrayLike) -> np.ndarray:
    """Return the semi-orthogonal W that takes x nearest to y, `[dx, dy]`, float64.

    W = U V^T with X^T Y = U diag(s) V^T (Schönemann 1966). It maximises <X W, Y> among
    all W of orthonormal columns, or rows where dx < dy; reflections are allowed. Rows
    are taken as they are. With fewer pairs than min(dx, dy), W is not unique.

    Args:
        x: `[N, dx]`; row k belongs to row k of y.
        y: `[N, dy]`.
    """
    cross = np.asarray(x, np.float64).T @ np.asarray(y, np.float64)
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        left, _, right_t = np.linalg.svd(cross, full_matrices=False)
        rotation: np.ndarray = left @ right_t
    return rotation


def ridge_map(regressors: cca.Side, targets: np.ndarray, ridge: float) -> np.ndarray:
    """Return W = (X^T X + lambda I)^(-1) X^T Y, `[dx, dy]`, float64.

    With X = U diag(S) V^T it is V diag(S / (S^2 + lambda)) U^T Y, the primal and the
    dual form at once; at lambda = 0 the least-squares map of least norm.

    Args:
        regressors: factors of the centred X `[N, dx]`, see `cca.factorize`.
        targets: centred Y `[N, dy]`.
        ridge: lambda, in units of the mean eigenvalue of X^T X.
    """
    squares = regressors.singular_values**2
    penalty = ridge * squares.sum() / len(regressors.right)
    gains = regressors.singular_values / (squares + penalty)
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        weights: np.ndarray = (regressors.right * gains[None, :]) @ (
            regressors.left.T @ targets
        )
    return weights


def fit_procrustes(
    anchors: Anchors, pools: Pools, *, settings: ProcrustesSettings, key: jax.Array
) -> AlignedModel:
    """Return the orthogonal map of centred x into y's space.

    Args:
        anchors: paired rows.
        pools: not used.
        settings: none.
        key: not used.
    """
    del pools, key
    x, y = (np.asarray(rows, np.float64) for rows in anchors)
    mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
    rotation = procrustes_map(x - mean_x[None, :], y - mean_y[None, :])
    params = {
        "x": linear_side(rotation, mean=mean_x),
        "y": linear_side(np.eye(y.shape[1]), mean=mean_y),
    }
    return make_model(
        "procrustes", params, anchors=anchors, settings=settings, kind="linear"
    )


def fit_ridge_x2y(
    anchors: Anchors, pools: Pools, *, settings: RidgeMapSettings, key: jax.Array
) -> AlignedModel:
    """Return the ridge regression of y on x, scored in y's space.

    Args:
        anchors: paired rows.
        pools: not used.
        settings: the penalty.
        key: not used.
    """
    return next(fit_ridge_x2y_many(anchors, pools, candidates=[settings], key=key))


def fit_ridge_x2y_many(
    anchors: Anchors,
    pools: Pools,
    *,
    candidates: Sequence[RidgeMapSettings],
    key: jax.Array,
) -> Iterator[AlignedModel]:
    """Yield the regression of each candidate; all share the factors."""
    del pools, key
    x, y = cca.factorize(*anchors)[:2]
    for settings in candidates:
        weights = ridge_map(x, _centred(y), settings.ridge)
        params = {
            "x": linear_side(weights, mean=x.mean),
            "y": linear_side(np.eye(len(y.mean)), mean=y.mean),
        }
        yield make_model(
            "ridge-x2y", params, anchors=anchors, settings=settings, kind="linear"
        )


def fit_ridge_y2x(
    anchors: Anchors, pools: Pools, *, settings: RidgeMapSettings, key: jax.Array
) -> AlignedModel:
    """Return the ridge regression of x on y, scored in x's space.

    Args:
        anchors: paired rows.
        pools: not used.
        settings: the penalty.
        key: not used.
    """
    return next(fit_ridge_y2x_many(anchors, pools, candidates=[settings], key=key))


def fit_ridge_y2x_many(
    anchors: Anchors,
    pools: Pools,
    *,
    candidates: Sequence[RidgeMapSettings],
    key: jax.Array,
) -> Iterator[AlignedModel]:
    """Yield the regression of each candidate; all share the factors."""
    del pools, key
    x, y = cca.factorize(*anchors)[:2]
    for settings in candidates:
        weights = ridge_map(y, _centred(x), settings.ridge)
        params = {
            "x": linear_side(np.eye(len(x.mean)), mean=x.mean),
            "y": linear_side(weights, mean=y.mean),
        }
        yield make_model(
            "ridge-y2x", params, anchors=anchors, settings=settings, kind="linear"
        )


def fit_linear_cca(
    anchors: Anchors, pools: Pools, *, settings: CcaSettings, key: jax.Array
) -> AlignedModel:
    """Return regularised CCA, its coordinates not weighed by their correlations.

    Args:
        anchors: paired rows.
        pools: not used.
        settings: the ridge and its unit.
        key: not used.
    """
    return next(fit_linear_cca_many(anchors, pools, candidates=[settings], key=key))


def fit_linear_cca_many(
    anchors: Anchors,
    pools: Pools,
    *,
    candidates: Sequence[CcaSettings],
    key: jax.Array,
) -> Iterator[AlignedModel]:
    """Yield the CCA of each candidate; all share the factors."""
    del pools, key
    factors = cca.factorize(*anchors)
    for settings in candidates:
        found = cca.cca_from_factors(
            factors,
            ridge_x=settings.ridge,
            ridge_y=settings.ridge,
            relative=settings.relative,
            floor=settings.floor,
        )
        params = {
            "x": linear_side(found.kernel_x, mean=found.mean_x),
            "y": linear_side(found.kernel_y, mean=found.mean_y),
        }
        yield make_model(
            "cca", params, anchors=anchors, settings=settings, kind="linear"
        )


def _centred(side: cca.Side) -> np.ndarray:
    rows: np.ndarray = (side.left * side.singular_values[None, :]) @ side.right.T
    return rows


_RIDGES = (1.0, 0.3, 3.0, 0.1, 10.0, 0.03, 30.0, 0.01, 100.0, 0.001, 0.0)
_PROCRUSTES = "Schönemann (1966), A generalized solution of the orthogonal Procrustes"
_RIDGE = "Hoerl and Kennard (1970), Ridge Regression; Dinu et al. (2015) on hubs"

METHODS = (
    Method(
        name="procrustes",
        title="Procrustes",
        source=f"{_PROCRUSTES} problem",
        trust="readme",
        notes=(
            "A linear baseline that SOTAlign's README names without its formula; the "
            "textbook form. x is mapped into y's space; where dx > dy, that loses "
            "directions of x."
        ),
        needs=Needs(pairs=True),
        settings=ProcrustesSettings(),
        fit=fit_procrustes,
    ),
    Method(
        name="ridge-x2y",
        title="Ridge x → y",
        source=_RIDGE,
        trust="readme",
        notes=(
            "Ridge regression of y on x, cosine in y's space. It shrinks what it maps "
            "towards the mean, which makes hubs of the items near it; see ridge-y2x "
            "for the other direction. The penalty is chosen on held-out anchors."
        ),
        needs=Needs(pairs=True),
        settings=RidgeMapSettings(),
        grid={"ridge": _RIDGES},
        fit=fit_ridge_x2y,
        fit_many=fit_ridge_x2y_many,
    ),
    Method(
        name="ridge-y2x",
        title="Ridge y → x",
        source=_RIDGE,
        trust="readme",
        notes=(
            "Ridge regression of x on y, cosine in x's space. The penalty is chosen "
            "on held-out anchors."
        ),
        needs=Needs(pairs=True),
        settings=RidgeMapSettings(),
        grid={"ridge": _RIDGES},
        fit=fit_ridge_y2x,
        fit_many=fit_ridge_y2x_many,
    ),
    Method(
        name="cca",
        title="CCA",
        source="Hotelling (1936); with a ridge as in SOTAlign's first stage",
        trust="readme",
        notes=(
            "Means over pairs, plain coordinates, eigenvalue floor 1e-6. SOTAlign's "
            "README gives the ridge 0.1 without saying of what: here of the "
            "covariance divided by N. On unit-norm rows that is tens of times the "
            "mean eigenvalue, so the ridge and its unit are chosen on held-out anchors."
        ),
        needs=Needs(pairs=True),
        settings=CcaSettings(),
        grid={
            "relative": (False, True),
            "ridge": (0.1, 0.01, 0.03, 0.3, 1.0, 4.0, 16.0, 64.0),
        },
        fit=fit_linear_cca,
        fit_many=fit_linear_cca_many,
    ),
)
