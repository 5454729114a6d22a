"""Matching rules by name: how a matrix of similarities ranks queries and gallery.

All rules take the same similarities S `[q, m]`, so that what they differ in is the rule
alone (AnchorDOT, Fig. 4). Except `nearest` they are transductive: an item's scores
depend on the other items of S.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from anchordot_jax.arrays import AnyArray
from anchordot_jax.config import CouplingConfig, check_eta
from anchordot_jax.errors import InputError
from anchordot_jax.matching import csls as local_scaling
from anchordot_jax.matching import query_bank
from anchordot_jax.matching.nearest import as_embeddings, check_count


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuleSettings:
    """Settings of the matching rules; each rule reads its own."""

    eta: float = 0.02
    """inverted-softmax, sinkhorn: epsilon as a share of the median of 1 - S."""
    beta: float | None = None
    """inverted-softmax, sinkhorn: 1/epsilon itself, in the place of eta."""
    tolerance: float = 1e-4
    """sinkhorn: stop when the L1 error of the plan's column marginal falls below."""
    max_iterations: int = 1000
    """sinkhorn: stop after this many iterations, converged or not."""
    csls_k: int = local_scaling.K
    """csls: neighbours averaged over."""
    qb_beta: float = query_bank.QB_BETA
    """qb-norm: inverse temperature."""
    qb_k: int = 1
    """qb-norm: gallery items that a query of the bank activates."""
    query_bank_beta: float = query_bank.QUERY_BANK_BETA
    """dual-bank: inverse temperature of the query bank."""
    gallery_bank_beta: float = query_bank.GALLERY_BANK_BETA
    """dual-bank: inverse temperature of the gallery bank."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_eta(self.eta)
        if self.beta is not None:
            query_bank.check_beta(self.beta)
        CouplingConfig(tolerance=self.tolerance, max_iterations=self.max_iterations)
        check_count("csls_k", self.csls_k)
        check_count("qb_k", self.qb_k)
        for name in ("qb_beta", "query_bank_beta", "gallery_bank_beta"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} must be a finite number > 0, got {value!r}.")


class Within(NamedTuple):
    """Similarities within each side, which `dual-bank` takes its gallery banks from."""

    x: np.ndarray
    """`[q, q]`."""
    y: np.ndarray
    """`[m, m]`."""


class BothWays(NamedTuple):
    """Every query's scores, both ways; the second need not be the first transposed."""

    x2y: np.ndarray
    """`[q, m]`: row i ranks the gallery for query i, float32."""
    y2x: np.ndarray
    """`[m, q]`: row j ranks the queries for gallery item j, float32."""


class Rule(Protocol):
    """A matching rule."""

    def __call__(
        self,
        similarity: AnyArray,
        settings: RuleSettings,
        within: Within | None = None,
        /,
    ) -> BothWays:
        """Return the scores of similarities `[q, m]`, both ways."""


def nearest(
    similarity: AnyArray, settings: RuleSettings, within: Within | None = None, /
) -> BothWays:
    """Return the similarities themselves."""
    del settings, within
    s = as_embeddings(similarity, "similarity")
    return BothWays(s, s.T)


def inverted_softmax(
    similarity: AnyArray, settings: RuleSettings, within: Within | None = None, /
) -> BothWays:
    """Return the log inverted softmax; the test items of a side are its bank."""
    del within
    beta = 1 / epsilon_of(similarity, settings)
    s = np.asarray(similarity)
    return BothWays(
        query_bank.inverted_softmax(s, beta), query_bank.inverted_softmax(s.T, beta)
    )


def csls(
    similarity: AnyArray, settings: RuleSettings, within: Within | None = None, /
) -> BothWays:
    """Return the CSLS scores, one matrix for both directions."""
    del within
    scores = local_scaling.csls(similarity, settings.csls_k)
    return BothWays(scores, scores.T)


def qb_norm(
    similarity: AnyArray, settings: RuleSettings, within: Within | None = None, /
) -> BothWays:
    """Return QB-Norm's scores; the test items of a side are its bank.

    With that bank every query is activated, so this is the inverted softmax at
    QB-Norm's own temperature.
    """
    del within
    s, beta, k = np.asarray(similarity), settings.qb_beta, settings.qb_k
    return BothWays(
        query_bank.qb_norm(s, beta=beta, k=k), query_bank.qb_norm(s.T, beta=beta, k=k)
    )


def dual_bank(
    similarity: AnyArray, settings: RuleSettings, within: Within | None = None, /
) -> BothWays:
    """Return the dual-bank scores; the test items of each side are both banks.

    Raises:
        InputError: If the similarities within each side are not given.
    """
    if within is None:
        raise InputError(
            "dual-bank needs the similarities within each side beside those across; "
            "give them, or take inverted-softmax, which needs one bank only."
        )
    s = np.asarray(similarity)

    def one_way(scores: np.ndarray, gallery_bank: np.ndarray) -> np.ndarray:
        return query_bank.dual_bank(
            scores,
            gallery_bank=gallery_bank,
            query_beta=settings.query_bank_beta,
            gallery_beta=settings.gallery_bank_beta,
        )

    return BothWays(one_way(s, within.y), one_way(s.T, within.x))


def sinkhorn(
    similarity: AnyArray, settings: RuleSettings, within: Within | None = None, /
) -> BothWays:
    """Return the logarithm of the converged plan, one matrix for both directions."""
    del within
    # The transport solver takes seconds to import, and no other rule needs it.
    from anchordot_jax.matching.sinkhorn import sinkhorn as log_plan

    config = CouplingConfig(
        tolerance=settings.tolerance, max_iterations=settings.max_iterations
    )
    scores = log_plan(similarity, epsilon_of(similarity, settings), config=config)
    return BothWays(scores, scores.T)


RULES: Mapping[str, Rule] = {
    "nearest": nearest,
    "inverted-softmax": inverted_softmax,
    "csls": csls,
    "qb-norm": qb_norm,
    "dual-bank": dual_bank,
    "sinkhorn": sinkhorn,
}
"""Every matching rule by name."""


def find_rule(name: str) -> Rule:
    """Return the rule of a name.

    Raises:
        InputError: If there is none of that name.
    """
    if name not in RULES:
        raise InputError(
            f"There is no matching rule {name!r}; known are: {', '.join(RULES)}."
        )
    return RULES[name]


def epsilon_of(similarity: AnyArray, settings: RuleSettings) -> float:
    """Return 1/beta where beta is given, otherwise eta * median(1 - S).

    Raises:
        InputError: If S is not a finite matrix, or the median is not > 0.
    """
    s = as_embeddings(similarity, "similarity")
    if settings.beta is not None:
        return 1 / settings.beta
    median = float(np.median(1 - s.astype(np.float64)))
    if median <= 0:
        raise InputError(
            f"The median of 1 - similarity is {median:.3g}, and epsilon is a share of "
            "it; give cosines that differ from 1, or set beta."
        )
    return settings.eta * median
