"""Every setting of a fit, as frozen dataclasses; standard library only.

The text under each field is its help line on the command line.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from anchordot_jax.errors import InputError
from anchordot_jax.settings.checks import LEAST_RHO as LEAST_RHO
from anchordot_jax.settings.checks import Auto as Auto
from anchordot_jax.settings.checks import check_count as _check_count
from anchordot_jax.settings.checks import check_eta as check_eta
from anchordot_jax.settings.checks import check_gamma as check_gamma
from anchordot_jax.settings.checks import check_rho as check_rho
from anchordot_jax.settings.checks import check_setting as check_setting
from anchordot_jax.settings.checks import is_number as _is_number
from anchordot_jax.settings.checks import set_plain as _set
from anchordot_jax.settings.distillation import DistillationConfig as DistillationConfig
from anchordot_jax.settings.refined import CHOSEN as CHOSEN_REFINED
from anchordot_jax.settings.refined import RefinedConfig as RefinedConfig
from anchordot_jax.settings.refined import SoftCcaConfig as SoftCcaConfig
from anchordot_jax.settings.selection import SelectionConfig as SelectionConfig

IndexForm = Literal[
    "cosine",
    "inverted-softmax",
    "sinkhorn",
    "dual-inverted-softmax",
    "dual-sinkhorn",
]
"""How a stored gallery's scores are corrected for hubs, see `gallery_index`."""
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CouplingConfig:
    """Settings of the one entropic optimal-transport problem (Section 3.3)."""

    tolerance: float = 1e-4
    """Recipe paper: stop when the L1 error of the plan's column marginal falls below
    this; see soft_cca.tolerance."""
    max_iterations: int = 1000
    """Stop after this many Sinkhorn iterations, converged or not; a warm start by
    epsilon may take as many at each of its regularisations."""
    overrelaxation: float = 1.5
    """Step length omega of the potentials' updates; 1 is plain Sinkhorn. Falls back
    to 1 by itself when the error grows."""
    check_every: int = 10
    """Sinkhorn iterations between two looks at the marginal error."""
    cost_memory: int | None = None
    """Bytes the stored cost may take; the plan made of it takes as many, or twice as
    many with rho. Rows of the cost that do not fit are recomputed tile by tile and
    never stored. None: 1 GiB on a CPU, 0 on accelerators."""
    anderson: int | None = None
    """Iterations that Anderson acceleration extrapolates from, in the place of
    over-relaxation, which must be 1 then. None: no such acceleration."""
    warm_start: Literal["epsilon", "subsample"] | None = None
    """Potentials to start from. epsilon: of larger regularisations. subsample: of a
    quarter of both pools, extended to all rows; on one device. None: zeros, which is as
    fast at the usual eta of 0.02; at a smaller one subsample can be faster."""
    kernel: Literal["pallas"] | None = None
    """pallas: a kernel of our own for the tiles of a streamed cost; tested, but timed
    on no accelerator, and interpreted, slowly, on a CPU. None: XLA's."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        ok = _is_number(self.tolerance) and 0 < self.tolerance < 2
        check_setting(ok, "coupling.tolerance", "between 0 and 2", self.tolerance)
        _check_count("coupling.max_iterations", self.max_iterations, 1)
        _check_count("coupling.check_every", self.check_every, 1)
        ok = _is_number(self.overrelaxation) and 1 <= self.overrelaxation < 2
        check_setting(ok, "coupling.overrelaxation", "in [1, 2)", self.overrelaxation)
        if self.cost_memory is not None:
            _check_count("coupling.cost_memory", self.cost_memory, 0)
        starts, kernels = (None, "epsilon", "subsample"), (None, "pallas")
        what = "None, 'epsilon' or 'subsample'"
        known = self.warm_start in starts
        check_setting(known, "coupling.warm_start", what, self.warm_start)
        what = "None or 'pallas'"
        check_setting(self.kernel in kernels, "coupling.kernel", what, self.kernel)
        if self.anderson is None:
            return
        _check_count("coupling.anderson", self.anderson, 2)
        if self.overrelaxation != 1:
            raise InputError(
                f"coupling.anderson {self.anderson} takes the place of "
                f"over-relaxation; set coupling.overrelaxation to 1, got "
                f"{self.overrelaxation!r}."
            )
        every = min(self.check_every, self.max_iterations)
        if every <= self.anderson:
            raise InputError(
                f"coupling.anderson {self.anderson} extrapolates between two looks at "
                f"the error, so coupling.check_every must be larger, got {every}."
            )


CHOSEN = ("gamma", "eta", "rho", *CHOSEN_REFINED)
"""What held-out anchors choose, of either recipe."""
PARTS = {
    "coupling": CouplingConfig,
    "distillation": DistillationConfig,
    "selection": SelectionConfig,
    "soft_cca": SoftCcaConfig,
    "refined": RefinedConfig,
}


def _names(part: str) -> list[str]:
    return [f"{part}.{field.name}" for field in dataclasses.fields(PARTS[part])]


_IN_PLACE_OF = {
    own.replace("refined.", "distillation."): own for own in _names("refined")
} | {"coupling.tolerance": "soft_cca.tolerance"}
ONLY: dict[str, dict[str, str | None]] = {
    "paper": {
        **dict.fromkeys(("gamma", "eta", "rho", "center", "distillation.dim")),
        **dict.fromkeys(_names("selection")),
        **_IN_PLACE_OF,
    },
    "refined": {
        **dict.fromkeys([*_names("soft_cca"), *_names("refined")]),
        **{ours: paper for paper, ours in _IN_PLACE_OF.items()},
    },
}
"""Settings that one recipe alone looks at, and what the other has in their place."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of a whole fit."""

    recipe: Literal["paper", "refined"] = "refined"
    """refined: a CCA of anchors and softly matched pools, then a short training that
    starts there. paper: profiles, one transport problem, students from random weights;
    the settings from gamma to center, of selection and most of distillation are its."""
    gamma: float | Auto = "auto"
    """Recipe paper: degree of whitening of the anchor profiles, in [0, 2]; auto: chosen
    by held-out anchors."""
    eta: float | Auto = "auto"
    """Recipe paper: regularisation of the transport as a share of the median cost;
    auto: chosen by held-out anchors."""
    rho: float | str | None = None
    """Recipe paper: weight of keeping to each pool's uniform mass, as a share of the
    median cost, for pools of other distributions: items without a match then count
    less. auto: chosen by held-out anchors; inf or None: all items count the same, as in
    the paper."""
    center: bool = False
    """Recipe paper: subtract the anchors' mean from each side before the profiles."""
    seed: int = 0
    """Fixes every random draw of the fit."""
    coupling: CouplingConfig = dataclasses.field(default_factory=CouplingConfig)
    """The optimal-transport problem."""
    distillation: DistillationConfig = dataclasses.field(
        default_factory=DistillationConfig
    )
    """The student encoders; where refined has the same setting, recipe paper's."""
    selection: SelectionConfig = dataclasses.field(default_factory=SelectionConfig)
    """Recipe paper: the choice of gamma and eta, where they are auto."""
    soft_cca: SoftCcaConfig = dataclasses.field(default_factory=SoftCcaConfig)
    """The refined recipe's closed form."""
    refined: RefinedConfig = dataclasses.field(default_factory=RefinedConfig)
    """The refined recipe's training."""
    bank_size: int = 2000
    """Rows of each pool kept with the model, at most, to correct hubs; 0: none."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        known = self.recipe in ("paper", "refined")
        check_setting(known, "recipe", "'paper' or 'refined'", self.recipe)
        for name, check in (("gamma", check_gamma), ("eta", check_eta)):
            value = getattr(self, name)
            if not isinstance(value, str) or value != "auto":
                check(value)
                _set(self, name, float(value))
        if self.rho is not None and self.rho != "auto":
            check_rho(self.rho)
            rho = float(self.rho)
            # One value for the balanced problem: equal fits have equal digests.
            _set(self, "rho", None if math.isinf(rho) else rho)
        check_setting(
            isinstance(self.center, bool), "center", "True or False", self.center
        )
        for name, part in PARTS.items():
            value = getattr(self, name)
            check_setting(isinstance(value, part), name, f"a {part.__name__}", value)
        _check_count("seed", self.seed, 0)
        _set(self, "seed", int(self.seed))
        check_setting(self.seed < 2**32, "seed", "below 2**32", self.seed)
        _check_count("bank_size", self.bank_size, 0)
        if self.rho is not None and self.coupling.anderson is not None:
            raise InputError(
                f"coupling.anderson is {self.coupling.anderson}, but marginals that "
                f"rho softens are solved by plain iterations; leave out one of the two."
            )
        self._check_recipe()

    def _check_recipe(self) -> None:
        """Raise InputError for a setting that only the other recipe looks at."""
        other = "paper" if self.recipe == "refined" else "refined"
        for name, instead in ONLY[other].items():
            part, _, field = name.rpartition(".")
            owner = getattr(self, part) if part else self
            if getattr(owner, field) != getattr(type(owner), field):
                way = f"set {instead}" if instead else "leave it out"
                raise InputError(
                    f"{name} has no effect on recipe {self.recipe}; {way}, or take "
                    f"recipe {other}."
                )
        if self.recipe == "refined":
            least, name = 1 / self.refined.temperature, "distillation.max_logit_scale"
            most = self.distillation.max_logit_scale
            what = f">= 1/refined.temperature = {least:.4g}"
            check_setting(most >= least, name, what, most)

    def training(self) -> DistillationConfig:
        """Return the students' training of this recipe."""
        if self.recipe == "paper":
            return self.distillation
        return dataclasses.replace(
            self.distillation, **dataclasses.asdict(self.refined)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as nested dictionaries of JSON values."""
        return json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Config":
        """Return the config of `to_dict`'s form; missing fields take their default.

        Raises:
            InputError: a field that no config has, or a value out of range.
        """
        values = dict(values)
        for name, part in PARTS.items():
            if name in values:
                values[name] = _from_dict(part, values[name], f"{name}.")
        return _from_dict(cls, values, "")

    def digest(self) -> str:
        """Return 16 hexadecimal digits that change when a setting changes."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _from_dict(cls: type[T], values: Mapping[str, Any], prefix: str) -> T:
    if not isinstance(values, Mapping):
        raise InputError(f"{prefix or 'config'} must hold settings, got {values!r}.")
    names = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    unknown = sorted(set(values) - names)
    if unknown:
        raise InputError(
            f"Unknown setting {prefix}{unknown[0]}; known are: "
            f"{', '.join(sorted(names))}."
        )
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
