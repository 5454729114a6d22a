"""A listener that passes a fit's figures on to trackers."""

from collections.abc import Mapping, Sequence
from types import TracebackType

from anchordot_jax.listeners import Listener
from anchordot_jax.tracking.trackers import Tracker


class TrackingListener:
    """Tells another listener everything, and the trackers the figures.

    Used as a context, it closes the trackers at the end.
    """

    def __init__(self, listener: Listener, trackers: Sequence[Tracker]) -> None:
        self._listener = listener
        self._trackers = tuple(trackers)

    def __enter__(self) -> "TrackingListener":
        """Return the listener."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the trackers."""
        for tracker in self._trackers:
            tracker.close()

    def selecting(self, done: int, total: int) -> None:
        """Pass it on."""
        self._listener.selecting(done, total)

    def coupling(self, iteration: int, error: float) -> None:
        """Pass it on, and log the marginal error."""
        self._listener.coupling(iteration, error)
        self.log("coupling", iteration, {"marginal_error": error})

    def training(
        self, epoch: int, epochs: int, items: int, metrics: dict[str, float]
    ) -> None:
        """Pass it on, and log an epoch's figures."""
        self._listener.training(epoch, epochs, items, metrics)
        self.log("distillation", epoch, metrics)

    def warn(self, message: str) -> None:
        """Pass it on."""
        self._listener.warn(message)

    def should_stop(self) -> bool:
        """Return what the other listener answers."""
        return self._listener.should_stop()

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Log figures of a stage."""
        for tracker in self._trackers:
            tracker.log(stage, step, values)
