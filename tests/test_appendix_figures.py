"""The scripts of Figures 8 to 12 and 14 to 16, and of SOTAlign's evaluation."""

import csv
import gzip
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anchordot_jax.baselines.plans.settings import FusedSettings
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.data.datasets import load_dataset

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"


@pytest.fixture(autouse=True)
def _scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the scripts be imported as they import each other."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))


def run(script: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a script on the bundled data, its cells and results in a folder."""
    places = ["--data-folder", folder, "--out", folder / "cells", "--docs", folder]
    words = [sys.executable, str(EXPERIMENTS / script), *map(str, places), *options]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def records(values: dict[tuple[str, int], float]) -> list[dict[str, Any]]:
    """Return finished cells of one value by setting and seed."""
    return [
        {
            "status": "done",
            "settings": {"method": method, "seed": seed},
            "result": {"recall": value},
        }
        for (method, seed), value in values.items()
    ]


def test_differences_are_paired_by_seed() -> None:
    from findings import difference

    # Differences 1, 2, 3 of seeds that vary by far more.
    known = records(
        {
            ("a", 0): 11.0,
            ("a", 1): 52.0,
            ("a", 2): 93.0,
            ("b", 0): 10.0,
            ("b", 1): 50.0,
            ("b", 2): 90.0,
            ("a", 3): 0.0,
        }
    )
    found = difference(known, {"method": "a"}, {"method": "b"}, "recall", what="a - b")
    assert found is not None
    assert found.mean == 2
    # Student's t of 2 degrees of freedom at 95 %: 4.302653; deviation 1.
    half = 4.302653 / 3**0.5
    assert found.low == pytest.approx(2 - half, abs=1e-5)
    assert found.high == pytest.approx(2 + half, abs=1e-5)
    assert found.direction == "not told apart"
    assert (
        difference(known, {"method": "c"}, {"method": "b"}, "recall", what="") is None
    )
    single = records({("a", 0): 1.0, ("b", 0): 0.0})
    lone = difference(single, {"method": "a"}, {"method": "b"}, "recall", what="one")
    assert lone is not None
    assert lone.low is None
    assert "no interval from one seed" in lone.sentence()


@pytest.mark.parametrize(
    ("directions", "stated", "verdict"),
    [
        ("ll", "lower", "as stated"),
        ("l?", "lower", "not decided"),
        ("lh", "lower", "contradicted"),
        ("l?", "not higher", "as stated"),
        ("??", "not higher", "not decided"),
        ("lh", "not higher", "contradicted"),
        ("hh", "higher", "as stated"),
        ("h?", "not lower", "as stated"),
        ("?l", "not lower", "contradicted"),
    ],
)
def test_a_finding_follows_from_the_intervals(
    directions: str, stated: Any, verdict: str
) -> None:
    from findings import Difference, judge

    interval = {"l": (-2.0, -1.0), "h": (1.0, 2.0), "?": (-1.0, 1.0)}
    differences = [Difference("d", 0.0, *interval[d], 3) for d in directions]
    assert judge("A claim.", [*differences, None], stated=stated).verdict == verdict


def test_findings_are_written_as_text_and_as_json(tmp_path: Path) -> None:
    from findings import Difference, judge, write_findings

    lower = Difference("a less b", -1.5, -2.0, -1.0, 3)
    write_findings("name", [judge("It falls.", [lower], stated="lower")], tmp_path)
    (told,) = json.loads((tmp_path / "name_findings.json").read_text())["findings"]
    assert told["verdict"] == "as stated"
    assert told["differences"][0]["direction"] == "lower"
    text = (tmp_path / "name_findings.md").read_text()
    assert "- a less b: -1.5 ([-2.0, -1.0] over 3 seeds), lower" in text


def test_the_figures_own_coupling_is_anchordots() -> None:
    """With alpha = 1 the plan is that of the profile cost alone."""
    import couplings

    from anchordot_jax import coupling, geometry, profiles

    rng = np.random.default_rng(0)

    def rows(n: int, d: int) -> np.ndarray:
        drawn = rng.normal(size=(n, d)).astype(np.float32)
        return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)

    anchors = Anchors(rows(30, 7), rows(30, 5))
    pools = Pools(rows(11, 7), rows(13, 5))
    cell = {"coupling": "profile", "alpha": None, "tau": None, "eta": 0.05}
    settings = couplings._settings({**cell, "data": "flickr8k", "epochs": 0})
    assert isinstance(settings, FusedSettings)
    found = couplings.plan_of(anchors, pools, settings)
    bases = (profiles.fit_basis(side) for side in anchors)
    maps = profiles.coordinate_maps(*bases, 0.75)
    cost = np.asarray(
        geometry.cost_block(*profiles.coordinates(pools.x, pools.y, maps))
    )
    epsilon = 0.05 * float(np.median(cost))
    solved = coupling.solve_cost(cost, epsilon)
    expected = np.exp(np.asarray(coupling.log_plan(solved, cost)))
    np.testing.assert_allclose(np.exp(found.log_plan), expected, atol=2e-5)


def test_examples_are_drawn_by_the_rule() -> None:
    from figures14_16_examples import ANSWERS, examples

    rng = np.random.default_rng(1)
    gallery = rng.normal(size=(40, 60)).astype(np.float32)
    gallery /= np.linalg.norm(gallery, axis=1, keepdims=True)
    # The first 25 are their own partners, the last 14 look for the opposite, and one
    # finds another first and its partner second: it is neither right nor wrong.
    queries = np.concatenate([gallery[:25], gallery[25:26], -gallery[26:]])
    queries[25] = 0.5 * gallery[25] + gallery[0]
    rows = np.arange(100, 140)
    found = examples(queries, gallery, rows, shown=3, seed=0)
    assert found["right"] == 25 / 40
    assert found["wrong"] == 14 / 40
    drawn = json.loads(found["examples"])
    assert [each["kind"] for each in drawn] == ["right"] * 3 + ["wrong"] * 3
    for each in drawn:
        assert (each["query"] < 125) == (each["kind"] == "right")
        assert len(each["answers"]) == ANSWERS
        assert (each["answers"][0] == each["query"]) == (each["kind"] == "right")
        assert each["cosines"] == sorted(each["cosines"], reverse=True)
    assert found == examples(queries, gallery, rows, shown=3, seed=0)
    other = examples(queries, gallery, rows, shown=3, seed=1)
    assert other["examples"] != found["examples"]
    every = json.loads(examples(queries, gallery, rows, shown=40, seed=0)["examples"])
    assert {each["query"] for each in every} == {*range(100, 140)} - {125}


def test_texts_beside_the_data_are_read_by_row(tmp_path: Path) -> None:
    from figures14_16_examples import TABLES, read_names

    loaded = load_dataset("openclipart")
    with pytest.raises(ValueError, match="put it beside the embeddings"):
        read_names(loaded, tmp_path, None)
    path = tmp_path / TABLES["openclipart"].file
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("row\tid\tcaption\n1\tb\tsecond\n0\ta\tfirst\n0\ta\tanother\n")
    names = read_names(loaded, tmp_path, None)
    assert (names.texts[0], names.texts[1]) == ("first", "second")
    assert names.ids[0] == "animals/2_dead_frogs_lumen_desig_01"
    path.write_bytes(b"not gzip")
    with pytest.raises(ValueError, match="is not a table of texts"):
        read_names(loaded, tmp_path, None)


def test_a_page_of_examples_stands_alone() -> None:
    from figures14_16_examples import Args, Names, page

    names = Names(
        [f"id{i}" for i in range(9)], {i: f"caption {i} & <b>" for i in range(9)}, {}
    )
    drawn = [
        {"kind": "right", "query": 1, "rank": 1.0, "answers": [1, 2, 3, 4, 5]},
        {"kind": "wrong", "query": 7, "rank": 8.0, "answers": [1, 2, 3, 4, 5]},
    ]
    told = [{**each, "cosines": [0.5, 0.4, 0.3, 0.2, 0.1]} for each in drawn]
    result = {
        f"{way}/{name}": value
        for way in ("x2y", "y2x")
        for name, value in {
            "right": 0.25,
            "wrong": 0.5,
            "examples": json.dumps(told),
        }.items()
    }
    text, file = page("flickr8k", result, names, Args())
    assert file == "figures14_16_examples-flickr8k.html"
    # Each direction: one right answer in the first five, one after them.
    assert text.count('<li class="item right">') == 4
    assert text.count("the partner, at rank 8") == 2
    assert "the partner is first, 25.0 % of the queries" in text
    assert "caption 7 &amp; &lt;b&gt;" in text
    assert "experiments/figures14_16_examples.py" in text
    assert "http" not in text
    assert "<script" not in text


def test_classified_images_are_drawn_whatever_their_answers() -> None:
    from figure12_class_examples import answers, examples

    labels, rows = np.arange(20) % 3, np.arange(100, 120)
    right = examples(labels, labels, rows, shown=6, seed=0)
    wrong = examples((labels + 1) % 3, labels, rows, shown=6, seed=0)
    assert [each["row"] for each in right] == [each["row"] for each in wrong]
    assert all(each["predicted"] == each["label"] for each in right)
    assert all(each["predicted"] != each["label"] for each in wrong)
    assert {each["label"] for each in right} <= {0, 1, 2}
    other = examples(labels, labels, rows, shown=6, seed=1)
    assert [each["row"] for each in other] != [each["row"] for each in right]
    assert len(examples(labels, labels, rows, shown=50, seed=0)) == 20

    def record(method: str, drawn: list[dict[str, int]], seed: int) -> dict[str, Any]:
        named = [
            {**e, **{k: f"c{e[k]}" for k in ("label", "predicted")}} for e in drawn
        ]
        return {
            "status": "done",
            "settings": {"method": method, "seed": seed},
            "result": {"examples": json.dumps(named)},
        }

    found = answers(
        [
            record("sue", wrong, 0),
            record("anchordot", right, 0),
            record("anchordot", other, 1),
        ]
    )
    assert list(found) == [each["row"] for each in right]
    first = found[right[0]["row"]]
    assert first["anchordot"] == first["label"] != first["sue"]


@pytest.mark.slow
def test_classified_images_are_shown_with_every_answer(tmp_path: Path) -> None:
    """Of the bundled clip art; a picture that is not there is a white square."""
    pictures = tmp_path / "png"
    pictures.mkdir()
    words = ["--data", "openclipart", "--classes", "openclipart", "--shown", "5"]
    words += ["--anchors", "300", "--pool", "200", "--methods", "ridge-cca", "cca"]
    words += ["--pictures", str(pictures)]
    done = run("figure12_class_examples.py", tmp_path, *words)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("row ")]
    assert len(lines) == 5
    assert all("ridge-cca" in line and ", cca" in line for line in lines)
    assert (tmp_path / "figure12_class_examples.png").stat().st_size > 1000
    with (tmp_path / "figure12_class_examples.csv").open(newline="") as file:
        assert {row["method"] for row in csv.DictReader(file)} == {"ridge-cca", "cca"}


class ToyDecoder:
    """Images are codes turned by a fixed rotation."""

    def __init__(self, rotation: np.ndarray) -> None:
        self.rotation = rotation

    def encode(self, images: np.ndarray) -> np.ndarray:
        """Return the codes."""
        return images @ self.rotation.T

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the images."""
        return codes @ self.rotation


def test_the_probe_tells_aligned_spaces_from_others() -> None:
    from decoders import probe

    rng = np.random.default_rng(2)
    rotation = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    codes = rng.normal(size=(440, 6))
    images = codes @ rotation
    shared = np.tanh(codes @ rng.normal(size=(6, 16)) / 3)
    shared /= np.linalg.norm(shared, axis=1, keepdims=True)
    noise = rng.normal(size=(40, 16))
    sides = {
        "aligned": shared[400:] + 0.02 * noise,
        "shuffled": shared[400:][rng.permutation(40)],
    }
    found = {
        name: probe(
            ToyDecoder(rotation),
            shared_train=shared[:400],
            images_train=images[:400],
            shared_x=shared[400:],
            shared_y=side,
            images_test=images[400:],
            seed=0,
        ).metrics
        for name, side in sides.items()
    }
    aligned, shuffled = found["aligned"], found["shuffled"]
    assert aligned["code_cosine/x"] > 0.9
    assert 0.7 < aligned["code_cosine/y"] < aligned["code_cosine/x"]
    assert abs(aligned["code_cosine/chance"]) < 0.1
    assert abs(shuffled["code_cosine/y"]) < 0.2
    assert aligned["code_recall@10/y"] > 0.8
    assert aligned["code_recall@10/chance"] == 0.25
    # The decoder loses nothing, so that encoding again changes nothing.
    assert aligned["reencoded_cosine/decoder"] == pytest.approx(1)
    assert aligned["reencoded_cosine/y"] == pytest.approx(aligned["code_cosine/y"])
    with pytest.raises(ValueError, match="an image for each embedding"):
        probe(
            ToyDecoder(rotation),
            shared_train=shared[:9],
            images_train=images[:8],
            shared_x=shared[:2],
            shared_y=shared[:2],
            images_test=images[:2],
            seed=0,
        )


def test_the_nearest_training_item_is_found_less_the_mean() -> None:
    from decoders import NearestTraining

    training = np.array([[1.0, 0.3], [1.0, 0.0], [1.0, -0.3]])
    training /= np.linalg.norm(training, axis=1, keepdims=True)
    # Hardly off the mean, towards the first: by the plain cosine the second is nearest.
    code = training.mean(axis=0) + np.array([0.0, 0.02])
    assert np.argmax(training @ code) == 1
    decoded = NearestTraining(training).decode(code[None])
    np.testing.assert_array_equal(decoded, training[:1])


def shapes(n: int) -> np.ndarray:
    """Return squares of random place and colour on white, `[n, 64, 64, 3]`."""
    rng = np.random.default_rng(3)
    pictures = np.ones((n, 64, 64, 3), np.float32)
    for picture in pictures:
        top, left = rng.integers(0, 32, 2)
        picture[top : top + 32, left : left + 32] = rng.uniform(0, 1, 3)
    return pictures


@pytest.mark.slow
def test_the_autoencoder_learns_shapes() -> None:
    import picture_autoencoder

    pictures = shapes(256)
    trained = picture_autoencoder.train(pictures[:192], dim=16, epochs=20)
    codes = trained.encode(pictures[192:])
    assert codes.shape == (64, 16)
    made = trained.decode(codes)
    assert made.shape == (64, 64, 64, 3)
    assert (made.min(), made.max()) >= (0, 0)
    assert made.max() <= 1
    error = np.mean((made - pictures[192:]) ** 2)
    constant = np.mean((pictures[:192].mean(axis=0) - pictures[192:]) ** 2)
    assert error < 0.5 * constant
    # The last batch is filled up with copies, which must not come back.
    np.testing.assert_allclose(trained.encode(pictures[192:195]), codes[:3], atol=1e-4)


def test_pictures_are_read_by_id_and_kept(tmp_path: Path) -> None:
    import picture_autoencoder
    from PIL import Image

    folder = tmp_path / "png"
    (folder / "animals").mkdir(parents=True)
    blank = Image.new("RGB", (80, 80), "white")
    blank.save(folder / "blank.png")
    drawing = blank.copy()
    drawing.paste((255, 0, 0), (20, 20, 60, 60))
    drawing.save(folder / "animals" / "cat.png")
    names, kept = ("animals/cat", "blank", "absent"), tmp_path / "kept.npz"
    found = picture_autoencoder.read_pictures(folder, names, kept)
    assert list(found) == [0]
    assert found[0].shape == (64, 64, 3)
    np.testing.assert_allclose(found[0][32, 32], [1, 0, 0], atol=0.01)
    (folder / "animals" / "cat.png").unlink()
    picture_autoencoder.read_pictures.cache_clear()
    again = picture_autoencoder.read_pictures(folder, names, kept)
    np.testing.assert_array_equal(again[0], found[0])
    with pytest.raises(ValueError, match="holds no picture named other"):
        picture_autoencoder.read_pictures(folder, ("other",), kept)


def test_accuracies_by_hand() -> None:
    from sotalign_evaluation import accuracies

    items = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    found = accuracies(items, np.eye(2), np.array([0, 1, 0]))
    assert found["zero_shot/top1"] == pytest.approx(2 / 3)
    assert found["zero_shot/top5"] == 1
    assert found["zero_shot/chance"] == 0.5
    assert found["zero_shot/most_frequent"] == pytest.approx(2 / 3)


def test_the_parts_of_sotaligns_evaluation_share_cells() -> None:
    import sotalign_evaluation as script

    parts = script.grids(script.Args(methods=("sotalign", "ridge-cca"), seeds=1))
    assert set(parts) == {"retrieval", "noise", "pools"}
    shared = [cell for cell in parts["retrieval"] if cell in parts["noise"]]
    assert [cell.settings["data"] for cell in shared] == ["flickr8k"] * 2
    teachers = [
        c for c in parts["noise"] if c.settings["method"] == script.TEACHER_ONLY
    ]
    assert [cell.settings["noise"] for cell in teachers] == [0.1, 0.25, 0.5]
    # Ridge CCA does not look at the pools.
    assert {cell.settings["method"] for cell in parts["pools"]} == {"sotalign"}


@pytest.mark.slow
def test_a_coupling_figure_is_written_and_resumed(tmp_path: Path) -> None:
    sizes = ("--anchors", "300", "--pool", "200", "--epochs", "2", "--seeds", "2")
    options = ("--data", "openclipart", *sizes)
    done = run("figure9_keypoint.py", tmp_path, *options)
    assert done.returncode == 0, done.stderr
    names = ("csv", "png", "svg")
    files = [tmp_path / f"figure9_keypoint.{suffix}" for suffix in names]
    with files[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * (2 + 4)
    fitted = [row for row in rows if row["epochs"] == "2"]
    assert {row["coupling"] for row in fitted} == {"profile", "keypoint"}
    for row in fitted:
        # Chance is 10 of 400.
        assert float(row["plan/recall@10"]) > 0.15
        assert float(row["students/recall@10"]) > 0.05
    told = json.loads((tmp_path / "figure9_keypoint_findings.json").read_text())
    assert len(told["findings"][0]["differences"]) == 2
    before = [path.read_bytes() for path in files]
    next((tmp_path / "cells" / "couplings").glob("*keypoint*.json")).unlink()
    again = run("figure9_keypoint.py", tmp_path, *options)
    assert again.returncode == 0, again.stderr
    assert [path.read_bytes() for path in files] == before


@pytest.mark.parametrize(
    ("script", "config", "options", "message"),
    [
        ("figure8_bridge", "Couplings", {"data": ("flickr",)}, "did you mean flickr"),
        ("figure9_keypoint", "Couplings", {"data": ("mscoco",)}, "dataset_coco.json"),
        ("figure10_fused_gw", "Couplings", {"seeds": 0}, "must be at least 1"),
        ("figures14_16_examples", "Args", {"shown": 0}, "--shown and --epochs"),
        ("generation_probe", "Args", {"data": ("mscoco",)}, "The data set mscoco"),
        ("sotalign_evaluation", "Args", {"methods": ("sotaling",)}, "mean sotalign"),
        ("sotalign_evaluation", "Args", {"data": ()}, "at least one data set"),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    script: str,
    config: str,
    options: dict[str, Any],
    message: str,
) -> None:
    module = importlib.import_module(script)
    places = {"data_folder": tmp_path, "out": tmp_path / "cells", "docs": tmp_path}
    with pytest.raises(SystemExit) as ended:
        module.main(getattr(module, config)(**places, **options))
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not list(tmp_path.glob("*.*"))


def test_absent_pictures_are_one_sentence(tmp_path: Path) -> None:
    import generation_probe

    settings = {"data": "openclipart", "decoder": "autoencoder"}
    for pictures in (None, tmp_path / "nowhere"):
        with pytest.raises(ValueError, match="openclipart-png"):
            generation_probe.run(
                settings, folder=tmp_path, pictures=pictures, out=tmp_path
            )
