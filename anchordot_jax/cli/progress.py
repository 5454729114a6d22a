"""Progress on a terminal: one bar a stage, nothing elsewhere."""

import signal
import sys
from types import FrameType, TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class TerminalListener:
    """Shows a fit's stages on stderr, and turns Ctrl-C into an orderly stop.

    The bars appear only where stderr is a terminal. The first SIGINT or SIGTERM asks
    the fit to stop where it can be resumed (after a candidate of the selection, or with
    its state stored after an epoch); a second one ends it at once.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._shown = console.is_terminal and not quiet
        self._progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not self._shown,
        )
        self._tasks: dict[str, TaskID] = {}
        self._stop = False
        self._handlers: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> "TerminalListener":
        """Start the display and catch the signals."""
        self._progress.start()
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the display and give the signals back."""
        self._progress.stop()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def selecting(self, done: int, total: int) -> None:
        """Show how many candidates are solved."""
        self._update("selection", done, total, f"{done}/{total} candidates")

    def coupling(self, iteration: int, error: float) -> None:
        """Show the iteration and its marginal error."""
        note = f"iteration {iteration}, marginal error {error:.1e}"
        self._update("coupling", None, None, note)

    def training(
        self, epoch: int, epochs: int, items: int, metrics: dict[str, float]
    ) -> None:
        """Show the losses beside chance, and the speed."""
        task = self._tasks.get("distillation")
        elapsed = self._progress.tasks[task].elapsed if task is not None else None
        speed = f", {(epoch - 1) * items / elapsed:,.0f} items/s" if elapsed else ""
        note = (
            f"loss {metrics['pool_loss']:.3f} (chance {metrics['chance_loss']:.2f}), "
            f"anchors {metrics['anchor_loss']:.3f}{speed}"
        )
        self._update("distillation", epoch, epochs, note)

    def warn(self, message: str) -> None:
        """Print a warning line."""
        self._progress.console.print(f"warning: {message}", highlight=False)

    def should_stop(self) -> bool:
        """Return whether a signal asked for an orderly stop."""
        return self._stop

    def _update(
        self, stage: str, done: int | None, total: int | None, note: str
    ) -> None:
        if not self._shown:
            return
        if stage not in self._tasks:
            for task in self._tasks.values():
                self._progress.update(task, total=1, completed=1)
            self._tasks[stage] = self._progress.add_task(stage, total=total, note="")
        self._progress.update(self._tasks[stage], completed=done, note=note)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stop:
            raise KeyboardInterrupt
        self._stop = True
        print(
            "anchordot: stopping where it can be resumed; once more to stop at once.",
            file=sys.stderr,
        )


class ExtractionListener:
    """Shows how far an extraction is, its rate and the time left, on stderr."""

    def __init__(self, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:<2}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._begun: dict[str, int] = {}

    def __enter__(self) -> "ExtractionListener":
        """Start the display."""
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the display."""
        self._progress.stop()

    def begin(self, side: str, done: int, total: int | None) -> None:
        """Show a new bar, from where an earlier run stopped."""
        self._begun[side] = done
        self._tasks[side] = self._progress.add_task(
            side, total=total, completed=done, note="first batch"
        )

    def advance(self, side: str, done: int, rows: int, refused: int) -> None:
        """Show the items done, their rate, and how many were left out."""
        task = self._tasks[side]
        elapsed = self._progress.tasks[task].elapsed
        rate = (done - self._begun[side]) / elapsed if elapsed else 0.0
        note = f"{done} items, {rate:,.1f}/s" + f", {refused} left out" * bool(refused)
        total = self._progress.tasks[task].total
        # A record can hold several captions; their number shows on the way.
        if total is not None and done > total:
            self._progress.update(task, total=None)
        self._progress.update(task, completed=done, note=note)

    def warn(self, message: str) -> None:
        """Print a warning line."""
        self._progress.console.print(f"warning: {message}", highlight=False)
