"""How a fit tells the outside how it gets on."""

import warnings
from collections.abc import Callable
from typing import Protocol


class Listener(Protocol):
    """Told how a fit gets on."""

    def selecting(self, done: int, total: int) -> None:
        """Some candidates' couplings are solved."""

    def coupling(self, iteration: int, error: float) -> None:
        """A look at the marginal error."""

    def training(
        self, epoch: int, epochs: int, items: int, metrics: dict[str, float]
    ) -> None:
        """An epoch is through; `items` is the rows seen in it."""

    def warn(self, message: str) -> None:
        """Something a user should know."""

    def should_stop(self) -> bool:
        """Return whether to stop, with the state stored."""


class Silent:
    """A listener that shows nothing and passes warnings on to `warnings`."""

    def selecting(self, done: int, total: int) -> None:
        """Do nothing."""

    def coupling(self, iteration: int, error: float) -> None:
        """Do nothing."""

    def training(
        self, epoch: int, epochs: int, items: int, metrics: dict[str, float]
    ) -> None:
        """Do nothing."""

    def warn(self, message: str) -> None:
        """Issue a Python warning."""
        warnings.warn(message, stacklevel=2)

    def should_stop(self) -> bool:
        """Return False."""
        return False


def sinkhorn_reporter(listener: Listener) -> Callable[[int, float], None] | None:
    """Return what a solver calls at its checks; None for a silent listener."""
    if isinstance(listener, Silent):
        return None

    def report(iteration: int, error: float) -> None:
        listener.coupling(int(iteration), float(error))

    return report


class Interrupted(Exception):
    """The fit stopped early, on request, with its state stored."""
