"""Settings of the unbalanced transport problem; standard library only."""

import dataclasses
import math
import numbers

from anchordot_jax.config import check_setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnbalancedConfig:
    """Settings of one unbalanced entropic transport problem."""

    epsilon: float = 0.08
    """Weight of the coupling's complexity KL(pi | ab^T), in units of the cost."""
    rho: float = 0.8
    """Weight of the x marginal's variation KL(pi 1 | a), in units of the cost; inf
    forbids any."""
    rho_y: float | None = None
    """The same for the y marginal; None: as --rho."""
    threshold: float = 1e-7
    """Stop when the iterations between two checks move both potentials by less than
    this, on average, in units of the cost."""
    max_iterations: int = 5000
    """Stop after this many iterations, converged or not; in steps of --check-every."""
    check_every: int = 10
    """Iterations between two looks at the error."""
    cost_memory: int | None = None
    """Bytes the stored cost may take; the plan made of it takes twice as many. Rows of
    the cost that do not fit are recomputed tile by tile and never stored. None: 1 GiB
    on a CPU, 0 on accelerators."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        _check_positive("epsilon", self.epsilon)
        _check_positive("rho", self.rho, infinite=True)
        if self.rho_y is not None:
            _check_positive("rho_y", self.rho_y, infinite=True)
        _check_positive("threshold", self.threshold)
        for name in ("max_iterations", "check_every"):
            _check_count(name, getattr(self, name), 1)
        if self.cost_memory is not None:
            _check_count("cost_memory", self.cost_memory, 0)

    @property
    def rhos(self) -> tuple[float, float]:
        """The weights of the x and the y marginal."""
        return self.rho, self.rho if self.rho_y is None else self.rho_y


def _check_positive(name: str, value: object, *, infinite: bool = False) -> None:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    ok = number and value > 0 and (infinite or math.isfinite(value))  # type: ignore[operator, arg-type]
    check_setting(ok, name, "a number > 0", value)


def _check_count(name: str, value: object, least: int) -> None:
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    check_setting(whole and value >= least, name, f"a whole number >= {least}", value)  # type: ignore[operator]
