"""Bad input: exit code 2, one sentence on stderr, nothing written."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from planted import N_X, N_Y, OPTIONS, Cli, Outcome, problem, tree, write_pairs

GIVEN = problem()
Change = Callable[[Path], object]

FIT = {
    "--x": "x.npy",
    "--y": "y.npy",
    "--pairs": "pairs.csv",
    "--test-pairs": "test.csv",
    "--out": "run",
}


def fit_with(**changes: str) -> list[str]:
    """Return a fit's arguments; `pool_x="a.npy"` adds or replaces --pool-x."""
    options = {**FIT, **{f"--{k.replace('_', '-')}": v for k, v in changes.items()}}
    return ["fit", *OPTIONS, *(word for item in options.items() for word in item)]


def check_refused(outcome: Outcome, message: str) -> None:
    """Assert that a command ended with one sentence that holds a text."""
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("anchordot: error: ")
    assert outcome.err.endswith(".\n")
    assert outcome.err.count("\n") == 1
    assert message in outcome.err


def spoil(side: str, value: float, *rows: int) -> Change:
    """Return a change that sets some rows of a side's file to a value."""

    def change(folder: Path) -> None:
        array = getattr(GIVEN, side).copy()
        array[list(rows)] = value
        np.save(folder / f"{side}.npy", array)

    return change


def save(name: str, array: np.ndarray) -> Change:
    """Return a change that saves an array."""
    return lambda folder: np.save(folder / name, array)


def text(name: str, contents: str) -> Change:
    """Return a change that writes a text."""
    return lambda folder: (folder / name).write_text(contents, encoding="utf-8")


def pairs(name: str, rows: list[Any]) -> Change:
    """Return a change that writes a pairs file."""
    return lambda folder: write_pairs(folder / name, rows)


def cut(name: str) -> Change:
    """Return a change that drops a file's second half."""

    def change(folder: Path) -> None:
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: len(whole) // 2])

    return change


def repeat_ids(folder: Path) -> None:
    """Give two rows of x the same id, and use it."""
    with h5py.File(folder / "named.h5", "r+") as file:
        file["x/ids"][7] = b"picture 3"
    write_pairs(folder / "pairs.csv", [("picture 3", 0), ("picture 4", 1)])


def keep(folder: Path) -> None:
    """Change nothing."""


X, Y = GIVEN.pairs[:, 0], GIVEN.pairs[:, 1]
FREE_X = int(np.setdiff1d(np.arange(N_X), [*X, *GIVEN.test_pairs[:, 0]])[3])
FREE_Y = int(np.setdiff1d(np.arange(N_Y), [*Y, *GIVEN.test_pairs[:, 1]])[3])
NAMED = {"x": "named.h5::x/image", "test_pairs": "none.csv"}
TESTED_Y = GIVEN.test_pairs[:, 1]
ALL_Y = [(i % 14, j) for i, j in enumerate(range(N_Y)) if j not in TESTED_Y]

FITS: dict[str, tuple[Change, dict[str, str], str]] = {
    "missing file": (keep, {"x": "z.npy"}, "z.npy does not exist (did you mean"),
    "missing pairs": (keep, {"pairs": "p.csv"}, "p.csv does not exist; check the path"),
    "missing test pairs": (keep, {"test_pairs": "p.csv"}, "p.csv does not exist"),
    "missing pool": (keep, {"pool_y": "p.npy"}, "p.npy does not exist"),
    "missing weights": (keep, {"weights_x": "w.npy"}, "weights file w.npy does not ex"),
    "missing dataset": (
        keep,
        {"x": "named.h5::x/imag"},
        "named.h5 holds no array called 'x/imag' (did you mean x/image?)",
    ),
    "several datasets": (keep, {"x": "named.h5"}, "holds several embedding arrays"),
    "a folder": (keep, {"x": "."}, ". is a folder; name one embedding file in it"),
    "unknown suffix": (text("x.txt", "1"), {"x": "x.txt"}, "unknown suffix '.txt'"),
    "wrong rank": (save("x.npy", GIVEN.x[0]), {}, "must be 2-D [rows, dimensions]"),
    "whole numbers": (save("x.npy", np.ones((9, 3), int)), {}, "x.npy holds int64 but"),
    "NaN among the anchors": (
        spoil("x", np.nan, X[2], X[5]),
        {},
        f"x.npy has 2 rows with NaN or infinite values (rows {X[2]}, {X[5]})",
    ),
    "infinity in a pool": (
        spoil("y", np.inf, FREE_Y),
        {},
        f"y.npy has 1 row with NaN or infinite values (row {FREE_Y})",
    ),
    "zeros among the anchors": (
        spoil("y", 0, Y[4]),
        {},
        f"y.npy has 1 row with only zeros, so without a direction (row {Y[4]})",
    ),
    "zeros in a pool": (spoil("x", 0, FREE_X), {}, f"a direction (row {FREE_X})"),
    "zeros in a test pair": (
        spoil("x", 0, GIVEN.test_pairs[3, 0]),
        {},
        f"x.npy has 1 row with only zeros, so without a direction (row "
        f"{GIVEN.test_pairs[3, 0]})",
    ),
    "beyond float32": (
        save("x.npy", GIVEN.x.astype(np.float64) * 1e300),
        {},
        "rows with NaN or infinite values",
    ),
    "truncated HDF5": (
        cut("named.h5"),
        {"x": "named.h5::x/image"},
        "named.h5 cannot be read as an HDF5 file (",
    ),
    "truncated .npy": (cut("x.npy"), {}, "x.npy cannot be read as a .npy array ("),
    "empty file": (text("x.npy", ""), {}, "x.npy is empty (0 bytes); write it again"),
    "unequal columns": (
        text("pairs.csv", "x,y\n0,1\n2\n"),
        {},
        "Line 3 of pairs.csv has no value for y; each line needs an x and a y",
    ),
    "too many columns": (
        text("pairs.csv", "x,y\n0,1,7\n"),
        {},
        "Line 2 of pairs.csv has 3 fields but the header has 2",
    ),
    "no header": (text("pairs.csv", "0,1\n2,3\n"), {}, "add the header line x,y"),
    "index out of range": (
        pairs("pairs.csv", [(0, 1), (40, 2)]),
        {},
        "Line 3 of pairs.csv: x = '40' is outside x.npy, which has 40 rows (0 to 39;",
    ),
    "negative index": (pairs("pairs.csv", [(0, 1), (1, -1)]), {}, "y = '-1' is outs"),
    "duplicate pair": (
        pairs("pairs.csv", [(0, 1), (2, 3), (0, 1)]),
        {},
        "pairs.csv lists the pair of x row 0 and y row 1 twice, on lines 2 and 4",
    ),
    "unknown ids": (
        pairs("pairs.csv", [("picture 1", 0), ("picture 99", 1)]),
        NAMED,
        "1 value(s) of column x are not ids of named.h5::x/image: 'picture 99'",
    ),
    "ids without ids": (
        pairs("pairs.csv", [("picture 1", 0), ("picture 2", 1)]),
        {},
        "x = 'picture 1' cannot be an id because x.npy has no ids",
    ),
    "duplicate ids": (
        repeat_ids,
        NAMED,
        "x = 'picture 3' is the id of 2 rows of named.h5::x/image (3, 7)",
    ),
    "test pairs among the anchors": (
        pairs("test.csv", GIVEN.pairs[2:4].tolist()),
        {},
        "2 row(s) of x are in both the anchors and the test pairs (rows 2, 3)",
    ),
    "one pair": (
        pairs("pairs.csv", [(0, 1)]),
        {},
        "pairs.csv gives 1 pair(s); at least 2 are needed",
    ),
    "no pairs": (text("pairs.csv", "x,y\n"), {}, "pairs.csv holds no pairs, only its"),
    "empty pool": (
        pairs("pairs.csv", ALL_Y),
        {},
        "The pool of y is empty: each of its 46 rows is an anchor or a test item",
    ),
    "a pool of other dimensions": (
        keep,
        {"pool_x": "y.npy"},
        "The x pool must have the anchors' 12 columns, got 9",
    ),
    "a spoilt pool": (
        save("pool.npy", np.zeros((3, 9))),
        {"pool_y": "pool.npy"},
        "pool.npy has 3 rows with only zeros, so without a direction (rows 0, 1, 2)",
    ),
    "too few weights": (
        save("w.npy", np.ones(39)),
        {"weights_x": "w.npy"},
        "w.npy must hold one weight for each of the 40 rows, got the shape (39,)",
    ),
    "weights of the pool's rows only": (
        save("w.npy", np.ones(22)),
        {"weights_y": "w.npy"},
        "for each of the 46 rows, got the shape (22,)",
    ),
    "a negative weight": (
        save("w.npy", np.where(np.arange(40) == 7, -1.0, 1.0)),
        {"weights_x": "w.npy"},
        "w.npy must hold finite weights >= 0, got -1.0 in row 7",
    ),
    "weights of nothing": (
        save("w.npy", np.zeros(40)),
        {"weights_x": "w.npy"},
        "The marginal a must hold finite weights >= 0, not all zero",
    ),
    "weights of text": (
        text("w.npy", "1 2 3"),
        {"weights_x": "w.npy"},
        "w.npy cannot be read as a .npy array",
    ),
    "gamma": (keep, {"gamma": "3"}, "gamma must be a number in [0, 2], got 3.0"),
    "rho": (keep, {"rho": "0"}, "rho must be auto, inf, or a number >= 0.001"),
    "rho NaN": (keep, {"rho": "nan"}, "(0.1 to 1 is usual), got nan"),
    "rho text": (keep, {"rho": "soft"}, "(0.1 to 1 is usual), got 'soft'"),
    "rho refined": (
        keep,
        {"rho": "0.3", "recipe": "refined"},
        "rho has no effect on recipe refined; leave it out, or take recipe paper",
    ),
    "soft_cca paper": (
        keep,
        {"soft-cca.tolerance": "0.1"},
        "soft_cca.tolerance has no effect on recipe paper; set coupling.tolerance, or",
    ),
    "gamma NaN": (keep, {"gamma": "nan"}, "gamma must be a number in [0, 2], got nan"),
    "eta": (keep, {"eta": "0"}, "eta must be a number in [0.0001, 10] (0.02 is usual)"),
    "eta below 0": (keep, {"eta": "-0.1"}, "eta must be a number in [0.0001, 10]"),
    "seed": (keep, {"seed": "-1"}, "seed must be a whole number >= 0, got -1"),
    "epochs": (
        keep,
        {"distillation.epochs": "0"},
        "distillation.epochs must be a whole number >= 1, got 0",
    ),
    "tolerance": (
        keep,
        {"coupling.tolerance": "5"},
        "coupling.tolerance must be between 0 and 2, got 5.0",
    ),
    "streamed to many": (
        keep,
        {"devices": "1", "distillation.pool_memory": "0"},
        "distillation.pool_memory is for one device, and over several the pools are",
    ),
    "streamed NaN": (
        spoil("y", np.nan, FREE_Y),
        {"distillation.pool_memory": "0"},
        f"y.npy has 1 row with NaN or infinite values (row {FREE_Y})",
    ),
    "streamed archive": (
        lambda folder: np.savez(folder / "y.npz", embeddings=GIVEN.y),
        {"y": "y.npz", "distillation.pool_memory": "9"},
        "more than the 9 of distillation.pool_memory, and y.npz::embeddings cannot",
    ),
    "candidates": (
        keep,
        {"selection.etas": "20"},
        "selection.etas must be a number in [0.0001, 10] (0.02 is usual), got 20.0",
    ),
    "output is a file": (text("run", "mine"), {}, "run cannot be an output folder: a"),
    "output below a file": (
        keep,
        {"out": "x.npy/run"},
        "cannot be an output folder: a file of that name is in the way",
    ),
    "output holds other files": (
        keep,
        {"out": "."},
        ". holds files but no run (no config.json); choose an empty or new folder",
    ),
    "output holds another config.json": (
        text("config.json", '{"hidden": 8}'),
        {"out": "."},
        "names no schema number; it is not one of ours",
    ),
}


@pytest.mark.parametrize(("change", "options", "message"), FITS.values(), ids=FITS)
def test_a_fit_that_cannot_be(
    files: Path, cli: Cli, change: Change, options: dict[str, str], message: str
) -> None:
    """The fault is named, and the folder is as it was: no --out, no file changed."""
    if options.get("test_pairs") == "none.csv":
        write_pairs(files / "none.csv", [(f"picture {i}", i) for i in (20, 21)])
    change(files)
    before = tree(files)
    check_refused(cli(*fit_with(**options)), message)
    assert tree(files) == before


def test_overwrite_deletes_nothing_when_the_input_is_bad(
    fitted_folder: Path, files: Path, cli: Cli
) -> None:
    """An earlier run stays, also with --overwrite, until the input is checked."""
    shutil.copytree(fitted_folder / "run", files / "run")
    spoil("x", np.nan, 0)(files)
    before = tree(files)
    outcome = cli(*fit_with(), "--overwrite")
    check_refused(outcome, "x.npy has 1 row with NaN or infinite values (row 0)")
    assert tree(files) == before


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
def test_a_model_folder_is_no_place_for_a_run(
    fitted_folder: Path, files: Path, cli: Cli, overwrite: list[str]
) -> None:
    """A model that lies at --out is neither taken for a run nor overwritten."""
    shutil.copytree(fitted_folder / "run" / "model", files / "model")
    before = tree(files)
    outcome = cli(*fit_with(out="model"), *overwrite)
    check_refused(outcome, "model is not a run folder of `anchordot fit`: its config")
    assert tree(files) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (fit_with(gamma="foo"), "--gamma"),
        ([*fit_with(), "--gama", "1"], "--gama"),
        (["fit", "--x", "x.npy"], "--pairs"),
        (["fits"], "fits"),
        (
            [],
            "one of {demo, inspect, fit, embed, eval, search, compare, diagnose,",
        ),
        (fit_with(seed="1.5"), "--seed"),
        (["embed", "run", "--x", "x.npy", "--out", "e.npy", "--dtype", "int8"], "int8"),
        (["search", "run", "--queries", "x.npy"], "--gallery"),
    ],
)
def test_a_command_line_that_cannot_be_read(
    files: Path, cli: Cli, arguments: list[str], message: str
) -> None:
    """The option is named on stderr, with exit code 2, and nothing is written."""
    before = tree(files)
    code, out, err = cli(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert tree(files) == before


@pytest.fixture
def with_run(fitted_folder: Path, files: Path) -> Path:
    """Return a working folder with the small files and a run of its own."""
    shutil.copytree(fitted_folder / "run", files / "run")
    return files


EVAL = ["eval", "run", "--x", "x.npy", "--y", "y.npy"]
EMBED = ["embed", "run", "--x", "x.npy", "--out", "new/e.npy"]
SEARCH = ["search", "run", "--queries", "x.npy", "--gallery", "y.npy"]


def newer(folder: Path) -> None:
    """Give the run's model a schema of the future."""
    path = folder / "run" / "model" / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "schema": 2}), encoding="utf-8")


def without(name: str) -> Change:
    """Return a change that deletes a file of the run's model."""
    return lambda folder: (folder / "run" / "model" / name).unlink()


MODELS: dict[str, tuple[Change, str]] = {
    "newer schema": (newer, "has schema 2, and this version reads up to 1; upgrade an"),
    "no weights": (without("model.safetensors"), "has no model.safetensors ("),
    "no config": (without("config.json"), "has no config.json ("),
    "no metrics": (without("metrics.json"), "has no metrics.json ("),
    "truncated weights": (
        cut("run/model/model.safetensors"),
        "model.safetensors could not be read: ",
    ),
    "unfinished run": (
        lambda folder: shutil.rmtree(folder / "run" / "model"),
        "run is a run that has no model yet; repeat its fit to finish it",
    ),
    "no run": (
        lambda folder: shutil.rmtree(folder / "run"),
        "The model folder run does not exist",
    ),
}


@pytest.mark.parametrize("command", [EVAL, EMBED, SEARCH], ids=lambda words: words[0])
@pytest.mark.parametrize(("change", "message"), MODELS.values(), ids=MODELS)
def test_a_model_that_cannot_be_loaded(
    with_run: Path, cli: Cli, command: list[str], change: Change, message: str
) -> None:
    """Every verb that needs a model says what is wrong with its folder."""
    change(with_run)
    before = tree(with_run)
    check_refused(cli(*command), message)
    assert tree(with_run) == before


VERBS: dict[str, tuple[Change, list[str], str]] = {
    "eval wrong side": (
        keep,
        ["eval", "run", "--x", "y.npy", "--y", "x.npy"],
        "y.npy has shape (46, 9), and the model's x side takes rows of 12 numbers",
    ),
    "eval missing pairs": (keep, [*EVAL, "--pairs", "p.csv"], "p.csv does not exist"),
    "eval empty pairs": (
        text("p.csv", "x,y\n"),
        [*EVAL, "--pairs", "p.csv"],
        "p.csv holds no pairs, only its header",
    ),
    "eval rows that are not there": (
        save("x.npy", GIVEN.x[:20]),
        EVAL,
        "is not in x.npy, which has 20 rows (0 to 19; rows count from 0)",
    ),
    "eval without pairs": (
        lambda folder: (folder / "run" / "splits.json").unlink(),
        EVAL,
        "x.npy has 40 rows and y.npy has 46: say which belong together with --pairs",
    ),
    "eval changed splits": (
        text("run/splits.json", "{}"),
        EVAL,
        "splits.json is not a split of schema 1",
    ),
    "eval NaN": (
        spoil("y", np.nan, GIVEN.test_pairs[6, 1]),
        EVAL,
        f"y.npy has 1 row with NaN or infinite values (row {GIVEN.test_pairs[6, 1]})",
    ),
    "eval bank of the other side": (
        keep,
        [*EVAL, "--bank-x", "y.npy"],
        "y.npy has shape (46, 9), and the model's x side takes rows of 12 numbers",
    ),
    "eval spoilt bank": (
        save("bank.npy", np.zeros((4, 12))),
        [*EVAL, "--bank-x", "bank.npy"],
        "bank.npy has 4 rows with only zeros",
    ),
    "embed neither side": (
        keep,
        ["embed", "run", "--out", "e.npy"],
        "Give exactly one of --x and --y, the side of the items",
    ),
    "embed both sides": (keep, [*EMBED, "--y", "y.npy"], "Give exactly one of --x and"),
    "embed unknown suffix": (
        keep,
        [*EMBED[:-1], "new/e.txt"],
        "e.txt must end in one of .npy, .h5, .hdf5, .safetensors, the formats written",
    ),
    "embed wrong side": (
        keep,
        ["embed", "run", "--y", "x.npy", "--out", "e.npy"],
        "x.npy has shape (40, 12), and the model's y side takes rows of 9 numbers",
    ),
    "embed zeros": (
        spoil("x", 0, 37),
        [*EMBED, "--batch-size", "8"],
        "x.npy has 1 row with only zeros, so without a direction (row 37)",
    ),
    "embed no batch": (
        keep,
        [*EMBED, "--batch-size", "0"],
        "--batch-size must be at",
    ),
    "embed onto a folder": (
        lambda folder: (folder / "new" / "e.npy").mkdir(parents=True),
        EMBED,
        "e.npy is a folder; name a file",
    ),
    "embed below a file": (
        keep,
        [*EMBED[:-1], "y.npy/e.npy"],
        "cannot be an output folder: a file of that name is in the way",
    ),
    "search k": (keep, [*SEARCH, "--k", "0"], "--k must be at least 1, got 0"),
    "search wrong side": (
        keep,
        [*SEARCH, "--side", "y"],
        "x.npy has shape (40, 12), and the model's y side takes rows of 9 numbers",
    ),
    "search wrong gallery": (
        keep,
        [*SEARCH[:-1], "x.npy"],
        "x.npy has shape (40, 12), and the model's y side takes rows of 9 numbers",
    ),
    "search bank of the gallery's side": (
        keep,
        [*SEARCH, "--bank", "y.npy"],
        "y.npy has shape (46, 9), and the model's x side takes rows of 12 numbers",
    ),
    "search NaN to a file": (
        spoil("x", np.nan, 3),
        [*SEARCH, "--out", "new/m.csv"],
        "x.npy has 1 row with NaN or infinite values (row 3)",
    ),
    "search NaN to JSON": (spoil("y", np.nan, 8), [*SEARCH, "--json"], "(row 8)"),
    "search onto a folder": (
        keep,
        [*SEARCH, "--out", "run"],
        "run is a folder; name",
    ),
    "search below a file": (
        keep,
        [*SEARCH, "--out", "x.npy/m.csv"],
        "cannot be an output folder: a file of that name is in the way",
    ),
    "inspect missing file": (keep, ["inspect", "--x", "z.npy"], "z.npy does not exist"),
    "inspect pairs alone": (
        keep,
        ["inspect", "--x", "x.npy", "--pairs", "pairs.csv"],
        "--pairs needs --y, the file of the other side",
    ),
    "inspect test pairs alone": (
        keep,
        ["inspect", "--x", "x.npy", "--y", "y.npy", "--test-pairs", "test.csv"],
        "--test-pairs needs --pairs, the anchors of the fit",
    ),
    "inspect spoilt anchors": (
        spoil("y", np.nan, Y[9]),
        ["inspect", "--x", "x.npy", "--y", "y.npy", "--pairs", "pairs.csv"],
        f"y.npy has 1 row with NaN or infinite values (row {Y[9]})",
    ),
    "demo too many anchors": (
        keep,
        ["demo", "--anchors", "2600"],
        "2786 rows cannot be split into 2600 anchors, 400 test pairs and two pools",
    ),
    "demo no test pairs": (keep, ["demo", "--test", "0"], "--test must be at least 1"),
}


@pytest.mark.parametrize(("change", "command", "message"), VERBS.values(), ids=VERBS)
def test_what_a_verb_refuses(
    with_run: Path, cli: Cli, change: Change, command: list[str], message: str
) -> None:
    """The fault is named, and the folder is as it was, the run included."""
    change(with_run)
    before = tree(with_run)
    check_refused(cli(*command), message)
    assert tree(with_run) == before
