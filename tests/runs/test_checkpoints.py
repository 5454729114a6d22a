"""Checkpoints: the training state comes back bit by bit."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anchordot_jax import DistillationConfig
from anchordot_jax.distillation import TrainState, init_training
from anchordot_jax.runs import checkpoints

SETTINGS = DistillationConfig(dim=8)


def state_of(seed: int, epoch: int) -> TrainState:
    """Return a state as after some epochs, its numbers drawn by the seed."""
    state = init_training(12, 9, SETTINGS, total_steps=9, key=jax.random.key(seed))
    noise = np.random.default_rng(seed)
    noisy: TrainState = jax.tree.map(
        lambda leaf: leaf + jnp.asarray(noise.integers(1, 9, leaf.shape), leaf.dtype),
        state,
    )
    return noisy._replace(epoch=jnp.asarray(epoch, jnp.int32))


def assert_same(one: TrainState, other: TrainState) -> None:
    """Assert that two states have the same tree, types and numbers."""
    (left, left_tree), (right, right_tree) = map(jax.tree.flatten, (one, other))
    assert str(left_tree) == str(right_tree)
    for a, b in zip(left, right, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_a_state_survives_a_round_trip(tmp_path: Path) -> None:
    """Parameters, optimiser state and epoch are the same; the template's are not."""
    state, template = state_of(0, 3), state_of(1, 0)
    checkpoints.save_checkpoint(tmp_path / "c", state)
    restored = checkpoints.restore_checkpoint(tmp_path / "c", template)
    assert restored is not None
    assert_same(restored, state)


def test_the_newest_state_is_restored_and_two_are_kept(tmp_path: Path) -> None:
    """Older checkpoints are deleted."""
    for epoch in (1, 2, 4, 7):
        checkpoints.save_checkpoint(tmp_path / "c", state_of(epoch, epoch))
    restored = checkpoints.restore_checkpoint(tmp_path / "c", state_of(0, 0))
    assert restored is not None
    assert_same(restored, state_of(7, 7))
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["4", "7"]


def test_without_a_checkpoint_there_is_no_state(tmp_path: Path) -> None:
    """A missing and an empty folder give None, and are left as they are."""
    assert checkpoints.restore_checkpoint(tmp_path / "c", state_of(0, 0)) is None
    assert not (tmp_path / "c").exists()
    (tmp_path / "c").mkdir()
    assert checkpoints.restore_checkpoint(tmp_path / "c", state_of(0, 0)) is None


def test_a_relative_folder_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint library wants absolute paths; callers need not."""
    monkeypatch.chdir(tmp_path)
    checkpoints.save_checkpoint(Path("c"), state_of(0, 5))
    restored = checkpoints.restore_checkpoint(Path("c"), state_of(1, 0))
    assert restored is not None
    assert int(restored.epoch) == 5
