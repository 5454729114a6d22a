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


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoftCcaConfig:
    """Settings of the soft-matched CCA, and of its choice by held-out anchors."""

    ridge: float | Auto = "auto"
    """Ridge of the CCA of the anchors, in units of the mean variance; auto: chosen by
    held-out anchors."""
    ridge_ratio: float | Auto = "auto"
    """Ridge of the CCA of anchors and matched pools, as a share of the other one."""
    sharpness: float | Auto = "auto"
    """Standard deviation of the cosines between the pools, in units of epsilon."""
    ridges: tuple[float, ...] | None = None
    """Candidates for ridge. None: 0.5 to 16, from 300 anchors on; else 1 to 64."""
    ridge_ratios: tuple[float, ...] | None = None
    """Candidates for ridge_ratio. None: 0.06 to 1, from 300 anchors on; else 0.015 to
    0.5."""
    sharpnesses: tuple[float, ...] = (3.0, 5.0, 8.0)
    """Candidates for sharpness."""
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
        names = {
            "ridge": "ridges",
            "ridge_ratio": "ridge_ratios",
            "sharpness": "sharpnesses",
        }
        for name, many in names.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value != "auto":
                check_positive(f"soft_cca.{name}", value)
                set_plain(self, name, float(value))
            values = getattr(self, many)
            if values is None and many != "sharpnesses":
                continue
            ok = isinstance(values, tuple | list) and len(values) > 0
            what = "several numbers, not empty"
            check_setting(ok, f"soft_cca.{many}", what, values)
            for value in values:
                check_positive(f"soft_cca.{many}", value)
            set_plain(self, many, tuple(float(value) for value in values))
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
