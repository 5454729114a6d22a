"""What every compared method looks like: fit(anchors, pools, key) -> scorer.

A method is a `Method`: a fit function, its settings, what it needs, where its formulas
come from, and which settings may be chosen by held-out anchors. `AlignedModel` is the
usual scorer; a transductive one scores all test items at once.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import jax
import numpy as np
from numpy.typing import ArrayLike

from anchordot_jax.errors import InputError
from anchordot_jax.model import AlignedModel, Scores
from anchordot_jax.students import Params


class Anchors(NamedTuple):
    """The paired items, float32 unit-norm rows; row k of x belongs to row k of y."""

    x: np.ndarray
    """`[N, dx]`."""
    y: np.ndarray
    """`[N, dy]`."""


class Pools(NamedTuple):
    """The unpaired items, float32 unit-norm rows; n != m is usual."""

    x: np.ndarray
    """`[n, dx]`."""
    y: np.ndarray
    """`[m, dy]`."""


class Scorer(Protocol):
    """What a fit returns."""

    @property
    def info(self) -> Mapping[str, Any]:
        """How it was made, JSON values."""

    def scores(self, x: ArrayLike, y: ArrayLike) -> Scores:
        """Return the scores of all x rows with all y rows, both ways."""

    def save(self, folder: str | Path) -> None:
        """Write it to a folder, complete or not at all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Needs:
    """What a method asks of its data, and what its scores depend on."""

    pairs: bool = True
    """Whether it uses the anchors' pairing."""
    pools: bool = False
    """Whether it uses the unpaired pools."""
    equal_dimensions: bool = False
    """Whether both sides must have as many columns."""
    transductive: bool = False
    """Whether an item's score depends on the other items scored with it."""


Trust = Literal["code", "readme", "paper", "memory", "ours"]
"""Where the formulas come from: the authors' code; only their README; a paper's text;
what is remembered of a paper whose text and code were not at hand; this project."""

Fit = Callable[..., Scorer]
"""fit(anchors, pools, *, settings, key) -> scorer."""
FitMany = Callable[..., Iterable[Scorer]]
"""fit_many(anchors, pools, *, candidates, key) -> one scorer a candidate, in order."""
Choose = Callable[..., tuple[Any, int]]
"""choose(anchors, pools, *, settings, key) -> (chosen settings, held-out anchors)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """One compared method."""

    name: str
    """What a user types, such as `csa-ridge`."""
    title: str
    """What a table prints."""
    source: str
    """Citation of where it was published."""
    trust: Trust
    """What the implementation was written from."""
    notes: str = ""
    """What a reader must know: deviations, readings adopted, known weaknesses."""
    needs: Needs = dataclasses.field(default_factory=Needs)
    settings: Any
    """Default settings, a frozen dataclass; the authors' where they are known."""
    grid: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    """Settings chosen by held-out anchors, with their candidates; the first of each
    is preferred where the anchors cannot tell. Empty: nothing is tuned."""
    tuned: tuple[str, ...] = ()
    """Further settings that the method chooses by held-out anchors in its own way."""
    choose: Choose | None = None
    """That way, where it comes before the fit; None: inside the fit, or none."""
    short: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Settings of a shorter schedule for a CPU; a table that uses it says so."""
    fit: Fit
    fit_many: FitMany | None = None
    """Fits of several candidates that share their work; None: one fit each."""

    def candidates(self, settings: Any) -> list[Any]:
        """Return the settings to choose among, the preferred first."""
        values = itertools.product(*self.grid.values())
        changes = [dict(zip(self.grid, point, strict=True)) for point in values]
        return [dataclasses.replace(settings, **change) for change in changes]

    def fit_candidates(
        self,
        anchors: Anchors,
        pools: Pools,
        candidates: Sequence[Any],
        *,
        key: jax.Array,
    ) -> Iterable[Scorer]:
        """Yield the scorer of each candidate, in order."""
        if self.fit_many is not None:
            yield from self.fit_many(anchors, pools, candidates=candidates, key=key)
            return
        for settings in candidates:
            yield self.fit(anchors, pools, settings=settings, key=key)


def make_model(
    method: str,
    params: Params,
    *,
    anchors: Anchors,
    pools: Pools | None = None,
    settings: Any,
    kind: str = "students",
    side_settings: Mapping[str, Mapping[str, Any]] | None = None,
    **facts: Any,
) -> AlignedModel:
    """Return a method's fitted maps as a model.

    Args:
        method: the method's name.
        params: arrays of the maps, see `maps.KINDS[kind]`.
        anchors: what it was fitted on.
        pools: the pools, for methods that used them.
        settings: the method's settings, a frozen dataclass.
        kind: a key of `maps.KINDS`.
        side_settings: static settings of the maps, {"x": {...}, "y": {...}}.
        facts: further JSON values worth keeping in the model's config.json.
    """
    info: dict[str, Any] = {
        "method": method,
        "map": {"kind": kind, **(side_settings or {})},
        "dim_x": anchors.x.shape[1],
        "dim_y": anchors.y.shape[1],
        "n_anchors": len(anchors.x),
        "settings": dataclasses.asdict(settings),
        **facts,
    }
    if pools is not None:
        info |= {"n_pool_x": len(pools.x), "n_pool_y": len(pools.y)}
    return AlignedModel(params=params, info=info)


def numpy_rng(key: jax.Array) -> np.random.Generator:
    """Return a NumPy generator that a JAX key fixes."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def check_equal_dimensions(method: str, anchors: Anchors) -> None:
    """Raise InputError unless both sides have as many columns."""
    dx, dy = anchors.x.shape[1], anchors.y.shape[1]
    if dx != dy:
        raise InputError(
            f"{method} needs as many columns in x as in y, got {dx} and {dy}; reduce "
            f"both sides to one dimension first, or leave this method out."
        )
