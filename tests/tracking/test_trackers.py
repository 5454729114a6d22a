"""Which trackers a fit has, and what a tracking listener passes on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from anchordot_jax.errors import InputError
from anchordot_jax.tracking import trackers
from anchordot_jax.tracking.listening import TrackingListener
from anchordot_jax.tracking.trackers import open_trackers, tracker_names
from planted import StopAfter


class Recorder:
    """A tracker that keeps what it is told."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.opened = folder, dict(config)
        self.logged: list[tuple[str, int, dict[str, float]]] = []
        self.closed = False

    @staticmethod
    def check() -> None:
        """Find nothing missing."""

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Keep it."""
        self.logged.append((stage, step, dict(values)))

    def close(self) -> None:
        """Note it."""
        self.closed = True


def test_names_are_words_or_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commas and blanks both separate; a name given twice counts once."""
    known = {"tensorboard": Recorder, "wandb": Recorder}
    monkeypatch.setattr(trackers, "TRACKERS", known)
    assert tracker_names(()) == ()
    assert tracker_names(("tensorboard,wandb",)) == ("tensorboard", "wandb")
    assert tracker_names(("wandb", " tensorboard, wandb")) == ("wandb", "tensorboard")


def test_a_tracker_that_is_not_there_is_an_input_error() -> None:
    """The sentence can be caught as one."""
    with pytest.raises(InputError, match=r"metrics\.jsonl is always written"):
        tracker_names(("csv",))


def test_the_listener_passes_everything_on(tmp_path: Path) -> None:
    """The other listener hears what it would have heard, the trackers the figures."""
    shown = StopAfter(2)
    recorder = Recorder(tmp_path, {})
    with TrackingListener(shown, [recorder]) as listener:
        listener.selecting(1, 4)
        listener.coupling(10, 0.5)
        listener.training(1, 2, 30, {"pool_loss": 3.0})
        assert not listener.should_stop()
        listener.training(2, 2, 30, {"pool_loss": 2.0})
        assert listener.should_stop()
        with pytest.warns(UserWarning, match="a word"):
            listener.warn("a word")
        assert not recorder.closed
    assert shown.epochs == [1, 2]
    assert recorder.closed
    assert recorder.logged == [
        ("coupling", 10, {"marginal_error": 0.5}),
        ("distillation", 1, {"pool_loss": 3.0}),
        ("distillation", 2, {"pool_loss": 2.0}),
    ]


def test_trackers_write_below_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is opened with the run folder and the settings."""
    monkeypatch.setattr(trackers, "TRACKERS", {"wandb": Recorder})
    (opened,) = open_trackers(["wandb"], tmp_path, {"seed": 3})
    assert isinstance(opened, Recorder)
    assert opened.opened == (tmp_path, {"seed": 3})
