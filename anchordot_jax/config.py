"""Every setting of a fit, as frozen dataclasses; standard library only.

The text under each field is its help line on the command line.
"""

import dataclasses
import hashlib
import json
import math
import numbers
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from anchordot_jax.errors import InputError

Auto = Literal["auto"]
IndexForm = Literal[
    "cosine",
    "inverted-softmax",
    "sinkhorn",
    "dual-inverted-softmax",
    "dual-sinkhorn",
]
"""How a stored gallery's scores are corrected for hubs, see `gallery_index`."""
T = TypeVar("T")

LEAST_RHO = 1e-3


def check_setting(condition: bool, name: str, expected: str, got: object) -> None:
    """Raise InputError, naming the setting, unless the condition holds."""
    if not condition:
        raise InputError(f"{name} must be {expected}, got {got!r}.")


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return math.isfinite(value)


def _set(config: object, name: str, value: object) -> None:
    """Give a field its plain Python value: equal settings then have equal digests."""
    object.__setattr__(config, name, value)


def _check_count(name: str, value: object, least: int) -> None:
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    check_setting(whole and value >= least, name, f"a whole number >= {least}", value)  # type: ignore[operator]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CouplingConfig:
    """Settings of the one entropic optimal-transport problem (Section 3.3)."""

    tolerance: float = 1e-4
    """Stop when the L1 error of the plan's column marginal falls below this."""
    max_iterations: int = 1000
    """Stop after this many Sinkhorn iterations, converged or not."""
    overrelaxation: float = 1.5
    """Step length omega of the potentials' updates; 1 is plain Sinkhorn. Falls back
    to 1 by itself when the error grows."""
    check_every: int = 10
    """Sinkhorn iterations between two looks at the marginal error."""
    cost_memory: int | None = None
    """Bytes the stored cost may take; the plan made of it takes as many. Rows of the
    cost that do not fit are recomputed tile by tile and never stored. None: 1 GiB on a
    CPU, 0 on accelerators."""
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationConfig:
    """Settings of the two student encoders and their training (Section 3.4)."""

    dim: int = 1024
    """Dimension of the shared space."""
    epochs: int = 200
    """Passes over the pools."""
    chunk_size: int = 2000
    """Rows of each pool in one gradient step (each row's number of candidates)."""
    learning_rate: float = 1e-3
    """Adam's step size after the warm-up."""
    weight_decay: float = 1e-2
    """Decoupled weight decay, on the two weight matrices only."""
    warmup_steps: int = 200
    """Steps over which the learning rate rises linearly."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate after the warm-up."""
    temperature: float = 0.07
    """Initial temperature; the logit scale 1/temperature is learned."""
    max_logit_scale: float = 100.0
    """Upper limit of the learned logit scale."""
    redraw_chunks: bool = True
    """Draw the chunks anew each epoch; off: only their order changes."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        _check_count("distillation.dim", self.dim, 1)
        _check_count("distillation.epochs", self.epochs, 1)
        _check_count("distillation.chunk_size", self.chunk_size, 2)
        _check_count("distillation.warmup_steps", self.warmup_steps, 0)
        for name in ("learning_rate", "temperature"):
            value = getattr(self, name)
            ok = _is_number(value) and value > 0
            check_setting(ok, f"distillation.{name}", "> 0", value)
        ok = _is_number(self.weight_decay) and self.weight_decay >= 0
        check_setting(ok, "distillation.weight_decay", ">= 0", self.weight_decay)
        known = self.schedule in ("constant", "cosine")
        what = "'constant' or 'cosine'"
        check_setting(known, "distillation.schedule", what, self.schedule)
        least = 1 / self.temperature
        ok = _is_number(self.max_logit_scale) and self.max_logit_scale >= least
        what = f">= 1/temperature = {least:.4g}"
        check_setting(ok, "distillation.max_logit_scale", what, self.max_logit_scale)


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
            _set(self, name, tuple(float(value) for value in values))
        known = self.rule in ("one_standard_error", "paper")
        what = "'one_standard_error' or 'paper'"
        check_setting(known, "selection.rule", what, self.rule)
        ok = _is_number(self.heldout) and 0 < self.heldout <= 0.5
        check_setting(ok, "selection.heldout", "in (0, 0.5]", self.heldout)
        _check_count("selection.min_heldout", self.min_heldout, 1)
        if self.pool_limit is not None:
            _check_count("selection.pool_limit", self.pool_limit, 1)
        if self.rhos is not None:
            ok = isinstance(self.rhos, tuple | list) and len(self.rhos) > 0
            check_setting(ok, "selection.rhos", "several numbers, not empty", self.rhos)
            for value in self.rhos:
                ok = _is_number(value) and value >= LEAST_RHO
                what = f"numbers >= {LEAST_RHO:g}"
                check_setting(ok, "selection.rhos", what, value)
            _set(self, "rhos", tuple(float(value) for value in self.rhos))


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
    """Candidates for ridge_ratio. None: 0.06 to 0.5, from 300 anchors on; else 0.015 to
    0.25."""
    sharpnesses: tuple[float, ...] = (3.0, 4.5, 6.0)
    """Candidates for sharpness."""
    folds: int = 5
    """Parts of the anchors, each held out once."""
    gallery: int = 500
    """Pool items of each side that the held-out anchors are ranked among."""
    pool_limit: int | None = 2000
    """Rows of each pool matched for the choice (a random subset); None: all of them."""
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
                _check_positive(f"soft_cca.{name}", value)
                _set(self, name, float(value))
            values = getattr(self, many)
            if values is None and many != "sharpnesses":
                continue
            ok = isinstance(values, tuple | list) and len(values) > 0
            what = "several numbers, not empty"
            check_setting(ok, f"soft_cca.{many}", what, values)
            for value in values:
                _check_positive(f"soft_cca.{many}", value)
            _set(self, many, tuple(float(value) for value in values))
        _check_count("soft_cca.folds", self.folds, 2)
        _check_count("soft_cca.gallery", self.gallery, 1)
        if self.pool_limit is not None:
            _check_count("soft_cca.pool_limit", self.pool_limit, 1)
        ok = _is_number(self.tolerance) and 0 < self.tolerance < 2
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
        _check_count("refined.epochs", self.epochs, 1)
        _check_count("refined.warmup_steps", self.warmup_steps, 0)
        _check_positive("refined.learning_rate", self.learning_rate)
        _check_positive("refined.temperature", self.temperature)


def _check_positive(name: str, value: object) -> None:
    check_setting(_is_number(value) and value > 0, name, "a number > 0", value)  # type: ignore[operator]


def check_gamma(value: object, name: str = "gamma") -> None:
    """Raise InputError unless the value is a number in [0, 2]."""
    ok = _is_number(value) and 0 <= value <= 2  # type: ignore[operator]
    check_setting(ok, name, "a number in [0, 2]", value)


def check_eta(value: object, name: str = "eta") -> None:
    """Raise InputError unless the value is a number in [1e-4, 10]."""
    ok = _is_number(value) and 1e-4 <= value <= 10  # type: ignore[operator]
    check_setting(ok, name, "a number in [0.0001, 10] (0.02 is usual)", value)


def check_rho(value: object, name: str = "rho") -> None:
    """Raise InputError unless the value is a number in [0.001, inf]."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    ok = number and value >= LEAST_RHO  # type: ignore[operator]
    what = f"auto, inf, or a number >= {LEAST_RHO:g} (0.1 to 1 is usual)"
    check_setting(ok, name, what, value)


PARTS = {
    "coupling": CouplingConfig,
    "distillation": DistillationConfig,
    "selection": SelectionConfig,
    "soft_cca": SoftCcaConfig,
    "refined": RefinedConfig,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of a whole fit."""

    recipe: Literal["paper", "refined"] = "paper"
    """paper: profiles, one transport problem, students from random weights. refined: a
    CCA of anchors and softly matched pools, then a short training that starts there."""
    gamma: float | Auto = "auto"
    """Degree of whitening of the anchor profiles, in [0, 2]; auto: chosen by held-out
    anchors."""
    eta: float | Auto = "auto"
    """Regularisation of the transport as a share of the median cost; auto: chosen by
    held-out anchors."""
    rho: float | str | None = None
    """Weight of keeping to each pool's uniform mass, as a share of the median cost, for
    pools of other distributions: items without a match then count less. auto: chosen by
    held-out anchors; inf or None: all items count the same, as in the paper."""
    center: bool = False
    """Subtract the anchors' mean from each side before the profiles."""
    seed: int = 0
    """Fixes every random draw of the fit."""
    coupling: CouplingConfig = dataclasses.field(default_factory=CouplingConfig)
    """The optimal-transport problem."""
    distillation: DistillationConfig = dataclasses.field(
        default_factory=DistillationConfig
    )
    """The student encoders."""
    selection: SelectionConfig = dataclasses.field(default_factory=SelectionConfig)
    """The choice of gamma and eta, where they are auto."""
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
        if self.recipe == "refined":
            self._check_only_paper()

    def _check_only_paper(self) -> None:
        """Raise InputError for settings that this recipe would not look at."""
        settings = {"gamma": "auto", "eta": "auto", "rho": None, "center": False}
        for name, unset in settings.items():
            if getattr(self, name) != unset:
                raise InputError(
                    f"{name} is a setting of the paper's recipe and has no effect on "
                    f"recipe refined; leave it out, or take recipe paper."
                )
        usual = DistillationConfig()
        for name in (
            "dim",
            *(field.name for field in dataclasses.fields(self.refined)),
        ):
            if getattr(self.distillation, name) != getattr(usual, name):
                instead = "leave it out" if name == "dim" else f"set refined.{name}"
                raise InputError(
                    f"distillation.{name} has no effect on recipe refined; {instead}, "
                    f"or take recipe paper."
                )

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
