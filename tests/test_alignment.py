"""The whole fit: what goes in, what comes out, and that it can be interrupted."""

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anchordot_jax import AlignedModel, AnchorDOT, Config, alignment, open_embeddings
from anchordot_jax.config import CouplingConfig
from anchordot_jax.distillation import EpochMetrics
from anchordot_jax.errors import InputError
from anchordot_jax.fit_inputs import FitData
from anchordot_jax.listeners import Interrupted, Silent
from anchordot_jax.selection import Selection
from planted import (
    CONFIG,
    EPOCHS,
    N_ANCHORS,
    N_X,
    N_Y,
    Problem,
    StopAfter,
    fit,
    fitted,
    problem,
    same_model,
    tree,
)

GIVEN = problem()
SELECT = "anchordot_jax.selection.select"
SOLVE_COUPLING = "anchordot_jax.coupling.solve_coupling"
TRAIN_EPOCH = "anchordot_jax.distillation.train_epoch"
CHANCE = 1 / len(GIVEN.test_pairs)
FREE_X = np.setdiff1d(np.arange(N_X), [*GIVEN.pairs[:, 0], *GIVEN.test_pairs[:, 0]])
FREE_Y = np.setdiff1d(np.arange(N_Y), [*GIVEN.pairs[:, 1], *GIVEN.test_pairs[:, 1]])


def refuse(*arguments: Any, **options: Any) -> Any:
    """Stand for a stage that must not run."""
    raise AssertionError("this stage was to be taken from the run folder")


class Notes(Silent):
    """A listener that notes everything it is told."""

    def __init__(self) -> None:
        self.selected: list[tuple[int, int]] = []
        self.errors: list[tuple[int, float]] = []
        self.trained: list[tuple[int, int, int]] = []
        self.metrics: list[dict[str, float]] = []
        self.warnings: list[str] = []

    def selecting(self, done: int, total: int) -> None:
        """Note the candidates solved."""
        self.selected.append((done, total))

    def training(
        self, epoch: int, epochs: int, items: int, metrics: dict[str, float]
    ) -> None:
        """Note the epoch."""
        self.trained.append((epoch, epochs, items))
        self.metrics.append(metrics)

    def warn(self, message: str) -> None:
        """Note the warning."""
        self.warnings.append(message)


def recalls(model: AlignedModel, given: Problem, pairs: np.ndarray) -> np.ndarray:
    """Return both directions' recall at 1."""
    metrics = model.evaluate(given.x, given.y, pairs)
    return np.array([metrics["x2y/recall@1"], metrics["y2x/recall@1"]])


def seen(monkeypatch: pytest.MonkeyPatch, **options: Any) -> FitData:
    """Return the data that a fit would see."""
    caught: list[FitData] = []

    def catch(data: FitData, config: Config, **rest: Any) -> alignment.FitResult:
        caught.append(data)
        return alignment.FitResult(fitted(), None, None, {})  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(alignment, "fit_data", catch)
        fit(GIVEN, **options)
    return caught[0]


def test_a_fit_says_how_it_was_made() -> None:
    """Sizes, choices and settings of the fit are facts of the model."""
    info = fitted().info
    assert {name: info[name] for name in ("dim_x", "dim_y", "dim")} == {
        "dim_x": 12,
        "dim_y": 9,
        "dim": 8,
    }
    assert (info["n_anchors"], info["n_pool_x"], info["n_pool_y"]) == (14, 16, 22)
    assert info["gamma"] in CONFIG.selection.gammas
    assert info["eta"] in CONFIG.selection.etas
    assert Config.from_dict(info["settings"]) == CONFIG
    assert info["converged"]
    assert info["marginal_error"] < CONFIG.coupling.tolerance
    assert json.loads(json.dumps(info, allow_nan=False)) == info


def test_test_pairs_are_found_far_above_chance() -> None:
    """On average over 8 problems the planted partner comes first six times in ten."""
    found = [recalls(fit(p), p, p.test_pairs) for p in map(problem, range(8))]
    assert np.mean(found) > 6 * CHANCE


def test_shuffled_anchors_teach_nothing() -> None:
    """With anchors paired at random the test pairs are found no better than chance."""
    found = []
    for seed in range(8):
        given = problem(seed)
        order = np.random.default_rng(seed).permutation(N_ANCHORS)
        wrong = np.stack([given.pairs[:, 0], given.pairs[order, 1]], axis=1)
        shuffled = fit(given._replace(pairs=wrong))
        found.append(recalls(shuffled, given, given.test_pairs))
    assert np.mean(found) < 2 * CHANCE


def test_anchors_find_each_other() -> None:
    """The pairs that the fit was given are nearest neighbours afterwards."""
    assert recalls(fitted(), GIVEN, GIVEN.pairs).min() >= 0.85


def test_pools_are_what_is_in_no_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anchors are the pairs' rows in order, pools all rows in no pair."""
    data = seen(monkeypatch)
    np.testing.assert_array_equal(data.anchors_x, GIVEN.x[GIVEN.pairs[:, 0]])
    np.testing.assert_array_equal(data.anchors_y, GIVEN.y[GIVEN.pairs[:, 1]])
    np.testing.assert_array_equal(data.pool_x, GIVEN.x[FREE_X])
    np.testing.assert_array_equal(data.pool_y, GIVEN.y[FREE_Y])
    assert data.a is None
    assert data.b is None


def test_without_test_pairs_their_rows_join_the_pools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Test pairs are optional."""
    data = seen(monkeypatch, test_pairs=None)
    assert len(data.pool_x) == N_X - N_ANCHORS
    assert len(data.pool_y) == N_Y - N_ANCHORS


def test_pools_of_their_own_replace_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate pool is used whole; the other side's stays what is in no pair."""
    own = GIVEN.x[:3] + 1
    data = seen(monkeypatch, pool_x=own, a=[1, 2, 3], b=np.arange(N_Y))
    np.testing.assert_array_equal(data.pool_x, own)
    np.testing.assert_array_equal(data.pool_y, GIVEN.y[FREE_Y])
    np.testing.assert_array_equal(data.a, [1, 2, 3])
    np.testing.assert_array_equal(data.b, FREE_Y)


def test_the_values_of_test_rows_change_nothing() -> None:
    """Other test rows lead to the same model, bit by bit."""
    x, y = GIVEN.x.copy(), GIVEN.y.copy()
    x[GIVEN.test_pairs[:, 0]] = 7
    y[GIVEN.test_pairs[:, 1]] = -3
    assert same_model(fit(GIVEN._replace(x=x, y=y)), fitted())


def test_pools_given_as_arrays_make_the_same_model() -> None:
    """Naming the rows in no pair as pools of their own changes nothing."""
    pools = {"pool_x": GIVEN.x[FREE_X], "pool_y": GIVEN.y[FREE_Y]}
    x, y = np.full_like(GIVEN.x, np.nan), np.full_like(GIVEN.y, np.nan)
    x[GIVEN.pairs[:, 0]] = GIVEN.x[GIVEN.pairs[:, 0]]
    y[GIVEN.pairs[:, 1]] = GIVEN.y[GIVEN.pairs[:, 1]]
    assert same_model(fit(GIVEN._replace(x=x, y=y), **pools), fitted())


def test_a_fit_is_deterministic() -> None:
    """The same seed gives the same model bit by bit, another seed another one."""
    assert same_model(fit(GIVEN), fitted())
    assert not same_model(fit(GIVEN, dataclasses.replace(CONFIG, seed=1)), fitted())


def test_double_precision_is_read_as_single() -> None:
    """float64 arrays of the same values make the same model."""
    doubled = GIVEN._replace(
        x=GIVEN.x.astype(np.float64), y=GIVEN.y.astype(np.float64), pairs=GIVEN.pairs
    )
    assert same_model(fit(doubled), fitted())


def test_half_precision_files_find_the_same(tmp_path: Path) -> None:
    """A float16 file and a float32 file of its values lead to the same top matches."""
    top = {}
    for dtype in (np.float16, np.float32):
        for side in ("x", "y"):
            rows = getattr(GIVEN, side).astype(np.float16).astype(dtype)
            np.save(tmp_path / f"{side}-{dtype.__name__}.npy", rows)
        x, y = (
            open_embeddings(tmp_path / f"{side}-{dtype.__name__}.npy").read()
            for side in ("x", "y")
        )
        model = fit(GIVEN._replace(x=x, y=y))
        scores = model.embed_x(x) @ model.embed_y(y).T
        top[dtype] = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(top[np.float16], top[np.float32])


def test_half_precision_arrays_are_taken() -> None:
    """Arrays in float16 make nearly the model of float32."""
    model = fit(
        GIVEN._replace(x=GIVEN.x.astype(np.float16), y=GIVEN.y.astype(np.float16))
    )
    cosines = np.sum(model.embed_x(GIVEN.x) * fitted().embed_x(GIVEN.x), axis=1)
    assert cosines.min() > 0.99


def test_uniform_weights_are_the_default() -> None:
    """Equal weights, given as such, change nothing."""
    weighted = fit(GIVEN, a=np.ones(N_X), b=np.ones(N_Y))
    assert same_model(weighted, fitted())


def test_only_the_proportions_of_weights_count() -> None:
    """Twice the weights are the same weights; other proportions are not."""
    a, b = np.linspace(1, 2, N_X), np.linspace(3, 1, N_Y)
    once, twice = fit(GIVEN, a=a, b=b), fit(GIVEN, a=2 * a, b=2 * b)
    assert same_model(once, twice)
    assert not same_model(once, fitted())


def test_an_item_of_weight_zero_is_allowed() -> None:
    """The model is another one, stays finite and finds the anchors."""
    a = np.ones(N_X)
    a[FREE_X[3]] = 0
    model = fit(GIVEN, a=a)
    assert np.isfinite(model.embed_x(GIVEN.x)).all()
    assert not same_model(model, fitted())
    assert recalls(model, GIVEN, GIVEN.pairs).min() >= 0.85


def test_settings_given_are_not_searched() -> None:
    """With gamma and eta given, both are taken as they are, and nothing is tried."""
    notes = Notes()
    model = fit(GIVEN, dataclasses.replace(CONFIG, gamma=0.5, eta=0.05), listener=notes)
    assert (model.info["gamma"], model.info["eta"]) == (0.5, 0.05)
    assert notes.selected == []
    assert len(notes.trained) == EPOCHS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": GIVEN.x[0]}, r"^x must be a 2-D .* got shape \(12,\)"),
        ({"y": GIVEN.y.astype(int)}, r"^y must be a 2-D floating array .* int64"),
        ({"pairs": [(0, 0)]}, r"gives 1 pair\(s\); at least 2 are needed"),
        ({"pairs": []}, r"gives 0 pair\(s\)"),
        ({"pairs": [(0, 0), (40, 1)]}, r"^Row 40 of x does not exist"),
        ({"pairs": [(0, 0), (1, -1)]}, r"^Row -1 of y does not exist"),
        ({"pairs": [(0, 1, 2)]}, r"^pairs must be a list .* got shape \(1, 3\)"),
        ({"test_pairs": [(0.0, 1.0)]}, r"^test_pairs must be a list .* float64"),
        ({"test_pairs": GIVEN.pairs[3:5]}, r"^2 row\(s\) of x are in both the anchors"),
        ({"pool_x": GIVEN.y}, r"^The x pool must have the anchors' 12 columns, got 9"),
        ({"pool_y": GIVEN.y[:0]}, r"^The y pool is empty; give unpaired y rows\.$"),
        ({"pool_y": GIVEN.y[0]}, r"^pool_y must be a 2-D"),
        ({"a": np.ones(3)}, r"one weight a row, 40, got \(3,\)"),
        ({"b": -np.ones(N_Y)}, r"^The marginal b must hold finite weights >= 0"),
        ({"x": np.where(np.arange(N_X)[:, None] == 39, 0, GIVEN.x)}, r"x .*\(row 39\)"),
        ({"x": np.where(np.arange(N_X)[:, None] == 5, np.nan, GIVEN.x)}, r"\(row 5\)"),
    ],
)
def test_what_cannot_be_fitted(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    """Each fault is said in one sentence, before a run folder is made."""
    options = {**GIVEN._asdict(), **changes}
    with pytest.raises(InputError, match=message):
        AnchorDOT(CONFIG).fit(**options, run=tmp_path / "run")
    assert tree(tmp_path) == {}


class Outsider:
    """A listener that is no `Silent`, so that it is told of the transport as well."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.selecting = self.notes.selecting
        self.training = self.notes.training
        self.warn = self.notes.warn
        self.should_stop = self.notes.should_stop

    def coupling(self, iteration: int, error: float) -> None:
        """Note the marginal error."""
        self.notes.errors.append((iteration, error))


def test_a_listener_is_told_of_every_stage() -> None:
    """Candidates, marginal errors and epochs are reported, and change nothing."""
    listener = Outsider()
    model = fit(GIVEN, listener=listener)
    notes = listener.notes
    assert same_model(model, fitted())
    # 10 draws of one held-out anchor, each with 2 gammas and 2 etas.
    assert notes.selected == [(done, 40) for done in range(1, 41)]
    iterations, errors = zip(*notes.errors, strict=True)
    assert iterations == tuple(range(10, 10 * len(iterations) + 1, 10))
    assert errors[-1] == pytest.approx(model.info["marginal_error"])
    # 2 chunks of 8 from both pools, and 2 of 7 anchors.
    assert notes.trained == [(e, EPOCHS, 60) for e in range(1, EPOCHS + 1)]
    assert notes.metrics[0]["chance_loss"] == pytest.approx(math.log(8))
    assert notes.metrics[-1]["anchor_loss"] < notes.metrics[0]["anchor_loss"]
    assert notes.warnings == []


def test_a_transport_that_does_not_converge_is_said() -> None:
    """The warning names the error, the tolerance and the way out."""
    strict = CouplingConfig(tolerance=1e-12)
    config = dataclasses.replace(CONFIG, coupling=strict, gamma=0.5, eta=0.05)
    notes = Notes()
    model = fit(GIVEN, config, listener=notes)
    assert not model.info["converged"]
    assert len(notes.warnings) == 1
    assert "after 1000 iterations, tolerance 1e-12; try a larger" in notes.warnings[0]
    with pytest.warns(UserWarning, match="The transport did not converge"):
        fit(GIVEN, config)


def test_a_training_that_diverges_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that is not finite ends the fit with advice."""
    metrics = EpochMetrics(*map(jnp.asarray, (math.nan, 1, 1)))
    monkeypatch.setattr(TRAIN_EPOCH, lambda state, *_, **__: (state, metrics))
    message = r"not finite after epoch 1; lower distillation\.learning_rate"
    with pytest.raises(FloatingPointError, match=message):
        fit(GIVEN)


def logged(run: Path) -> list[int]:
    """Return the epochs that a run's metrics name."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["epoch"] for line in lines]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    # The same as in the tests, where a fixture sets it, so that nothing is recompiled.
    with jax.numpy_rank_promotion("raise"):
        fit(GIVEN, run=folder)
    return folder


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """Return the folder of a run that was stopped after epoch 3."""
    with pytest.raises(Interrupted, match=r"^Stopped after epoch 3 of 20\.$"):
        fit(GIVEN, run=tmp_path / "run", listener=StopAfter(3))
    return tmp_path / "run"


def test_a_run_folder_changes_nothing(finished: Path) -> None:
    """The model is that of a fit without one, and lies in the folder."""
    assert same_model(AlignedModel.load(finished), fitted())
    assert AlignedModel.load(finished / "model").info == fitted().info
    assert sorted(path.name for path in finished.iterdir()) == [
        "config.json",
        "coupling.safetensors",
        "env.json",
        "metrics.jsonl",
        "model",
        "results",
        "selection.json",
    ]
    assert logged(finished) == list(range(1, EPOCHS + 1))


def test_a_fit_stops_when_asked_without_a_folder() -> None:
    """An interruption is raised after the epoch in which it was asked for."""
    listener = StopAfter(2)
    with pytest.raises(Interrupted, match=r"^Stopped after epoch 2 of 20\.$"):
        fit(GIVEN, listener=listener)
    assert listener.epochs == [1, 2]


def test_a_stop_after_the_last_epoch_is_none() -> None:
    """A fit that is asked to stop when it is through returns its model."""
    assert same_model(fit(GIVEN, listener=StopAfter(EPOCHS)), fitted())


def test_an_interrupted_run_keeps_its_state(interrupted: Path) -> None:
    """The stages that are through and a checkpoint are there, and no model."""
    assert (interrupted / "selection.json").is_file()
    assert (interrupted / "coupling.safetensors").is_file()
    assert [path.name for path in (interrupted / "checkpoints").glob("3")] == ["3"]
    assert not (interrupted / "model").exists()
    assert logged(interrupted) == [1, 2, 3]


def test_a_resumed_run_ends_as_if_nothing_had_happened(
    interrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other epochs follow, earlier stages are not repeated, the bits are equal."""
    monkeypatch.setattr(SELECT, refuse)
    monkeypatch.setattr(SOLVE_COUPLING, refuse)
    listener = StopAfter()
    model = fit(GIVEN, run=interrupted, listener=listener)
    assert listener.epochs == list(range(4, EPOCHS + 1))
    assert same_model(model, fitted())
    assert same_model(AlignedModel.load(interrupted), fitted())
    assert model.info == fitted().info
    assert logged(interrupted) == list(range(1, EPOCHS + 1))
    assert not (interrupted / "checkpoints").exists()


def test_a_run_killed_between_two_checkpoints_resumes(interrupted: Path) -> None:
    """Metrics later than the checkpoint, and half a line, are dropped."""
    with (interrupted / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"stage": "distillation", "epoch": 4}\n{"stage": "disti')
    assert same_model(fit(GIVEN, run=interrupted), fitted())
    assert logged(interrupted) == list(range(1, EPOCHS + 1))


def test_a_run_without_a_checkpoint_starts_over(interrupted: Path) -> None:
    """Without the training state the first epoch comes again, once."""
    for path in sorted((interrupted / "checkpoints").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert same_model(fit(GIVEN, run=interrupted), fitted())
    assert logged(interrupted) == list(range(1, EPOCHS + 1))


def test_a_run_can_be_interrupted_in_any_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop in the transport keeps the choice, which is then not made again."""
    run = tmp_path / "run"

    def stop(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SOLVE_COUPLING, stop)
        patch.setattr(SELECT, lambda *_, **__: chosen_of(fitted()))
        with pytest.raises(KeyboardInterrupt):
            fit(GIVEN, run=run)
    assert (run / "selection.json").is_file()
    assert not (run / "coupling.safetensors").exists()
    monkeypatch.setattr(SELECT, refuse)
    assert same_model(fit(GIVEN, run=run), fitted())


def chosen_of(model: AlignedModel) -> Selection:
    """Return the choice that a model was made with."""
    return Selection(
        model.info["gamma"], model.info["eta"], (), 10, model.info["choice"]
    )


def test_a_finished_run_is_not_repeated(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same fit again returns the stored model and changes no file."""
    before = tree(finished)
    monkeypatch.setattr(SELECT, refuse)
    monkeypatch.setattr(SOLVE_COUPLING, refuse)
    monkeypatch.setattr(TRAIN_EPOCH, refuse)
    assert same_model(fit(GIVEN, run=finished), fitted())
    assert tree(finished) == before


def with_part(part: str, **values: Any) -> Config:
    """Return the settings with some of a part changed."""
    changed = dataclasses.replace(getattr(CONFIG, part), **values)
    return dataclasses.replace(CONFIG, **{part: changed})


@pytest.mark.parametrize(
    ("config", "given", "message"),
    [
        (
            dataclasses.replace(CONFIG, seed=1),
            GIVEN,
            r"another config\.seed: 0 there, 1 asked; ask for the same, choose",
        ),
        (
            with_part("distillation", epochs=21, chunk_size=7),
            GIVEN,
            r"another config\.distillation\.chunk_size: 8 there, 7 asked",
        ),
        (
            with_part("selection", etas=(0.05,)),
            GIVEN,
            r"another config\.selection\.etas: \[0\.05, 0\.1\] there, \[0\.05\] asked",
        ),
        (CONFIG, problem(1), r"another data\.digest: '[0-9a-f]{16}' there"),
    ],
)
def test_a_run_of_something_else_is_refused(
    finished: Path, config: Config, given: Problem, message: str
) -> None:
    """The first setting that differs is named, and the run stays as it is."""
    before = tree(finished)
    with pytest.raises(InputError, match=message):
        fit(given, config, run=finished)
    assert tree(finished) == before


@pytest.mark.parametrize("name", ["selection.json", "coupling.safetensors"])
def test_a_finished_run_that_lacks_a_stage_is_refused(
    finished: Path, tmp_path: Path, name: str
) -> None:
    """A model without what led to it is no finished run."""
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    (run / name).unlink()
    with pytest.raises(InputError, match=r"has a model but lacks selection\.json or"):
        fit(GIVEN, run=run)


class Impatient(Notes):
    """A listener that asks to stop after the second candidate."""

    def should_stop(self) -> bool:
        """Return whether two candidates are solved."""
        return len(self.selected) >= 2


def test_a_fit_can_stop_during_the_selection(tmp_path: Path) -> None:
    """It stops after the candidate at hand; the same fit again gives the same model."""
    impatient = Impatient()
    with pytest.raises(Interrupted, match=r"^Stopped while choosing gamma and eta\.$"):
        fit(GIVEN, run=tmp_path / "run", listener=impatient)
    assert len(impatient.selected) == 2
    assert not (tmp_path / "run" / "selection.json").exists()
    assert same_model(fit(GIVEN, run=tmp_path / "run"), fitted())
