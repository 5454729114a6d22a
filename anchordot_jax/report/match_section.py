"""The pools' most confident and most doubtful matches."""

import numpy as np

from anchordot_jax.fitted import pool_matches
from anchordot_jax.fitted.pool_matches import PoolMatches
from anchordot_jax.report import figures
from anchordot_jax.report.blocks import (
    Block,
    Example,
    Examples,
    Figure,
    Section,
    Table,
    Text,
)
from anchordot_jax.report.context import Context, Data
from anchordot_jax.report.items import unread_pictures

SHOWN = 5


def match_section(context: Context) -> Section:
    """Return the matches at both ends of the list, and the expected precision."""
    title = "Matches of the pools"
    if context.data is None:
        return Section("matches", title, [Text(context.missing)])
    found = pool_matches.find_matches(
        context.data.known.fit, context.config, context.chosen, run=context.run
    )
    mutual = int(found.matches.mutual.sum())
    n = len(found.matches.x)
    blocks: list[Block] = [
        Text(
            f"The plan's best match of each of the {n} items of the x pool; {mutual} "
            f"are mutual, each the other's best. Confidence is the geometric mean of "
            f"the shares of their mass that both give each other. anchordot match "
            f"exports the list."
        )
    ]
    precision = found.precision
    if precision is None or mutual == 0:
        blocks.append(Text("Not calibrated: too few anchors to hold some out."))
    else:
        blocks += _precision(found, precision[:mutual])
    confident, doubtful = _ends(n, mutual)
    shown = []
    for caption, places in (
        ("Most confident mutual matches:", confident),
        ("Most doubtful matches:", doubtful),
    ):
        examples = [_example(found, context.data, place) for place in places]
        if examples:
            shown.append(Examples(caption, examples))
    return Section("matches", title, [*blocks, *unread_pictures(shown), *shown])


def _ends(n: int, mutual: int) -> tuple[range, range]:
    """Return the places of the most confident matches, and of the most doubtful.

    The doubtful are those that are not mutual, from the last; where all are mutual, the
    least certain of them that are not among the confident.
    """
    confident = range(min(SHOWN, mutual))
    first = mutual if mutual < n else len(confident)
    return confident, range(n - 1, max(first, n - SHOWN) - 1, -1)


def _precision(found: PoolMatches, precision: np.ndarray) -> list[Block]:
    expected = pool_matches.expected_precisions(
        found, (*pool_matches.TOPS, len(precision))
    )
    rows = [[str(top), f"{value:.0%}"] for top, value in expected.items()]
    tops = list(expected)
    curve = precision.cumsum() / np.arange(1, len(precision) + 1)
    places = np.arange(1, len(precision) + 1)
    svg = figures.curves(
        {"expected precision": (places, curve)},
        x_label="most confident mutual matches taken",
        y_label="expected precision",
    )
    known = found.calibration.n_known if found.calibration else 0
    said = (
        f"Expected precision of the first {tops[0]} matches "
        f"{curve[tops[0] - 1]:.0%}, of all {tops[-1]} mutual ones {curve[-1]:.0%}."
    )
    return [
        Text(
            f"Calibrated on {known} matches of held-out anchors. It holds for items "
            f"whose partner is in the other pool; where many partners are missing, "
            f"fewer matches are right."
        ),
        Figure("precision", svg, said, said),
        Table("Expected precision", ["first matches", "right"], rows),
    ]


def _example(found: PoolMatches, data: Data, place: int) -> Example:
    matches, precision = found.matches, found.precision
    note = f"confidence {matches.confidence[place]:.3f}"
    if precision is not None and matches.mutual[place]:
        note += f", expected precision {precision[place]:.0%}"
    return Example(
        f"Place {place + 1} of {len(matches.x)}",
        data.viewer_x.pool_item(int(matches.x[place])),
        [data.viewer_y.pool_item(int(matches.y[place]), note=note)],
    )
