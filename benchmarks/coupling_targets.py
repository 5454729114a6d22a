"""The coupling against other libraries, and against itself with more anchors."""

from collections.abc import Iterator, Mapping

from output import number
from verdicts import Target, at_most, faster_by

Cells = list[dict[str, str]]
LARGE = 3593
"""Rows from which on the coupling is compared with others."""


def coupling_targets(cells: Cells) -> Iterator[Target]:
    """Yield the coupling against other libraries, on every large problem."""
    pairs = (
        ("streamed", "ours-streamed", "ott-online", "OTT-JAX online", 5.0),
        ("cached", "ours-cached", "ott-dense", "OTT-JAX dense", 4.0),
        (
            *("cached", "ours-cached", "ott-dense-momentum"),
            *("OTT-JAX dense with momentum 1.5", 4.0),
        ),
        ("cached", "ours-cached", "pot-torch", "POT sinkhorn_log, torch", 20.0),
        ("cached", "ours-cached", "pot-log", "POT sinkhorn_log, NumPy", 20.0),
    )
    for form, own, other, title, factor in pairs:
        both = list(_both(cells, own, other))
        what = f"coupling, {form}"
        if not both:
            yield Target(what, title, f"{factor:g}x faster", "coupling.py", None)
        for ours, theirs in both:
            place = f"{title}, {_place(ours)}"
            yield _faster(what, place, factor, ours, theirs)
            if other == "ott-online":
                yield _no_more_memory(what, place, ours, theirs)


def anchor_targets(cells: Cells) -> Iterator[Target]:
    """Yield whole calls, profiles included, at two numbers of anchors."""
    few, many = 500, 5000
    for form in ("streamed", "cached"):
        what, against = f"{form} coupling with profiles", f"itself, N = {few} to {many}"
        own = [cell for cell in cells if cell["implementation"] == f"ours-{form}"]
        pairs = [
            (a, b)
            for a in own
            for b in own
            if (a["anchors"], b["anchors"]) == (str(few), str(many))
            and _place(a) == _place(b)
        ]
        if not pairs:
            yield Target(what, against, "<= 1.2x", "coupling.py", None)
        for small, large in pairs:
            place = f"{against}, {_place(small)}"
            call, seconds = _same_call(small, large)
            if seconds is None:
                yield Target(what, place, "<= 1.2x", "no call of both", None)
            else:
                ratio = seconds[1] / seconds[0]
                yield at_most(what, place, 1.2, ratio, f"x ({call})", wanted="<= 1.2x")


def _faster(
    what: str, place: str, factor: float, ours: dict[str, str], theirs: dict[str, str]
) -> Target:
    wanted = f"{factor:g}x faster"
    for cell in (theirs, ours):
        if cell["seen_at"] or cell["not_run"]:
            return Target(what, place, wanted, _reason(cell), None)
    if ours["over_limit"]:
        # Stopped where the other's first call was through: slower, not unknown.
        met = None if theirs["over_limit"] else False
        return Target(what, place, wanted, _reason(ours), met, "not decided")
    if theirs["over_limit"]:
        whole = _number(ours["process_seconds"])
        if whole is None:
            return Target(what, place, wanted, _reason(theirs), None, "not decided")
        ratio = float(theirs["over_limit"]) / whole
        note = " (whole process, first call)"
        return faster_by(what, place, factor, ratio, least=True, note=note)
    call, seconds = _same_call(ours, theirs)
    if seconds is None:
        return Target(what, place, wanted, "no call of both", None)
    ratio = seconds[1] / seconds[0]
    return faster_by(what, place, factor, ratio, least=False, note=f" ({call})")


def _same_call(
    one: Mapping[str, str], other: Mapping[str, str]
) -> tuple[str, tuple[float, float] | None]:
    """Return both cells' seconds of the second calls, else of the first, and which."""
    for call, name in (
        ("second calls", "warm_seconds"),
        ("first calls", "cold_seconds"),
    ):
        if one[name] and other[name]:
            return call, (float(one[name]), float(other[name]))
    return "", None


def _no_more_memory(
    what: str, place: str, ours: dict[str, str], theirs: dict[str, str]
) -> Target:
    mine, other = _number(ours["peak_gigabytes"]), _number(theirs["peak_gigabytes"])
    if mine is None or other is None:
        return Target(what, place, "peak no higher", "no peak known", None)
    # A stopped program's peak is a least value.
    least = "at least " if theirs["over_limit"] else ""
    measured = f"{number(mine)} against {least}{number(other)} GB"
    met = mine <= other or (None if least else False)
    if ours["over_limit"]:
        met = None
    return Target(what, place, "peak no higher", measured, met, "not decided")


def _both(
    cells: Cells, own: str, other: str
) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Yield the large problems that both implementations were given."""
    key = ("data", "n", "m", "anchors")
    theirs = {
        tuple(cell[name] for name in key): cell
        for cell in cells
        if cell["implementation"] == other
    }
    for cell in cells:
        place = tuple(cell[name] for name in key)
        large = min(int(cell["n"]), int(cell["m"])) >= LARGE
        if cell["implementation"] == own and large and place in theirs:
            yield cell, theirs[place]


def _place(cell: Mapping[str, str]) -> str:
    return f"{cell['data']} {cell['n']} x {cell['m']}"


def _reason(cell: Mapping[str, str]) -> str:
    if cell["seen_at"]:
        return f"not run, passed {float(cell['over_limit']):g} s at a smaller size"
    if cell["over_limit"]:
        return f"stopped at {float(cell['over_limit']):g} s, whole process"
    return f"not run: {cell['not_run']}"


def _number(text: str) -> float | None:
    return float(text) if text else None
