"""A target with what was measured: met, missed, or why neither is known."""

from typing import NamedTuple

from output import number

NO_FLOOR = 0.95
"""Below this ratio with its floor a time shows that the measured rate is none."""


class Target(NamedTuple):
    """One promise and what was measured for it."""

    what: str
    against: str
    wanted: str
    measured: str
    met: bool | None
    """None: not known."""
    unknown: str = "not measured"
    """Why it is not known."""

    @property
    def verdict(self) -> str:
        """Return met, missed, or why neither is known."""
        if self.met is None:
            return self.unknown
        return "met" if self.met else "**missed**"


def at_most(
    what: str,
    against: str,
    most: float,
    value: float | None,
    unit: str,
    *,
    wanted: str | None = None,
) -> Target:
    """Return the target of a value that must not be above the most; None: not known."""
    met = None if value is None else bool(value <= most)
    return _bounded(what, against, wanted or f"<= {most:g}{unit}", value, unit, met)


def at_least(
    what: str, against: str, least: float, value: float | None, unit: str
) -> Target:
    """Return the target of a value that must not be below the least."""
    met = None if value is None else bool(value >= least)
    return _bounded(what, against, f">= {least:g}{unit}", value, unit, met)


def faster_by(
    what: str,
    against: str,
    factor: float,
    ratio: float,
    *,
    least: bool,
    note: str = "",
) -> Target:
    """Return the target of a speed-up; of one whose least value is known only."""
    met: bool | None = ratio >= factor
    # A rival that was stopped may be slower still.
    if least and not met:
        met = None
    measured = f"{'at least ' if least else ''}{number(ratio)}x{note}"
    return Target(what, against, f"{factor:g}x faster", measured, met, "not decided")


def with_floor(target: Target, ratio: float | None) -> Target:
    """Return the target undecided where the time is below what should be its floor."""
    if ratio is None or ratio >= NO_FLOOR:
        return target
    return target._replace(
        met=None, unknown="not decided: the measured rate is no floor"
    )


def _bounded(
    what: str,
    against: str,
    wanted: str,
    value: float | None,
    unit: str,
    met: bool | None,
) -> Target:
    measured = "-" if value is None else f"{number(value)}{unit}"
    return Target(what, against, wanted, measured, met)
