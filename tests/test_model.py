"""The aligned model: embeddings, scores, and its way to disk and back."""

import json
import math
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import reference
from anchordot_jax import AlignedModel, files, open_embeddings
from anchordot_jax.errors import InputError
from anchordot_jax.students import init_params
from planted import leaves, python, same_model, tree, with_info

DIM_X, DIM_Y, DIM, N = 12, 9, 8, 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, DIM_X)).astype(np.float32)
Y = RNG.normal(size=(N, DIM_Y)).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> AlignedModel:
    """Return a model of random parameters, none of them zero."""
    params = init_params(DIM_X, DIM_Y, DIM, key=jax.random.key(0))
    spread = np.random.default_rng(1)
    noisy = jax.tree.map(
        lambda leaf: leaf + spread.normal(size=leaf.shape).astype(np.float32) / 9,
        params,
    )
    info = {"method": "anchordot", "dim_x": DIM_X, "gamma": 0.1 + 0.2}
    return AlignedModel(params=noisy, info=info, metrics={"x2y/recall@1": 1 / 3})


def test_the_sizes_are_those_of_the_parameters(model: AlignedModel) -> None:
    """Both input sizes, the shared one, and the scale exp(log_scale)."""
    assert (model.dim_x, model.dim_y, model.dim) == (DIM_X, DIM_Y, DIM)
    expected = math.exp(float(model.params["log_scale"]))
    assert model.logit_scale == pytest.approx(expected, rel=1e-6)


def test_a_fresh_model_has_the_initial_temperature() -> None:
    """The first logit scale is 1 / 0.07."""
    params = init_params(DIM_X, DIM_Y, DIM, key=jax.random.key(0))
    fresh = AlignedModel(params=params, info={})
    assert fresh.logit_scale == pytest.approx(1 / 0.07, rel=1e-6)


def test_embeddings_are_those_of_the_formula(model: AlignedModel) -> None:
    """Both sides equal Linear(LayerNorm(x / |x|)), normalised, in float64."""
    embedded = {"x": model.embed_x(X), "y": model.embed_y(Y)}
    for side, rows in (("x", X), ("y", Y)):
        assert embedded[side].dtype == np.float32
        expected = reference.student(rows, model.params[side])
        np.testing.assert_allclose(embedded[side], expected, atol=2e-6)


def test_embeddings_have_unit_norm(model: AlignedModel) -> None:
    """Every row has length 1 up to float32."""
    for rows in (model.embed_x(X), model.embed_y(Y)):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("factor", [1e-6, 0.3, 1e6])
def test_only_the_direction_of_a_row_counts(model: AlignedModel, factor: float) -> None:
    """Rows of another length have the same embedding."""
    scaled = model.embed_x(X * np.float32(factor))
    np.testing.assert_allclose(scaled, model.embed_x(X), atol=1e-5)


@pytest.mark.parametrize("size", [1, 3, 8, N, 10_000])
def test_the_batch_size_does_not_matter(model: AlignedModel, size: int) -> None:
    """Whatever the batches, a row's embedding is the same."""
    rows = model.embed_x(X, batch_size=size)
    np.testing.assert_allclose(rows, model.embed_x(X), atol=1e-6)


def test_blocks_have_the_size_asked_for(model: AlignedModel) -> None:
    """40 rows in batches of 16 are blocks of 16, 16 and 8."""
    blocks = list(model.embed_blocks("y", Y, batch_size=16))
    assert [len(block) for block in blocks] == [16, 16, 8]
    np.testing.assert_allclose(np.concatenate(blocks), model.embed_y(Y), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_float_types_are_taken(model: AlignedModel, dtype: type) -> None:
    """Rows of half or double precision are read as float32."""
    rows: np.ndarray = X.astype(dtype)
    expected = model.embed_x(rows.astype(np.float32))
    np.testing.assert_array_equal(model.embed_x(rows), expected)
    np.testing.assert_array_equal(model.embed_x(rows.tolist()), expected)


def test_a_file_is_embedded_like_its_array(model: AlignedModel, tmp_path: Path) -> None:
    """An opened file gives the embeddings of its rows."""
    np.save(tmp_path / "y.npy", Y)
    source = open_embeddings(tmp_path / "y.npy")
    rows = model.embed_y(source, batch_size=16)
    np.testing.assert_allclose(rows, model.embed_y(Y), atol=1e-6)


def test_no_rows_have_no_embeddings(model: AlignedModel) -> None:
    """Zero rows give a matrix of zero rows."""
    assert model.embed_x(X[:0]).shape == (0, DIM)


def with_rows(value: float, *rows: int) -> np.ndarray:
    """Return X with some rows set to a value."""
    changed = X.copy()
    changed[list(rows)] = value
    return changed


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (Y, r"The array has shape \(40, 9\), and the model's x side takes rows of 12"),
        (X[0], r"The array has shape \(12,\)"),
        (X[None], r"The array has shape \(1, 40, 12\)"),
        (with_rows(0, 13), r"array given as side x has 1 row with only .*\(row 13\)"),
        (with_rows(np.nan, 9, 33), r"2 rows with NaN or infinite .*\(rows 9, 33\)"),
        (with_rows(-np.inf, 39), r"1 row with NaN or infinite values \(row 39\)"),
        (
            X.astype(np.float64) * 1e300,
            r"40 rows with NaN .*\(rows 0, 1, 2, 3, 4, \.\.",
        ),
    ],
)
def test_rows_that_cannot_be_embedded(
    model: AlignedModel, rows: np.ndarray, message: str
) -> None:
    """The shape or the row is named."""
    with pytest.raises(InputError, match=message):
        model.embed_x(rows)


def test_bad_rows_are_counted_over_all_batches(model: AlignedModel) -> None:
    """A bad row of a later batch has its number in the whole array."""
    with pytest.raises(InputError, match=r"\(row 13\)"):
        model.embed_x(with_rows(0, 13), batch_size=4)


def test_bad_rows_of_a_file_are_named_with_it(
    model: AlignedModel, tmp_path: Path
) -> None:
    """The file is named, and its own row number."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["image"] = with_rows(np.nan, 21)
    source = open_embeddings(f"{tmp_path / 'a.h5'}::image")
    with pytest.raises(InputError, match=r"a\.h5::image has 1 row .*\(row 21\)"):
        model.embed_x(source, batch_size=4)
    with pytest.raises(InputError, match=r"a\.h5::image has shape \(40, 12\)"):
        model.embed_y(source)


def test_a_batch_has_a_row(model: AlignedModel) -> None:
    """Batches of no rows are refused."""
    with pytest.raises(InputError, match="batch_size must be at least 1, got 0"):
        model.embed_x(X, batch_size=0)


def ranks_of(scores: np.ndarray, right: list[list[int]]) -> np.ndarray:
    """Return the rank of each row's best right item, from 1."""
    return np.array(
        [
            1 + sum(row > max(row[items]))
            for row, items in zip(scores, right, strict=True)
        ]
    )


def metrics_of(ranks: np.ndarray) -> dict[str, float]:
    """Return what the metrics say of some ranks."""
    recalls = {f"recall@{k}": float(np.mean(ranks <= k)) for k in (1, 5, 10)}
    middle = {"mean_rank": np.mean(ranks), "median_rank": np.median(ranks)}
    return {**recalls, **middle, "mrr": float(np.mean(1 / ranks))}


def check_metrics(
    metrics: dict[str, float], ranks_x2y: np.ndarray, ranks_y2x: np.ndarray
) -> None:
    """Assert that both directions' metrics follow from the ranks."""
    for way, ranks in (("x2y", ranks_x2y), ("y2x", ranks_y2x)):
        for name, value in metrics_of(ranks).items():
            assert metrics[f"{way}/{name}"] == pytest.approx(value), (way, name)


def outputs(model: AlignedModel, rows_x: Any, rows_y: Any) -> tuple[np.ndarray, ...]:
    """Return both sides' embeddings in float64, by the formula."""
    return (
        reference.student(X[rows_x], model.params["x"]),
        reference.student(Y[rows_y], model.params["y"]),
    )


def test_metrics_are_those_of_the_ranks(model: AlignedModel) -> None:
    """Recalls, ranks and MRR of 20 pairs equal those of a sorted score matrix."""
    rows_x, rows_y = np.arange(5, 25), np.arange(39, 19, -1)
    x, y = outputs(model, rows_x, rows_y)
    right = [[k] for k in range(20)]
    metrics = model.evaluate(X, Y, np.stack([rows_x, rows_y], axis=1))
    check_metrics(metrics, ranks_of(x @ y.T, right), ranks_of(y @ x.T, right))


def test_several_right_answers_count_by_the_best(model: AlignedModel) -> None:
    """An item of two pairs is right with either partner, in both directions."""
    pairs = [(7, 2), (7, 3), (4, 2), (9, 30), (11, 30), (13, 31)]
    x, y = outputs(model, [7, 4, 9, 11, 13], [2, 3, 30, 31])
    ranks_x2y = ranks_of(x @ y.T, [[0, 1], [0], [2], [2], [3]])
    ranks_y2x = ranks_of(y @ x.T, [[0, 1], [0], [2, 3], [4]])
    check_metrics(model.evaluate(X, Y, pairs), ranks_x2y, ranks_y2x)


def test_banks_rank_by_the_inverted_softmax(model: AlignedModel) -> None:
    """With banks an item's score is divided by its sum over the bank."""
    rows = np.arange(20)
    x, y = outputs(model, rows, rows)
    bank_x, bank_y = outputs(model, np.arange(20, 40), np.arange(25, 40))
    beta = model.logit_scale
    x2y = np.exp(beta * x @ y.T) / np.exp(beta * bank_x @ y.T).sum(axis=0)
    y2x = np.exp(beta * y @ x.T) / np.exp(beta * bank_y @ x.T).sum(axis=0)
    right = [[k] for k in range(20)]
    pairs = np.stack([rows, rows], axis=1)
    metrics = model.evaluate(X, Y, pairs, bank_x=X[20:], bank_y=Y[25:])
    check_metrics(metrics, ranks_of(x2y, right), ranks_of(y2x, right))
    plain = ranks_of(x @ y.T, right)
    assert not np.array_equal(plain, ranks_of(x2y, right))
    one_way = model.evaluate(X, Y, pairs, bank_y=Y[25:])
    check_metrics(one_way, plain, ranks_of(y2x, right))


def test_only_the_rows_of_the_pairs_are_looked_at(
    model: AlignedModel, tmp_path: Path
) -> None:
    """Bad rows outside the pairs do not matter, in arrays and in files."""
    pairs = [(0, 1), (2, 3), (8, 4)]
    spoilt = with_rows(np.nan, 1, 39)
    np.save(tmp_path / "x.npy", spoilt)
    expected = model.evaluate(X, Y, pairs)
    assert model.evaluate(spoilt, Y, pairs) == expected
    assert model.evaluate(open_embeddings(tmp_path / "x.npy"), Y, pairs) == expected


@pytest.mark.parametrize("as_file", [False, True], ids=["array", "file"])
@pytest.mark.parametrize(
    ("rows", "pairs", "message"),
    [
        (X, [], r"^pairs must be whole numbers >= 0"),
        (X, [(0, -1)], r"^pairs must be whole numbers >= 0"),
        (X, [(0.5, 1.0)], r"got float64 of shape \(1, 2\)"),
        (X, [(0, 0), (40, 1)], r"[rR]ow 40 .* 40 rows"),
        (Y, [(0, 0)], r"has shape \(40, 9\), and the model's x side"),
        (with_rows(0, 17), [(3, 0), (17, 1)], r" 1 row with only zeros.*\(row 17\)"),
    ],
)
def test_pairs_that_cannot_be_scored(
    model: AlignedModel,
    tmp_path: Path,
    rows: np.ndarray,
    pairs: list[Any],
    message: str,
    as_file: bool,
) -> None:
    """What is wrong is named by its row in the array or the file."""
    np.save(tmp_path / "x.npy", rows)
    given = open_embeddings(tmp_path / "x.npy") if as_file else rows
    with pytest.raises(InputError, match=message):
        model.evaluate(given, Y, pairs)


def test_a_bank_is_of_its_own_side(model: AlignedModel) -> None:
    """A bank of the other side's embeddings is refused."""
    with pytest.raises(InputError, match=r"the model's x side takes rows of 12"):
        model.evaluate(X, Y, [(0, 0)], bank_x=Y)


def test_a_saved_model_comes_back_bit_for_bit(
    model: AlignedModel, tmp_path: Path
) -> None:
    """Parameters, facts, results and embeddings are the same after loading."""
    model.save(tmp_path / "new" / "model")
    loaded = AlignedModel.load(str(tmp_path / "new" / "model"))
    assert same_model(loaded, model)
    assert loaded.info == model.info
    assert loaded.metrics == model.metrics
    np.testing.assert_array_equal(loaded.embed_x(X), model.embed_x(X))
    np.testing.assert_array_equal(loaded.embed_y(Y), model.embed_y(Y))


def test_a_model_folder_has_four_files(model: AlignedModel, tmp_path: Path) -> None:
    """The weights are plain tensors by dotted name; the rest is text."""
    model.save(tmp_path / "m")
    names = ["README.md", "config.json", "metrics.json", "model.safetensors"]
    assert sorted(tree(tmp_path / "m")) == names
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    assert sorted(tensors) == [
        "log_scale",
        *(
            f"{side}.{layer}"
            for side in ("x", "y")
            for layer in ("linear.bias", "linear.kernel", "norm.bias", "norm.scale")
        ),
    ]
    np.testing.assert_array_equal(
        tensors["y.linear.kernel"], leaves(model)["['y']['linear']['kernel']"]
    )
    config = json.loads((tmp_path / "m" / "config.json").read_text(encoding="utf-8"))
    assert config == files.sealed({"schema": 1, **model.info})


def test_saving_over_a_model_replaces_it(model: AlignedModel, tmp_path: Path) -> None:
    """The folder then holds the newer model and nothing else."""
    folder = tmp_path / "m"
    folder.mkdir()
    model.save(folder)
    newer = with_info(model, info={"method": "newer"}, metrics={})
    newer.save(folder)
    loaded = AlignedModel.load(folder)
    assert loaded.info == {"method": "newer"}
    assert loaded.metrics == {}
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def occupy(folder: Path, kind: str, model: AlignedModel) -> Path:
    """Return a place where no model may be written."""
    if kind == "notes":
        folder.mkdir()
        (folder / "notes.txt").write_text("mine", encoding="utf-8")
    elif kind == "foreign model":
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"theirs")
        (folder / "config.json").write_text('{"hidden": 8}', encoding="utf-8")
    elif kind == "model and notes":
        model.save(folder)
        (folder / "notes.txt").write_text("mine", encoding="utf-8")
    elif kind == "damaged":
        model.save(folder)
        (folder / "config.json").write_text("{", encoding="utf-8")
    else:
        folder.write_text("a file", encoding="utf-8")
        return folder / "below" if kind == "below a file" else folder
    return folder


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("notes", r"exists and is not a model folder"),
        ("foreign model", r"exists and is not a model folder"),
        ("model and notes", r"or holds other files too; choose another place\."),
        ("damaged", r"config\.json could not be read as JSON"),
        ("file", r"exists and is not a model folder"),
        ("below a file", r"a file of that name is in the way"),
    ],
)
def test_other_things_are_not_written_over(
    model: AlignedModel, tmp_path: Path, kind: str, message: str
) -> None:
    """Saving onto anything but a model is refused and changes nothing."""
    place = occupy(tmp_path / "m", kind, model)
    before = tree(tmp_path)
    with pytest.raises(InputError, match=message):
        model.save(place)
    assert tree(tmp_path) == before


def test_a_failed_save_keeps_the_older_model(
    model: AlignedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error while writing leaves the folder as it was."""
    model.save(tmp_path / "m")
    before = tree(tmp_path)

    def fail(*arguments: object, **options: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("safetensors.numpy.save_file", fail)
    for place in (tmp_path / "m", tmp_path / "new" / "m"):
        with pytest.raises(OSError, match="disk full"):
            with_info(model, info={}).save(place)
    assert tree(tmp_path) == before


def replace_json(folder: Path, name: str, **values: Any) -> None:
    """Change some values of a JSON file, and its seal; None takes one out."""
    path = folder / name
    contents = json.loads(path.read_text(encoding="utf-8")) | values
    given = {**contents, files.SEAL: None}
    kept = {key: value for key, value in given.items() if value is not None}
    path.write_text(json.dumps(files.sealed(kept)), encoding="utf-8")


def cut(path: Path) -> None:
    """Drop the second half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def save_eight_bit_floats(path: Path) -> None:
    """Write a tensor of a type that NumPy lacks."""
    entry = {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}
    header = json.dumps({"w": entry}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))


def save_tensors(path: Path, **tensors: tuple[int, ...]) -> None:
    """Write zero tensors of some shapes; `_` in a name stands for a dot."""
    save_file(
        {k.replace("_", "."): np.zeros(v, np.float32) for k, v in tensors.items()}, path
    )


def widen(path: Path) -> None:
    """Give one bias another length."""
    tensors = load_file(path)
    save_file({**tensors, "x.linear.bias": np.zeros(DIM + 1, np.float32)}, path)


WEIGHTS = "model.safetensors"
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (shutil.rmtree, r"^The model folder .* does not exist\.$"),
    "no config": (
        lambda m: (m / "config.json").unlink(),
        r"^The model folder .*m has no config\.json \(.*\)\.$",
    ),
    "no metrics": (
        lambda m: (m / "metrics.json").unlink(),
        r"^The model folder .*m has no metrics\.json \(.*\)\.$",
    ),
    "no weights": (
        lambda m: (m / WEIGHTS).unlink(),
        r"^The model folder .*m has no model\.safetensors \(.*\)\.$",
    ),
    "config no JSON": (
        lambda m: cut(m / "config.json"),
        r"config\.json could not be read as JSON: ",
    ),
    "config a list": (
        lambda m: (m / "config.json").write_text("[]", encoding="utf-8"),
        r"config\.json must hold a JSON object, got list\.",
    ),
    "newer schema": (
        lambda m: replace_json(m, "config.json", schema=2),
        r"has schema 2, and this version reads up to 1; upgrade anchordot-jax\.",
    ),
    "no schema": (
        lambda m: replace_json(m, "config.json", schema=None),
        r"names no schema number; it is not one of ours\.",
    ),
    "weights cut short": (
        lambda m: cut(m / WEIGHTS),
        r"model\.safetensors could not be read: ",
    ),
    "weights empty": (
        lambda m: (m / WEIGHTS).write_bytes(b""),
        r"model\.safetensors could not be read: ",
    ),
    "weights of 8 bits": (
        lambda m: save_eight_bit_floats(m / WEIGHTS),
        r"model\.safetensors (could not be read|does not hold)",
    ),
    "foreign weights": (
        lambda m: save_tensors(m / WEIGHTS, encoder=(3, 4)),
        r"does not hold a pair of students: encoder is missing, unknown or of anoth",
    ),
    "foreign names within names": (
        lambda m: save_tensors(m / WEIGHTS, x=(3,), x_linear_kernel=(3, 4)),
        r"does not hold a pair of students: x is missing, unknown",
    ),
    "one side only": (
        lambda m: save_tensors(m / WEIGHTS, x_linear_kernel=(3, 4)),
        r"does not hold a pair of students: x\.linear\.kernel is",
    ),
    "no tensors": (
        lambda m: save_tensors(m / WEIGHTS),
        r"does not hold a pair of students: kernels is missing",
    ),
    "another shape": (
        lambda m: widen(m / WEIGHTS),
        r"does not hold a pair of students: x\.linear\.bias is missing, unknown or of",
    ),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE.keys())
def test_what_cannot_be_loaded(
    model: AlignedModel,
    tmp_path: Path,
    damage: Callable[[Path], object],
    message: str,
) -> None:
    """A missing, damaged, newer or foreign file is said in one sentence."""
    model.save(tmp_path / "m")
    damage(tmp_path / "m")
    with pytest.raises(InputError, match=message):
        AlignedModel.load(tmp_path / "m")


def test_a_model_without_results_can_be_loaded(
    model: AlignedModel, tmp_path: Path
) -> None:
    """Results are no part of what a model needs."""
    model.save(tmp_path / "m")
    replace_json(tmp_path / "m", "metrics.json", results=None)
    assert AlignedModel.load(tmp_path / "m").metrics == {}


def test_a_run_folder_stands_for_its_model(model: AlignedModel, tmp_path: Path) -> None:
    """The model of a run is loaded by the run's name; before it is there, it says."""
    (tmp_path / "env.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="is a run that has no model yet; repeat its"):
        AlignedModel.load(tmp_path)
    model.save(tmp_path / "model")
    assert same_model(AlignedModel.load(tmp_path), model)


def test_loading_needs_neither_transport_nor_checkpoints(
    model: AlignedModel, tmp_path: Path
) -> None:
    """A program that only embeds imports neither OTT nor Orbax."""
    model.save(tmp_path / "m")
    np.save(tmp_path / "x.npy", X)
    code = (
        "import sys, numpy as np; from anchordot_jax import AlignedModel\n"
        f"model = AlignedModel.load({str(tmp_path / 'm')!r})\n"
        f"rows = model.embed_x(np.load({str(tmp_path / 'x.npy')!r}))\n"
        "print(rows.shape, {'ott', 'orbax', 'tyro'} & {*sys.modules})"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(40, 8) set()\n"
