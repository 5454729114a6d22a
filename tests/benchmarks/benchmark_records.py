"""Rows of the coupling benchmark for tests."""

from typing import Any

from coupling_table import Row


def cell(implementation: str, **values: Any) -> dict[str, Any]:
    """Return a row of coupling.csv; what is not given is unknown."""
    known = dict.fromkeys(Row._fields) | {
        **{"data": "flickr8k", "n": 3600, "m": 3600, "anchors": 500},
        "implementation": implementation,
    }
    return known | values
