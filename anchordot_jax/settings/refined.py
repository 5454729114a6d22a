"""Settings of the refined recipe: the soft-matched CCA and the training after it."""

import dataclasses

from anchordot_jax.settings.checks import (
    Auto,
    check_count,
    check_positive,
    check_setting,
    is_number,
    set_plain,
)

Choice = float | tuple[float, ...] | Auto
"""One value; several, among which held-out anchors choose; auto: the usual ones."""
CHOSEN = (
    "ridge",
    "balance",
    "power",
    "sharpness",
    "ridge_ratio",
    "balance_ratio",
    "final_power",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoftCcaConfig:
    """Settings of the soft-matched CCA, and of its choice by held-out anchors.

    Each of the first seven is one value or several, among which held-out anchors
    choose; auto: among the usual ones.
    """

    ridge: Choice = "auto"
    """Ridge of the CCA of the anchors, in units of the mean variance."""
    balance: Choice = "auto"
    """Square root of the ratio of that ridge on the x side to the one on the y side."""
    power: Choice = "auto"
    """Power of the correlations that weigh its coordinates."""
    sharpness: Choice = "auto"
    """Standard deviation of the cosines between the pools, in units of epsilon."""
    ridge_ratio: Choice = "auto"
    """Ridge of the CCA of anchors and matched pools, as a share of the other one."""
    balance_ratio: Choice = "auto"
    """Its balance, as a share of the other one."""
    final_power: Choice = "auto"
    """Power of the correlations that weigh its coordinates."""
    folds: int = 5
    """Parts of the anchors, each held out once."""
    gallery: int = 500
    """Pool items of each side that the held-out anchors are ranked among: at most a
    fifth of the pool, and left out of the plan."""
    pool_limit: int | None = 4000
    """Rows of each pool read for the choice (a random subset); None: all of them."""
    tolerance: float = 1e-3
    """L1 error of the plan's column marginal that is enough here."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in CHOSEN:
            value = getattr(self, name)
            if isinstance(value, str) and value == "auto":
                continue
            if not isinstance(value, tuple | list):
                check_positive(f"soft_cca.{name}", value)
                set_plain(self, name, float(value))
                continue
            check_setting(len(value) > 0, f"soft_cca.{name}", "not empty", value)
            for own in value:
                check_positive(f"soft_cca.{name}", own)
            set_plain(self, name, tuple(float(own) for own in value))
        check_count("soft_cca.folds", self.folds, 2)
        check_count("soft_cca.gallery", self.gallery, 1)
        if self.pool_limit is not None:
            check_count("soft_cca.pool_limit", self.pool_limit, 1)
        ok = is_number(self.tolerance) and 0 < self.tolerance < 2
        check_setting(ok, "soft_cca.tolerance", "between 0 and 2", self.tolerance)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RefinedConfig:
    """The students' short training where a soft-matched CCA starts them.

    It takes the place of the same settings of `distillation`; the dimension of the
    shared space is the closed form's.
    """

    epochs: int = 20
    """Passes over the pools."""
    learning_rate: float = 3e-4
    """Adam's step size after the warm-up."""
    warmup_steps: int = 20
    """Steps over which the learning rate rises linearly."""
    temperature: float = 0.05
    """Initial temperature; the logit scale 1/temperature is learned."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_count("refined.epochs", self.epochs, 1)
        check_count("refined.warmup_steps", self.warmup_steps, 0)
        check_positive("refined.learning_rate", self.learning_rate)
        check_positive("refined.temperature", self.temperature)
