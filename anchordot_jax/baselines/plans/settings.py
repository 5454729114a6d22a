"""Settings of the other couplings; all hold the solver's and the students' settings."""

import dataclasses
import math
from typing import Literal

from anchordot_jax.config import (
    CouplingConfig,
    DistillationConfig,
    check_eta,
    check_gamma,
    check_setting,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CouplingSettings:
    """Settings that all three couplings share."""

    eta: float = 0.02
    """Regularisation as a share of the median cost."""
    pool_limit: int | None = 10_000
    """Rows of each pool that are used (a random subset), as the plan is stored whole;
    None: all of them."""
    coupling: CouplingConfig = dataclasses.field(default_factory=CouplingConfig)
    """The Sinkhorn iterations."""
    distillation: DistillationConfig = dataclasses.field(
        default_factory=DistillationConfig
    )
    """The student encoders. Its pool_memory does not apply: arrays given are in memory
    already."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_eta(self.eta)
        limit = self.pool_limit
        ok = limit is None or (isinstance(limit, int) and limit >= 1)
        check_setting(ok, "pool_limit", "a whole number >= 1, or None", limit)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BridgeSettings(CouplingSettings):
    """Settings of the bridge cost."""

    own_mean: bool = True
    """Divide each side's distances to the anchors by their mean."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeypointSettings(CouplingSettings):
    """Settings of the keypoint-guided relation cost."""

    tau: float | Literal["auto"] = "auto"
    """Temperature of the relations; auto: chosen by held-out anchors."""
    by_largest: bool = True
    """Divide each side's distances to the anchors by the largest first, as the authors
    do."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        tau = self.tau
        ok = tau == "auto" or (isinstance(tau, int | float) and 0 < tau < math.inf)
        check_setting(ok, "tau", "'auto' or a number > 0", tau)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FusedSettings(CouplingSettings):
    """Settings of fused Gromov-Wasserstein."""

    alpha: float = 0.5
    """Weight of the linear term, 1 minus that of the structures (AnchorDOT's alpha)."""
    gamma: float = 0.75
    """Degree of whitening of the anchor profiles, whose cost is the linear term."""
    pool_limit: int | None = 2000
    """Rows of each pool that are used (a random subset): a step takes their cube."""
    max_iterations: int = 50
    """Most linearisations of the structure term."""
    threshold: float = 1e-4
    """Relative change of the objective at which the linearisations end."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        ok = isinstance(self.alpha, int | float) and 0 <= self.alpha <= 1
        check_setting(ok, "alpha", "a number in [0, 1]", self.alpha)
        check_gamma(self.gamma)
        ok = isinstance(self.max_iterations, int) and self.max_iterations >= 2
        check_setting(ok, "max_iterations", "at least 2", self.max_iterations)
        check_setting(self.threshold > 0, "threshold", "> 0", self.threshold)
