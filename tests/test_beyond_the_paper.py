"""The evidence's command: no test item before the choices are frozen, and resume."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest

from anchordot_jax import protocol_split
from anchordot_jax.data import EmbeddingSource
from planted import tree

REPOSITORY = Path(__file__).resolve().parents[1]
ROWS, N, TEST, SEED = 64, 20, 10, 100
METHODS = ("ridge-cca", "soft-cca")


@pytest.fixture
def experiment(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the experiment, made small."""
    path = REPOSITORY / "experiments" / "beyond_the_paper.py"
    spec = importlib.util.spec_from_file_location("beyond_the_paper", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "beyond_the_paper", module)
    monkeypatch.syspath_prepend(str(path.parent))
    spec.loader.exec_module(module)
    tiny = ("d.h5::x", "d.h5::y", None)
    sets = {"tiny": tiny, "tiny-more": ("d.h5::x", "d.h5::y", "d.h5::more")}
    monkeypatch.setattr(module, "DATASETS", sets)
    monkeypatch.setattr(module, "SIZES", dict.fromkeys(sets, (N, 15, 12, 11)))
    monkeypatch.setattr(module, "TEST", TEST)
    return module


@pytest.fixture
def args(experiment: ModuleType, tmp_path: Path) -> Any:
    """Return the arguments of a run on a small data set."""
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(ROWS + 30, 4))
    x = latent @ rng.normal(size=(4, 9)) + 0.1 * rng.normal(size=(ROWS + 30, 9))
    y = latent @ rng.normal(size=(4, 7)) + 0.1 * rng.normal(size=(ROWS + 30, 7))
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["x"], file["y"] = x[:ROWS].astype("f4"), y[:ROWS].astype("f4")
        file["more"] = x[ROWS:].astype("f4")
    return experiment.Args(
        data_folder=tmp_path,
        out=tmp_path / "out",
        docs=tmp_path / "docs",
        datasets=("tiny",),
        methods=METHODS,
        anchors=(N,),
        seeds=(SEED,),
    )


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, set[int]]]:
    """Return a list that notes which rows of which array are read."""
    noted: list[tuple[str, set[int]]] = []
    original = EmbeddingSource.read

    def spy(self: EmbeddingSource, rows: Any = None) -> Any:
        taken = np.arange(self.shape[0]) if rows is None else np.asarray(rows)
        noted.append((self.name, set(taken.tolist())))
        return original(self, rows)

    def refuse(self: EmbeddingSource, batch: int) -> Any:
        raise AssertionError("blocks are read without saying which rows")

    monkeypatch.setattr(EmbeddingSource, "read", spy)
    monkeypatch.setattr(EmbeddingSource, "iter_blocks", refuse)
    return noted


def test_rows(rows_read: list[tuple[str, set[int]]]) -> set[int]:
    """Return the test rows among those read."""
    split = protocol_split(ROWS, seed=SEED, anchors=N, test=TEST)
    held = set(split.test_pairs.ravel().tolist())
    return set().union(*(rows & held for name, rows in rows_read if name != "more"))


test_rows.__test__ = False  # type: ignore[attr-defined]


def test_no_test_item_is_read_before_the_choices_are_frozen(
    experiment: ModuleType,
    args: Any,
    rows_read: list[tuple[str, set[int]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Choices and fits read other rows; test rows are read once all is frozen."""
    original, before = experiment.load_test, []

    def load_test(*arguments: Any) -> Any:
        before.append((test_rows(rows_read), args.frozen.is_file()))
        return original(*arguments)

    monkeypatch.setattr(experiment, "load_test", load_test)
    wanted = experiment.cases(args)
    experiment.make_choices(args, wanted, lambda line: None)
    assert rows_read
    experiment.freeze(args, wanted)
    assert test_rows(rows_read) == set()

    experiment.run_cell(args, wanted[0])
    assert before == [(set(), True)]
    assert len(test_rows(rows_read)) == TEST

    # The cell of a choice that is not frozen, or no longer the frozen one, is refused.
    other = wanted[0]._replace(seed=SEED + 1)
    with pytest.raises(SystemExit, match=r"seed-101 is not frozen: no test item yet"):
        experiment.run_cell(args, other)
    path = experiment.case_file(wanted[0], args.out, "choices")
    path.write_text(json.dumps({"chosen": {"ridge": 3.0}, "seconds": 0.0}))
    with pytest.raises(SystemExit, match="changed after it was frozen"):
        experiment.freeze(args, wanted)
    monkeypatch.setattr(experiment, "GALLERY", 7)
    with pytest.raises(SystemExit, match="frozen under another protocol"):
        experiment.freeze(args, wanted)
    assert len(before) == 1


def test_one_command_makes_the_table_and_resumes(
    experiment: ModuleType,
    args: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Cells, CSV and Markdown; again nothing is run; more molecules are a row."""
    experiment.main(args)
    assert "| ridge CCA, with bank | " in capsys.readouterr().out
    cell = json.loads(
        (args.out / "cells" / f"tiny-{N}" / "soft-cca" / "seed-100.json").read_text()
    )
    assert set(cell["chosen"]) == set(experiment.CHOSEN)
    assert cell["metrics"]["x2y/recall@10"] == 1.0
    assert cell["metrics"]["bank/y2x/recall@1"] > 0.1
    lines = (args.docs / "beyond_the_paper.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * len(METHODS)

    before = tree(args.out / "cells")
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "run_cell", None)
        patch.setattr(experiment, "choose", None)
        experiment.main(args)
    assert tree(args.out / "cells") == before

    # What is in --docs is enough: another --out has nothing to do, and writes the same.
    written = tree(args.docs)
    other = experiment.dataclasses.replace(args, out=args.out.with_name("other"))
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "run_cell", None)
        patch.setattr(experiment, "choose", None)
        experiment.main(other)
    assert tree(args.docs) == written

    more = experiment.dataclasses.replace(args, datasets=("tiny", "tiny-more"))
    case = next(c for c in experiment.cases(more) if c.dataset == "tiny-more")
    assert case.method == "soft-cca"
    pools = experiment.load_unscored(more, case).pools
    assert (len(pools.x), len(pools.y)) == (17 + 30, 17)
    experiment.main(more)
    assert f"| tiny | {N} | soft-matched CCA, closed form | " in capsys.readouterr().out


def test_every_method_is_chosen_and_fitted(
    experiment: ModuleType, args: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings that a choice names reach the fit of its method."""
    settings: dict[str, Any] = {}

    class Caught(Exception):
        pass

    def catch(method: str) -> Any:
        def fit(*data: Any, settings: Any, key: Any) -> Any:
            caught[method] = settings
            raise Caught

        return fit

    caught = settings
    given = experiment.load_unscored(args, experiment.cases(args)[0])
    chosen = {
        "soft-cca": {"ridge": 3.0, "ridge_ratio": 0.5, "sharpness": 2.0},
        "anchordot": {"gamma": 0.5, "eta": 0.1},
        "ridge-cca": {"ridge": 3.0},
        "contrastive-tuned": {"steps": 7},
    }
    chosen["anchordot-refined"] = chosen["soft-cca"]
    assert set(chosen) == set(experiment.LABELS)
    for method, values in chosen.items():
        known = experiment.METHODS[method]
        replaced = experiment.dataclasses.replace(known, fit=catch(method))
        monkeypatch.setitem(experiment.METHODS, method, replaced)
        with pytest.raises(Caught):
            experiment.fit(method, values, given, 0)
        where = caught[method]
        where = where.soft_cca if method == "anchordot-refined" else where
        assert {name: getattr(where, name) for name in values} == values
    assert caught["anchordot-refined"].recipe == "refined"
