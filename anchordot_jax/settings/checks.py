"""Checks of settings: each raises InputError, naming the setting and what was got."""

import math
import numbers
from typing import Literal

from anchordot_jax.errors import InputError

Auto = Literal["auto"]

LEAST_RHO = 1e-3


def check_setting(condition: bool, name: str, expected: str, got: object) -> None:
    """Raise InputError, naming the setting, unless the condition holds."""
    if not condition:
        raise InputError(f"{name} must be {expected}, got {got!r}.")


def is_number(value: object) -> bool:
    """Return whether the value is a finite real number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return math.isfinite(value)


def set_plain(config: object, name: str, value: object) -> None:
    """Give a field its plain Python value: equal settings then have equal digests."""
    object.__setattr__(config, name, value)


def check_count(name: str, value: object, least: int) -> None:
    """Raise InputError unless the value is a whole number of at least `least`."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    check_setting(whole and value >= least, name, f"a whole number >= {least}", value)  # type: ignore[operator]


def check_positive(name: str, value: object) -> None:
    """Raise InputError unless the value is a finite number above 0."""
    check_setting(is_number(value) and value > 0, name, "a number > 0", value)  # type: ignore[operator]


def check_gamma(value: object, name: str = "gamma") -> None:
    """Raise InputError unless the value is a number in [0, 2]."""
    ok = is_number(value) and 0 <= value <= 2  # type: ignore[operator]
    check_setting(ok, name, "a number in [0, 2]", value)


def check_eta(value: object, name: str = "eta") -> None:
    """Raise InputError unless the value is a number in [1e-4, 10]."""
    ok = is_number(value) and 1e-4 <= value <= 10  # type: ignore[operator]
    check_setting(ok, name, "a number in [0.0001, 10] (0.02 is usual)", value)


def check_rho(value: object, name: str = "rho") -> None:
    """Raise InputError unless the value is a number in [0.001, inf]."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    ok = number and value >= LEAST_RHO  # type: ignore[operator]
    what = f"auto, inf, or a number >= {LEAST_RHO:g} (0.1 to 1 is usual)"
    check_setting(ok, name, what, value)
