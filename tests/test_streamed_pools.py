"""Pools that stay in their files: the fit of pools in memory, and what is refused."""

import dataclasses
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest

from anchordot_jax import AlignedModel, AnchorDOT, Config, open_embeddings
from anchordot_jax.alignment import FitResult, fit_data, run_identity
from anchordot_jax.config import DistillationConfig
from anchordot_jax.data import Split, split_by_exclusion
from anchordot_jax.data.formats.base import RowGroups
from anchordot_jax.data.stored_pool import StoredPool, blocks, open_pool
from anchordot_jax.errors import InputError
from anchordot_jax.fit_files import read_fit_data
from anchordot_jax.fit_inputs import FitData
from anchordot_jax.listeners import Interrupted, Silent
from anchordot_jax.parallel.mesh import make_mesh
from anchordot_jax.runs.run_folder import RunFolder
from anchordot_jax.runs.sources import Sources
from anchordot_jax.selection import _draws, subset_rows
from anchordot_jax.stages import pool_memory
from anchordot_jax.stages.choosing import choose
from anchordot_jax.stages.pool_memory import (
    control_group_limits,
    granted,
    is_streamed,
)
from anchordot_jax.stages.task import Task
from anchordot_jax.training.prefetch import prefetched
from planted import (
    CONFIG,
    N_X,
    N_Y,
    StopAfter,
    environment,
    leaves,
    problem,
    same_model,
)

GIVEN = problem()
SPLIT = split_by_exclusion(GIVEN.pairs, GIVEN.test_pairs, N_X, N_Y)


def with_memory(limit: int | None, **changes: Any) -> Config:
    """Return the planted problem's settings with a limit for the pools."""
    training = dataclasses.replace(CONFIG.distillation, pool_memory=limit, **changes)
    return dataclasses.replace(CONFIG, distillation=training)


STREAMED = with_memory(0)
BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "streamed_pools.py"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """Return an HDF5 file in chunks of 7 rows, and a .npy file."""
    folder = tmp_path_factory.mktemp("stored")
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("embeddings", data=GIVEN.x, chunks=(7, GIVEN.x.shape[1]))
    np.save(folder / "y.npy", GIVEN.y)
    return Sources(str(folder / "x.h5"), str(folder / "y.npy"), None, None, None, None)


def read(sources: Sources, memory: int | None, split: Split = SPLIT) -> FitData:
    """Return what a fit sees of the files."""
    return read_fit_data(sources, split, memory=memory)


@pytest.fixture(scope="module")
def streamed(sources: Sources) -> FitResult:
    """Return a fit whose pools stay in their files."""
    with jax.numpy_rank_promotion("raise"):
        return fit_data(read(sources, 0), STREAMED)


def close(one: AlignedModel, other: AlignedModel) -> None:
    """Check that two models have the same parameters to float32 rounding."""
    a, b = leaves(one), leaves(other)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-4, atol=2e-5, err_msg=name)


def test_streamed_pools_lead_to_the_same_model(
    sources: Sources, streamed: FitResult
) -> None:
    """Twenty epochs of the same chunks: choice, potentials and parameters agree."""
    resident = fit_data(read(sources, None), with_memory(None))
    assert isinstance(read(sources, 0).pool_x, StoredPool)
    assert isinstance(read(sources, None).pool_x, np.ndarray)
    close(streamed.model, resident.model)
    for name in ("gamma", "eta"):
        assert getattr(streamed.selection, name) == getattr(resident.selection, name)
    ours, theirs = streamed.coupling, resident.coupling
    np.testing.assert_allclose(ours.f, theirs.f, rtol=1e-5, atol=1e-6)
    assert streamed.model.bank is not None
    assert resident.model.bank is not None
    np.testing.assert_allclose(
        streamed.model.bank.x, resident.model.bank.x, rtol=0, atol=2e-3
    )


def test_the_chunks_are_those_of_resident_pools(sources: Sources) -> None:
    """Other chunks would lead elsewhere: the check above can fail."""
    other = dataclasses.replace(STREAMED, seed=1)
    moved = fit_data(read(sources, 0), other)
    with pytest.raises(AssertionError):
        close(moved.model, fit_data(read(sources, None), with_memory(None)).model)


def test_pools_in_memory_are_streamed_to_the_device(streamed: FitResult) -> None:
    """Arrays above the limit go to the device chunk by chunk, with the same bits."""
    data = FitData(
        GIVEN.x[SPLIT.anchors[:, 0]],
        GIVEN.y[SPLIT.anchors[:, 1]],
        GIVEN.x[SPLIT.pool_x],
        GIVEN.y[SPLIT.pool_y],
    )
    assert is_streamed(data, STREAMED)
    assert not is_streamed(data, with_memory(4 * (data.pool_x.size + data.pool_y.size)))
    assert same_model(fit_data(data, STREAMED).model, streamed.model)


def test_a_streamed_fit_resumes_to_the_same_bits(
    sources: Sources, streamed: FitResult, tmp_path: Path
) -> None:
    """Stopped after epoch 7 and started again, it ends where it would have."""
    run = RunFolder.open(tmp_path / "run", {"any": "identity"})
    with pytest.raises(Interrupted, match="epoch 7 of 20"):
        fit_data(read(sources, 0), STREAMED, run=run, listener=StopAfter(7))
    later = StopAfter()
    resumed = fit_data(read(sources, 0), STREAMED, run=run, listener=later)
    assert later.epochs == list(range(8, 21))
    assert same_model(resumed.model, streamed.model)


def test_a_file_that_changes_stops_the_fit_in_a_sentence(
    sources: Sources, tmp_path: Path
) -> None:
    """What the reading thread meets is said as ever, and the thread has ended."""
    np.save(tmp_path / "y.npy", GIVEN.y)

    class Shortens(Silent):
        def training(self, *told: Any) -> None:
            """Replace the file once an epoch is over."""
            np.save(tmp_path / "y.npy", GIVEN.y[:, :4])

    changing = sources._replace(y=str(tmp_path / "y.npy"))
    data = read(changing, 0)
    with pytest.raises(InputError, match=r"y\.npy changed while in use") as caught:
        fit_data(data, STREAMED, listener=Shortens())
    assert "\n" not in str(caught.value)
    assert not any(one.name.startswith("prefetch") for one in threading.enumerate())


@pytest.mark.parametrize(("value", "what"), [(np.nan, "NaN"), (0.0, "only zeros")])
def test_every_streamed_row_is_looked_at(
    value: float, what: str, sources: Sources, tmp_path: Path
) -> None:
    """A bad row is named by its number in the file, whatever block it is in."""
    spoilt = GIVEN.y.copy()
    row = int(SPLIT.pool_y[-1])
    spoilt[row] = value
    np.save(tmp_path / "y.npy", spoilt)
    given = sources._replace(y=str(tmp_path / "y.npy"))
    with pytest.raises(InputError, match=rf"y\.npy has 1 row with {what}.*\(row {row}"):
        read(given, 0)


def test_the_digest_does_not_know_where_pools_lie(sources: Sources) -> None:
    """A run of resident pools is resumed with streamed ones, and the other way."""
    assert read(sources, 0).digest() == read(sources, None).digest()


def test_rows_of_a_stored_pool() -> None:
    """Rows come in the order asked for, blocks cover all of them in turn."""
    array = np.arange(24, dtype=np.float32).reshape(8, 3)
    parts = list(blocks(array, 5))
    assert [start for start, _ in parts] == [0, 5]
    np.testing.assert_array_equal(np.concatenate([part for _, part in parts]), array)


def test_stored_rows_are_those_of_the_pool(sources: Sources) -> None:
    """Numbers count within the pool, not within the file."""
    pool = open_pool(open_embeddings(sources.x), SPLIT.pool_x)
    assert (len(pool), pool.shape) == (len(SPLIT.pool_x), (len(SPLIT.pool_x), 12))
    asked = np.array([3, 0, 3])
    np.testing.assert_array_equal(pool[asked], GIVEN.x[SPLIT.pool_x[asked]])
    whole = open_pool(open_embeddings(sources.x), None)
    np.testing.assert_array_equal(whole[asked], GIVEN.x[asked])


def test_the_choice_looks_at_the_same_rows(sources: Sources) -> None:
    """With a limit, the rows read beforehand are those that `select` would take."""
    config = dataclasses.replace(
        CONFIG, selection=dataclasses.replace(CONFIG.selection, pool_limit=10)
    )
    data, key = read(sources, None), jax.random.key(3)
    x, y = data.whole_pools("This test")
    rows_x, rows_y = subset_rows(len(x), len(y), config, key=key)
    assert rows_x is not None
    assert rows_y is not None
    anchors = data.anchors_x, data.anchors_y
    whole, part = (
        next(_draws(*anchors, *pools, config=config, key=key))
        for pools in ((x, y), (x[rows_x], y[rows_y]))
    )
    assert len(whole.x) == len(whole.y) == 10 + whole.n_heldout
    np.testing.assert_array_equal(whole.x, part.x)
    np.testing.assert_array_equal(whole.y, part.y)


def test_what_needs_whole_pools_is_refused(sources: Sources, tmp_path: Path) -> None:
    """Several devices, the refined recipe, a choice without a limit, archives."""
    data, mesh = read(sources, 0), make_mesh("1")
    with pytest.raises(InputError, match="pool_memory is for one device"):
        granted(STREAMED, mesh)
    for config, devices, what in (
        (Config(), None, "Recipe refined needs both pools in memory.*; give arrays"),
        # No advice of a limit, which is refused with a mesh.
        (Config(), mesh, "A fit over several devices needs both pools in memory"),
    ):
        with pytest.raises(InputError, match=what):
            fit_data(data, config, mesh=devices)
    few = Config(distillation=DistillationConfig(pool_memory=1000))
    what = r"takes both pools in memory, and here they are .* more than the 1e-06 GB of"
    # What was fitted before can be looked at: only the start of a fit is refused.
    assert not is_streamed(read(sources, None), few)
    with pytest.raises(InputError, match=what):
        AnchorDOT(few).fit(GIVEN.x, GIVEN.y, GIVEN.pairs, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    free = dataclasses.replace(CONFIG.selection, pool_limit=None)
    with pytest.raises(InputError, match=r"^selection\.pool_limit is None"):
        fit_data(data, dataclasses.replace(STREAMED, selection=free))


def test_archives_are_refused_only_above_a_limit_that_was_set(
    sources: Sources, tmp_path: Path
) -> None:
    """Else they are read whole, and the other pool stays in its file all the same."""
    np.savez(tmp_path / "y.npz", embeddings=GIVEN.y)
    given = sources._replace(y=str(tmp_path / "y.npz"))
    size = 4 * 12 * len(SPLIT.pool_x) + 4 * GIVEN.y.shape[1] * len(SPLIT.pool_y)
    what = rf"Both pools take {size} bytes as float32, more than the 9 of .*y\.npz"
    with pytest.raises(InputError, match=what):
        read_fit_data(given, SPLIT, memory=9, strict=True)
    assert isinstance(
        read_fit_data(given, SPLIT, memory=size, strict=True).pool_y, np.ndarray
    )
    found = read_fit_data(given, SPLIT, memory=9)
    assert isinstance(found.pool_x, StoredPool)
    np.testing.assert_array_equal(found.pool_y, GIVEN.y[SPLIT.pool_y])


def test_nothing_is_read_where_nothing_is_chosen(sources: Sources) -> None:
    """Given gamma and eta, or few anchors, even without a limit of its rows."""
    data = read(sources, 0)
    free = dataclasses.replace(CONFIG.selection, pool_limit=None)
    open_choice = dataclasses.replace(STREAMED, selection=free)
    given = dataclasses.replace(open_choice, gamma=0.5, eta=0.05)
    few = data._replace(
        anchors_x=data.anchors_x[:9],
        anchors_y=data.anchors_y[:9],
        pool_x=Unread(data.pool_x.source, data.pool_x.rows),
    )
    unread = few._replace(anchors_x=data.anchors_x, anchors_y=data.anchors_y)
    assert choose(Task.of(unread, given)).gamma == 0.5
    for config in (open_choice, STREAMED):
        assert choose(Task.of(few, config)).reason.startswith("9 anchors are too few")
    with pytest.raises(AssertionError, match="rows were read"):
        choose(Task.of(unread, STREAMED))


class Unread(StoredPool):
    """A pool of which no row may be read."""

    def __getitem__(self, numbers: np.ndarray) -> np.ndarray:
        """Fail."""
        raise AssertionError("rows were read")


@pytest.mark.parametrize("rows", [None, SPLIT.pool_x])
def test_a_file_is_opened_once_for_all_blocks(
    rows: np.ndarray | None, sources: Sources
) -> None:
    """All of its rows, or some of them, come from one pass."""
    source, opened = open_embeddings(sources.x), []

    def scan(path: Path, name: str, groups: RowGroups) -> Iterator[np.ndarray]:
        opened.append(len(groups))
        return source.format.scan(path, name, groups)

    counted = dataclasses.replace(source, format=source.format._replace(scan=scan))
    found = list(blocks(StoredPool(counted, rows), 5))
    expected = GIVEN.x if rows is None else GIVEN.x[rows]
    assert opened == [-(-len(expected) // 5)]
    assert [start for start, _ in found] == list(range(0, len(expected), 5))
    np.testing.assert_array_equal(np.concatenate([b for _, b in found]), expected)


def test_rows_gone_through_once_must_ascend(sources: Sources) -> None:
    """Formats read groups that ascend; others are refused, not read wrongly."""
    source = open_embeddings(sources.x)
    for rows in ([3, 2], [2, 2]):
        with pytest.raises(InputError, match="must ascend without duplicates"):
            next(source.iter_blocks(5, rows))


def test_a_fit_tells_once_that_it_streams(sources: Sources) -> None:
    """Where no limit was set; who set one is not told."""

    class Notes(StopAfter):
        def __init__(self) -> None:
            super().__init__(1)
            self.warnings: list[str] = []

        def warn(self, message: str) -> None:
            """Note the warning."""
            self.warnings.append(message)

    told, quiet = Notes(), Notes()
    data = read(sources, 0)
    for listener, memory in ((told, None), (quiet, 0)):
        with pytest.raises(Interrupted):
            fit_data(data, with_memory(memory), listener=listener)
    size = 4 * (data.pool_x.shape[0] * 12 + np.prod(data.pool_y.shape)) / 1e9
    assert told.warnings == [
        f"Pools of {size:.3g} GB are read from their files chunk by chunk; "
        f"--distillation.pool-memory sets the limit."
    ]
    assert quiet.warnings == []


@pytest.mark.parametrize("stored", [None, "older"])
def test_a_run_goes_on_with_streamed_pools(
    stored: str | None, sources: Sources, streamed: FitResult, tmp_path: Path
) -> None:
    """A run of resident pools, also one from before the setting, is continued."""
    resident, data = with_memory(None), read(sources, None)
    identity = run_identity(data, resident)
    if stored == "older":
        del identity["config"]["distillation"]["pool_memory"]
    run = RunFolder.open(tmp_path / "run", identity)
    with pytest.raises(Interrupted):
        fit_data(data, resident, run=run, listener=StopAfter(7))
    later, kept = StopAfter(), read(sources, 0)
    run = RunFolder.open(tmp_path / "run", run_identity(kept, STREAMED))
    close(fit_data(kept, STREAMED, run=run, listener=later).model, streamed.model)
    assert later.epochs == list(range(8, 21))
    other = run_identity(kept, with_memory(0, epochs=21))
    with pytest.raises(InputError, match=r"another config\.distillation\.epochs"):
        RunFolder.open(tmp_path / "run", other)


@pytest.mark.parametrize(
    ("membership", "files", "limits"),
    [
        ("0::/a/b\n", {"memory.max": "7\n", "a/memory.max": "max\n"}, [7]),
        ("0::/a/b\n", {"a/b/memory.max": "5", "a/memory.max": "4"}, [5, 4]),
        ("4:cpu:/a\n3:memory:/a\n", {"memory/a/memory.limit_in_bytes": "6"}, [6]),
        ("3:memory:/a\n", {"memory/memory.limit_in_bytes": "8"}, [8]),
        ("4:cpu:/a\n", {"memory.max": "7"}, []),
        (None, {"memory.max": "7"}, []),
    ],
    ids=["container", "nested", "version 1", "its container", "no memory", "no Linux"],
)
def test_limits_of_control_groups(
    membership: str | None, files: dict[str, str], limits: list[int], tmp_path: Path
) -> None:
    """Both versions, the group's own limit and those above it."""
    if membership is not None:
        (tmp_path / "cgroup").write_text(membership, encoding="utf-8")
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    found = control_group_limits(tmp_path / "cgroup", tmp_path / "groups")
    assert found == limits


def test_a_smaller_control_group_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of its limit is granted, not a quarter of the machine's memory."""
    monkeypatch.setattr(pool_memory, "control_group_limits", lambda: [4 << 20])
    assert granted(Config()) == 1 << 20


def test_a_limit_of_its_own_is_found(sources: Sources) -> None:
    """Without a setting, a part of this machine's memory is granted."""
    limit = granted(Config())
    assert limit is not None
    assert 1 << 20 < limit < 1 << 50
    for recipe in ("paper", "refined"):
        assert not is_streamed(read(sources, limit), Config(recipe=recipe))
    # What was left in its file is streamed, whatever would fit now.
    assert is_streamed(read(sources, 0), Config(recipe="paper"))


def test_the_next_item_is_read_while_the_present_one_is_worked_on() -> None:
    """One ahead and no more, in order, from another thread."""
    started = [threading.Event() for _ in range(4)]
    threads = set()

    def read(item: int) -> int:
        threads.add(threading.current_thread().name)
        started[item].set()
        return item * item

    with closing(prefetched(read, range(4))) as results:
        assert next(results) == 0
        assert started[1].wait(10)
        assert not started[2].is_set()
        assert list(results) == [1, 4, 9]
    assert threading.current_thread().name not in threads


def test_what_the_thread_raises_comes_in_its_turn() -> None:
    """Earlier results are delivered first; leaving early ends the thread."""

    def read(item: int) -> int:
        if item == 2:
            raise InputError("row 2 is gone")
        return item

    with closing(prefetched(read, range(5))) as results:
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(InputError, match="row 2 is gone"):
            next(results)
    with closing(prefetched(read, range(2))) as results:
        next(results)
    assert not any(one.name.startswith("prefetch") for one in threading.enumerate())


@pytest.mark.slow
def test_memory_does_not_grow_with_the_pool() -> None:
    """Of a pool of 123 MB nothing is held; in memory, all of it is."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--rows", "60000", "--others", "500",
         "--anchors", "16"],
        env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    size = int(re.search(r"(\d+) MB as float32", done.stdout)[1])
    assert size == 123
    peaks = {
        name: int(peak)
        for name, peak in re.findall(r"(\w+): peak (\d+) MB", done.stdout)
    }
    assert peaks["resident"] - peaks["streamed"] > 0.8 * size
    assert float(re.search(r"largest difference: (\S+)", done.stdout)[1]) < 1e-4
