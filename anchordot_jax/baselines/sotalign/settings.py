"""SOTAlign's settings: the launcher's parameters and those of this implementation."""

import dataclasses
import math
from typing import Literal

from anchordot_jax.baselines.sotalign import teacher
from anchordot_jax.baselines.trained.sail_loss import Reduction
from anchordot_jax.baselines.trained.training import (
    TrainingSettings,
    check_count,
    check_weight,
)
from anchordot_jax.config import check_setting

MAX_CHECKPOINTS = 50


@dataclasses.dataclass(frozen=True, kw_only=True)
class SotalignSettings(TrainingSettings):
    """Settings of SOTAlign."""

    learning_rate: float = 1e-4
    """Step size after the warm-up; the authors' is not known, SAIL's is 1e-5."""
    affinity: teacher.Affinity = "cca"
    """The linear teacher."""
    ridge: teacher.Ridge = "auto"
    """The teacher's ridge; "auto" chooses it, and its unit, by held-out anchors. The
    authors' is 0.1."""
    ridge_y: float | None = None
    """Ridge of a CCA teacher's y side, where it differs from that of x."""
    ridge_relative: bool = False
    """Whether a given ridge of CCA is in units of a side's mean eigenvalue."""
    eigenvalue_floor: float = 1e-6
    """Least eigenvalue of the teacher's covariances."""
    alpha_sail: float = 1.0
    """Weight of the pairs' SAIL loss."""
    alpha_klot: float = 0.01
    """Weight of KLOT on the unpaired items; the authors' is 0.001, for 10k pairs."""
    reduction: Reduction = "mean"
    """How the SAIL loss is reduced; changes what the two weights mean."""
    epsilon: float = 0.05
    """Regularisation of the students' plan."""
    iterations: int = 100
    """Sinkhorn iterations of the students' plan, where they start from zero."""
    warm_iterations: int = 5
    """Sinkhorn iterations a step from the last step's potentials; 0 starts every step
    from zero, as the authors do."""
    epsilon_teacher: float = 0.01
    """Regularisation of the teacher's plan."""
    iterations_teacher: int = 100
    """Sinkhorn iterations of the teacher's plan."""
    batch_size: int = 32768
    """Paired and unpaired items of one side in a step, together."""
    batch_size_pairs: int = 10000
    """Pairs of a step."""
    index_mode: Literal["all", "disjoint"] = "all"
    """Which unpaired rows are used: all, or, for pools whose rows may belong together,
    of each row number only one side."""
    max_pool: int = 1_000_000
    """Unpaired items of a side at most."""
    validation: float = 0.0
    """Share of the anchors held out to choose the best checkpoint; 0 takes the last."""
    checkpoints: int = MAX_CHECKPOINTS
    """Checkpoints, where there is a validation."""
    p_noise: float = 0.0
    """Share of the pairs mismatched before the teacher is fitted."""
    p_noise_unpaired: float = 0.0
    """Share of each pool replaced by random unit vectors."""
    sigma_k: float = 0.0
    """Standard deviation of noise added to the teacher's affinity."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        super().__post_init__()
        known = self.affinity in teacher.LINEAR
        check_setting(known, "affinity", f"one of {[*teacher.LINEAR]}", self.affinity)
        if self.ridge != "auto":
            ok = isinstance(self.ridge, int | float) and 0 <= self.ridge < math.inf
            check_setting(ok, "ridge", "'auto' or a number >= 0", self.ridge)
        if self.ridge_y is not None:
            check_weight("ridge_y", self.ridge_y)
            ok = self.ridge != "auto" and self.affinity == "cca"
            check_setting(
                ok, "ridge_y", "None unless CCA's ridge is given", self.ridge_y
            )
        for name in ("epsilon", "epsilon_teacher"):
            value = getattr(self, name)
            check_setting(0 < value < math.inf, name, "a number > 0", value)
        for name in ("eigenvalue_floor", "alpha_sail", "alpha_klot", "sigma_k"):
            check_weight(name, getattr(self, name))
        for name in ("iterations", "iterations_teacher", "batch_size_pairs"):
            check_count(name, getattr(self, name))
        check_count("warm_iterations", self.warm_iterations, least=0)
        check_count("batch_size", self.batch_size, least=2)
        check_count("max_pool", self.max_pool)
        check_count("checkpoints", self.checkpoints)
        ok = self.checkpoints <= MAX_CHECKPOINTS
        check_setting(ok, "checkpoints", "at most 50", self.checkpoints)
        for name in ("p_noise", "p_noise_unpaired"):
            value = getattr(self, name)
            check_setting(0 <= value <= 1, name, "in [0, 1]", value)
        ok = 0 <= self.validation < 1
        check_setting(ok, "validation", "in [0, 1)", self.validation)
        ok = self.reduction in ("mean", "sum/n")
        check_setting(ok, "reduction", "'mean' or 'sum/n'", self.reduction)
        ok = self.index_mode in ("all", "disjoint")
        check_setting(ok, "index_mode", "'all' or 'disjoint'", self.index_mode)
