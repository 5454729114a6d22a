"""Settings of the choice by held-out anchors (Appendix D)."""

import dataclasses
from typing import Literal

from anchordot_jax.settings.checks import (
    LEAST_RHO,
    check_count,
    check_eta,
    check_gamma,
    check_setting,
    is_number,
    set_plain,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionConfig:
    """Settings of the choice of gamma and eta by held-out anchors (Appendix D)."""

    gammas: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    """Candidates for gamma."""
    etas: tuple[float, ...] = (0.005, 0.01, 0.02, 0.05, 0.1)
    """Candidates for eta."""
    rule: Literal["one_standard_error", "paper"] = "one_standard_error"
    """paper: the smallest mean rank. one_standard_error: the smallest mean log rank;
    of the candidates within a standard error of it, the one nearest to the usual gamma
    0.75 and eta 0.02."""
    heldout: float = 0.1
    """Share of the anchors held out of the profiles and ranked."""
    min_heldout: int = 150
    """With fewer held-out anchors than this, further disjoint draws are added."""
    pool_limit: int | None = 5000
    """Rows of each pool used for the choice (a random subset); None: all of them."""
    rhos: tuple[float, ...] | None = None
    """Candidates for rho, where it is auto, beside none at all. None: 1, 0.3, 0.1."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, check in (("gammas", check_gamma), ("etas", check_eta)):
            values = getattr(self, name)
            ok = isinstance(values, tuple | list) and len(values) > 0
            check_setting(ok, f"selection.{name}", "several numbers, not empty", values)
            for value in values:
                check(value, f"selection.{name}")
            set_plain(self, name, tuple(float(value) for value in values))
        known = self.rule in ("one_standard_error", "paper")
        what = "'one_standard_error' or 'paper'"
        check_setting(known, "selection.rule", what, self.rule)
        ok = is_number(self.heldout) and 0 < self.heldout <= 0.5
        check_setting(ok, "selection.heldout", "in (0, 0.5]", self.heldout)
        check_count("selection.min_heldout", self.min_heldout, 1)
        if self.pool_limit is not None:
            check_count("selection.pool_limit", self.pool_limit, 1)
        if self.rhos is not None:
            ok = isinstance(self.rhos, tuple | list) and len(self.rhos) > 0
            check_setting(ok, "selection.rhos", "several numbers, not empty", self.rhos)
            for value in self.rhos:
                ok = is_number(value) and value >= LEAST_RHO
                what = f"numbers >= {LEAST_RHO:g}"
                check_setting(ok, "selection.rhos", what, value)
            set_plain(self, "rhos", tuple(float(value) for value in self.rhos))
