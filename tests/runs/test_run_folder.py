"""The run folder: whose run it is, its stages, and what is never deleted."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors

from anchordot_jax import files
from anchordot_jax.coupling import Coupling
from anchordot_jax.errors import InputError
from anchordot_jax.runs import model_folder
from anchordot_jax.runs.run_folder import OURS, RunFolder, environment, package_version
from anchordot_jax.runs.tensors import write_tensors
from anchordot_jax.selection import Selection
from anchordot_jax.selection_curve import Candidate
from planted import tree

IDENTITY: dict[str, Any] = {
    "config": {"seed": 0, "coupling": {"tolerance": 1e-4}, "etas": (0.1, 0.2)},
    "data": {"digest": "aa"},
}
CHOICE = Selection(
    gamma=0.1 + 0.2,
    eta=0.05,
    curve=(
        Candidate(0.5, 0.05, 1 / 3, 0.1, 0.0, 0.5, 1.0, 1e-2, 40, True),
        Candidate(1.0, 0.05, 2 / 3, 0.2, 0.1, 0.0, 1.0, 1e-2, 1000, False, 0.3),
    ),
    n_heldout=3,
    reason="Chosen by the ranks of 3 held-out anchors.",
    rho=0.3,
)
SOLVED = Coupling(
    f=jnp.linspace(-1, 1, 5, dtype=jnp.float32),
    g=jnp.asarray([0.1, -jnp.inf, 3.0], jnp.float32),
    epsilon=jnp.asarray(0.1, jnp.float32),
    marginal_error=jnp.asarray(1e-5, jnp.float32),
    n_iterations=jnp.asarray(30, jnp.int32),
    converged=jnp.asarray(True),
    errors=jnp.asarray([1e-2, 1e-5, jnp.nan], jnp.float32),
)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Return a new run folder."""
    return RunFolder.open(tmp_path / "run", IDENTITY)


def changed(**values: Any) -> dict[str, Any]:
    """Return the identity with other settings."""
    return {**IDENTITY, "config": {**IDENTITY["config"], **values}}


def test_a_new_run_notes_what_it_is_for(tmp_path: Path) -> None:
    """The settings, the data and the environment are written first."""
    run = RunFolder.open(str(tmp_path / "a" / "run"), IDENTITY)
    assert sorted(tree(run.path)) == ["config.json", "env.json"]
    config = files.read_json(run.path / "config.json", "It")
    assert config == json.loads(json.dumps(files.sealed({"schema": 1, **IDENTITY})))
    assert files.read_json(run.path / "env.json", "It") == environment()
    assert run.model == run.path / "model"
    assert not run.finished


def test_an_empty_folder_may_become_a_run(tmp_path: Path) -> None:
    """Hidden files do not count as contents."""
    (tmp_path / ".hidden").write_text("", encoding="utf-8")
    assert RunFolder.open(tmp_path, IDENTITY).path == tmp_path


def test_the_same_run_is_opened_again(run: RunFolder) -> None:
    """The same settings and data continue the run and change no file."""
    before = tree(run.path)
    assert RunFolder.open(run.path, IDENTITY) == run
    assert tree(run.path) == before


def test_a_setting_that_came_later_continues_older_runs(run: RunFolder) -> None:
    """An older run lacks it; None is what it was made with, any other value is not."""
    assert RunFolder.open(run.path, changed(rho=None)) == run
    with pytest.raises(
        InputError, match=r"another config\.rho: None there, 0\.3 asked"
    ):
        RunFolder.open(run.path, changed(rho=0.3))


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        (changed(seed=1), r"another config\.seed: 0 there, 1 asked; ask for the same"),
        (
            changed(seed=1, coupling={"tolerance": 1e-3}),
            r"another config\.coupling\.tolerance: 0\.0001 there, 0\.001 asked",
        ),
        (changed(etas=(0.1,)), r"config\.etas: \[0\.1, 0\.2\] there, \[0\.1\] asked"),
        (changed(new=True), r"another config\.new: None there, True asked"),
        ({**IDENTITY, "data": {"digest": "bb"}}, r"another data\.digest: 'aa' there"),
        (
            {**IDENTITY, "data": {"digest": "aa", "split": "cc"}},
            r"another data\.split: None there, 'cc' asked",
        ),
    ],
)
def test_another_run_is_refused(
    run: RunFolder, identity: dict[str, Any], message: str
) -> None:
    """The first difference in alphabetical order is named, and nothing is changed."""
    before = tree(run.path)
    with pytest.raises(InputError, match=message):
        RunFolder.open(run.path, identity)
    assert tree(run.path) == before


def fill(run: RunFolder) -> None:
    """Put something in every place that a run may use."""
    for name in OURS:
        place = run.path / name
        if "." in name:
            place.write_text(
                json.dumps({"schema": 1, "config": {}, "data": {}}), encoding="utf-8"
            )
        else:
            (place / "deep").mkdir(parents=True)
            (place / "deep" / "file").write_text("ours", encoding="utf-8")


def test_overwriting_deletes_our_files_only(run: RunFolder) -> None:
    """What a user put beside the run stays."""
    fill(run)
    (run.path / "notes").mkdir()
    (run.path / "notes" / "mine.txt").write_text("mine", encoding="utf-8")
    (run.path / "mine.csv").write_text("mine", encoding="utf-8")
    RunFolder.open(run.path, changed(seed=1), overwrite=True)
    left = {"config.json", "env.json", "mine.csv", "notes", "notes/mine.txt"}
    assert set(tree(run.path)) == left
    stored = files.read_json(run.path / "config.json", "It")
    assert stored["config"]["seed"] == 1


@pytest.mark.parametrize("name", sorted(model_folder.ALL_FILES))
def test_what_a_killed_writer_left_in_the_model_is_deleted(
    run: RunFolder, name: str
) -> None:
    """Half-written files go when the run is opened again; what else is there stays."""
    run.model.mkdir()
    (run.model / ".mine.txt").write_text("mine", encoding="utf-8")
    with files.replacing(run.model / name) as half:
        shutil.copy(half, half.with_suffix(".kept"))
    (run.model / name).unlink()
    assert len(tree(run.model)) == 2
    RunFolder.open(run.path, IDENTITY)
    assert set(tree(run.model)) == {".mine.txt"}


def test_overwriting_a_new_place_is_no_fault(tmp_path: Path) -> None:
    """Where there is no run yet, one is made."""
    run = RunFolder.open(tmp_path / "run", IDENTITY, overwrite=True)
    assert (run.path / "config.json").is_file()


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("thesis.tex", "mine", r"holds files but no run \(no config\.json\); choose"),
        ("config.json", '{"hidden": 8}', r"names no schema number; it is not one of"),
        (
            "config.json",
            '{"schema": 1, "dim": 8}',
            r"is not a run folder of `anchordot fit`",
        ),
        ("config.json", '{"schema": 7}', r"has schema 7, and this version reads up to"),
        ("config.json", "{", r"config\.json could not be read as JSON"),
    ],
)
def test_folders_of_others_are_left_alone(
    tmp_path: Path, name: str, contents: str, message: str, overwrite: bool
) -> None:
    """A folder that is no run is refused, also when asked to overwrite."""
    (tmp_path / name).write_text(contents, encoding="utf-8")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("theirs", encoding="utf-8")
    before = tree(tmp_path)
    with pytest.raises(InputError, match=message):
        RunFolder.open(tmp_path, IDENTITY, overwrite=overwrite)
    assert tree(tmp_path) == before


def test_a_run_cannot_be_a_file(tmp_path: Path) -> None:
    """A file of that name, or above it, is in the way."""
    (tmp_path / "run").write_text("mine", encoding="utf-8")
    for path in (tmp_path / "run", tmp_path / "run" / "below"):
        with pytest.raises(InputError, match="a file of that name is in the way"):
            RunFolder.open(path, IDENTITY)


def test_a_selection_survives_a_round_trip(run: RunFolder) -> None:
    """Every candidate comes back, numbers to the last bit."""
    assert run.load_selection() is None
    run.save_selection(CHOICE)
    assert run.load_selection() == CHOICE
    run.save_selection(CHOICE._replace(curve=()))
    assert run.load_selection() == CHOICE._replace(curve=())


def test_a_coupling_survives_a_round_trip(run: RunFolder) -> None:
    """Potentials come back bit by bit, infinite ones and the type included."""
    assert run.load_coupling() is None
    run.save_coupling(SOLVED)
    loaded = run.load_coupling()
    assert loaded is not None
    same_coupling(loaded, SOLVED)
    with safetensors.safe_open(run.path / "coupling.safetensors", "numpy") as stored:
        assert set(stored.keys()) == set(Coupling._fields[:7])


def test_a_coupling_of_soft_marginals_survives_a_round_trip(run: RunFolder) -> None:
    """rho, the mass and the rows' masses come back; some of them alone are refused."""
    soft = SOLVED._replace(
        rho=jnp.asarray(0.3, jnp.float32),
        mass=jnp.asarray(0.7, jnp.float32),
        log_mass_x=jnp.linspace(-3, 0, 5, dtype=jnp.float32),
        log_mass_y=jnp.asarray([0.1, -jnp.inf, -2.0], jnp.float32),
    )
    run.save_coupling(soft)
    loaded = run.load_coupling()
    assert loaded is not None
    same_coupling(loaded, soft)
    run.save_coupling(soft._replace(mass=None))
    with pytest.raises(InputError, match="does not hold a coupling; delete it"):
        run.load_coupling()


def same_coupling(loaded: Coupling, expected: Coupling) -> None:
    """Assert that two couplings are the same, bit by bit."""
    for name, value in expected._asdict().items():
        stored = getattr(loaded, name)
        if value is None:
            assert stored is None, name
            continue
        assert (stored.dtype, stored.shape) == (value.dtype, value.shape), name
        np.testing.assert_array_equal(stored, value)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ("{", r"selection\.json could not be read as JSON"),
        ("{}", r"selection\.json names no schema number"),
        ('{"schema": 2}', r"selection\.json has schema 2"),
        ('{"schema": 1}', r"does not hold a selection \('curve'\); delete it to"),
        ('{"schema": 1, "curve": [{"a": 1}]}', r"does not hold a selection \("),
        ('{"schema": 1, "curve": [], "gamma": 1}', r"does not hold a selection \("),
    ],
)
def test_a_damaged_selection(run: RunFolder, contents: str, message: str) -> None:
    """A file that cannot be used is named, with the way out."""
    (run.path / "selection.json").write_text(contents, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        run.load_selection()


def test_a_damaged_coupling(run: RunFolder) -> None:
    """A file cut short, or one of other tensors, is named with the way out."""
    path = run.path / "coupling.safetensors"
    run.save_coupling(SOLVED)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"could not be read: .*\. Delete it to solve"):
        run.load_coupling()
    write_tensors(path, {"f": np.zeros(3, np.float32)})
    with pytest.raises(InputError, match="does not hold a coupling; delete it to solv"):
        run.load_coupling()


def test_results_are_kept_by_name(run: RunFolder) -> None:
    """A result comes back with its schema; one that is not there is None."""
    assert run.load_result("test") is None
    run.save_result("test", {"metrics": {"x2y/recall@1": 1 / 3}})
    stored = run.load_result("test")
    assert stored == {"schema": 1, "metrics": {"x2y/recall@1": 1 / 3}}
    assert (run.path / "results" / "test.json").is_file()


def test_metrics_are_appended_line_by_line(run: RunFolder) -> None:
    """Every record is one JSON object on its own line."""
    for epoch in (1, 2):
        run.log({"epoch": epoch, "loss": 0.5 / epoch})
    text = (run.path / "metrics.jsonl").read_text(encoding="utf-8")
    assert text == '{"epoch": 1, "loss": 0.5}\n{"epoch": 2, "loss": 0.25}\n'


def test_the_environment_names_versions_and_devices() -> None:
    """What a result depends on is noted; packages that are missing are unknown."""
    noted = environment()
    assert noted["versions"]["numpy"] == np.__version__
    assert noted["backend"]
    assert noted["devices"]
    assert noted["x64"] is False
    assert package_version("no-such-package") == "unknown"
