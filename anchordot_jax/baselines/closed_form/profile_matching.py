"""AnchorDOT's cost without its training: anchor profiles and a matching rule.

The similarity of two items is the cosine of their anchor profiles (Eq. 6), which needs
neither pools nor training. The methods differ in the rule that turns the similarities
of the test items into scores (Fig. 4): nearest neighbour, and those that correct hubs.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import jax
import numpy as np
import threadpoolctl

from anchordot_jax import profiles
from anchordot_jax.baselines import tuning
from anchordot_jax.baselines.protocol import (
    Anchors,
    Method,
    Needs,
    Pools,
    Trust,
    make_model,
)
from anchordot_jax.baselines.scorers import RuleScorer
from anchordot_jax.config import check_gamma
from anchordot_jax.maps.linear import linear_side
from anchordot_jax.matching.rules import RuleSettings
from anchordot_jax.model import AlignedModel
from anchordot_jax.students import Params

GAMMAS = (0.75, 0.0, 0.25, 0.5, 1.0)
"""Candidates for gamma, AnchorDOT's most frequent choice first."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfileSettings:
    """Settings of the anchor profiles."""

    gamma: float = 0.75
    """Degree of whitening of the anchor profiles, in [0, 2]."""

    def __post_init__(self) -> None:
        """Check the range."""
        check_gamma(self.gamma)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProfileRuleSettings(RuleSettings):
    """Settings of the anchor profiles and of the matching rules."""

    gamma: float = 0.75
    """Degree of whitening of the anchor profiles, in [0, 2]."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_gamma(self.gamma)
        super().__post_init__()


Settings = ProfileSettings | ProfileRuleSettings


def profile_maps(maps: profiles.CoordinateMaps) -> Params:
    """Return params of kind "linear" whose inner products are the profile cosines.

    `profiles.coordinates` gives z_x . z_y = p_x^T B p_y for unit p_x, p_y and the
    bridge B = U_x^T U_y. With the full singular value decomposition B = P S Q^T,

        p_x^T B p_y = (P^T p_x)^T S (Q^T p_y),

    and as P and Q are orthogonal they may act before the scaling to unit norm: the
    kernels are W_x P and W_y Q, the weights of the coordinates sqrt(S) on both sides.
    The side of lower rank gets columns of zeros, and the coordinates past it weight 0.

    Args:
        maps: of `profiles.coordinate_maps`.
    """
    bridge = np.asarray(maps.bridge, np.float64)
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        left, overlaps, right_t = np.linalg.svd(bridge, full_matrices=True)
        kernel_x = np.asarray(maps.x, np.float64) @ left
        kernel_y = np.asarray(maps.y, np.float64) @ right_t.T
    width = max(bridge.shape)
    weights = np.sqrt(_padded(overlaps, width))
    return {
        "x": linear_side(_padded(kernel_x, width), mean=maps.mean_x, weights=weights),
        "y": linear_side(_padded(kernel_y, width), mean=maps.mean_y, weights=weights),
    }


def fit_profile(
    anchors: Anchors,
    pools: Pools,
    *,
    settings: Settings,
    key: jax.Array,
    name: str = "profile-nearest",
) -> AlignedModel:
    """Return the model whose similarities are the cosines of anchor profiles.

    Args:
        anchors: the pairs that the profiles are similarities to.
        pools: not used.
        settings: gamma.
        key: not used.
        name: the method's name.
    """
    (model,) = _fit_profiles(anchors, pools, candidates=[settings], key=key, name=name)
    return model


def fit_profile_rule(
    anchors: Anchors,
    pools: Pools,
    *,
    settings: ProfileRuleSettings,
    key: jax.Array,
    rule: str,
) -> RuleScorer:
    """Return the profiles' model with a matching rule.

    Args:
        anchors: the pairs that the profiles are similarities to.
        pools: not used.
        settings: gamma, and the rule's settings.
        key: not used.
        rule: a key of `matching.rules.RULES`.
    """
    model = fit_profile(
        anchors, pools, settings=settings, key=key, name=f"profile-{rule}"
    )
    own = dataclasses.asdict(settings)
    del own["gamma"]
    return RuleScorer(model=model, rule=rule, settings=own)


def _fit_profiles(
    anchors: Anchors,
    pools: Pools,
    *,
    candidates: Sequence[Settings],
    key: jax.Array,
    name: str = "profile-nearest",
) -> Iterator[AlignedModel]:
    """Yield the model of each gamma; the anchors are factorised once."""
    del pools, key
    basis_x = profiles.fit_basis(anchors.x)
    basis_y = profiles.fit_basis(anchors.y)
    for settings in candidates:
        maps = profiles.coordinate_maps(basis_x, basis_y, settings.gamma)
        yield make_model(
            name,
            profile_maps(maps),
            anchors=anchors,
            settings=settings,
            kind="linear",
            gamma=settings.gamma,
        )


def _padded(values: np.ndarray, width: int) -> np.ndarray:
    """Return the values with zeros after them along the last axis."""
    before = [(0, 0)] * (values.ndim - 1)
    return np.pad(values, [*before, (0, width - values.shape[-1])])


ANCHORDOT = (
    "Kordes and Dorent, Representation Alignment from a Few Paired Data via Distilled "
    "Optimal Transport, arXiv:2610.12781, 2026"
)


def choose_gamma(
    anchors: Anchors, pools: Pools, *, settings: ProfileRuleSettings, key: jax.Array
) -> tuple[ProfileRuleSettings, int]:
    """Return the settings with nearest neighbours' gamma: one cost for all rules."""
    nearest = METHODS[0]
    plain = nearest.settings
    chosen = tuning.choose(nearest, anchors, pools, settings=plain, key=key)
    gamma = chosen.settings.gamma
    return dataclasses.replace(settings, gamma=gamma), chosen.n_heldout


def _rule_method(
    rule: str, title: str, source: str, trust: Trust, notes: str
) -> Method:
    return Method(
        name=f"profile-{rule}",
        title=f"Anchor profiles + {title}",
        source=source,
        trust=trust,
        notes=notes,
        needs=Needs(transductive=True),
        settings=ProfileRuleSettings(),
        tuned=("gamma",),
        choose=choose_gamma,
        fit=functools.partial(fit_profile_rule, rule=rule),
    )


METHODS = (
    Method(
        name="profile-nearest",
        title="Anchor profiles + nearest neighbour",
        source=f"{ANCHORDOT}, Eq. 6 and Fig. 4",
        trust="paper",
        notes="AnchorDOT's cost without transport and without students.",
        settings=ProfileSettings(),
        grid={"gamma": GAMMAS},
        fit=fit_profile,
        fit_many=_fit_profiles,
    ),
    _rule_method(
        "inverted-softmax",
        "inverted softmax",
        f"Smith et al., arXiv:1702.03859, 2017; as compared by {ANCHORDOT}, Fig. 4",
        "code",
        "The rule is written from the code of MUSE, which takes beta = 30 and a bank "
        "of training queries; here, as in Fig. 4, beta is 1/epsilon with epsilon = "
        "eta * median cost of the test items, and these are the bank.",
    ),
    _rule_method(
        "csls",
        "CSLS",
        f"Conneau et al., arXiv:1710.04087, 2018; as compared by {ANCHORDOT}, Fig. 4",
        "code",
        "The rule is written from the code of MUSE, K = 10; neighbours are looked for "
        "among the test items.",
    ),
    _rule_method(
        "qb-norm",
        "QB-Norm",
        "Bogolin et al., Cross Modal Retrieval with Querybank Normalisation, "
        "arXiv:2112.12777, 2022",
        "code",
        "The bank is the test queries, not training queries as in the paper: every "
        "query is then in the activation set, and the rule is the inverted softmax at "
        "the authors' beta = 20.",
    ),
    _rule_method(
        "dual-bank",
        "dual-bank normalisation",
        "Wang et al., Balance Act: Mitigating Hubness in Cross-Modal Retrieval with "
        "Query and Gallery Banks, arXiv:2310.11612, 2023",
        "code",
        "The authors' inverse temperatures 1/1.99 and 3; the banks are the test items. "
        "The authors' function is given gallery-to-gallery similarities in the place "
        "of those to be normalised, taken for a slip: here the test similarities are. "
        "Similarities within a side are cosines in the shared space. On these cosines "
        "a query-bank beta of 20, as in QB-Norm, does better than the authors'.",
    ),
    _rule_method(
        "sinkhorn",
        "converged Sinkhorn",
        f"{ANCHORDOT}, Fig. 4",
        "paper",
        "Transport between the test items themselves: it takes them to be in a "
        "one-to-one correspondence. Epsilon is eta * median of the test items' cost; "
        "the paper does not say whose median it takes.",
    ),
)
