"""`anchordot report` as a stranger types it: the page, without a browser."""

import base64
import html.parser
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from anchordot_jax.evaluation import Interval
from anchordot_jax.report import markdown, retrieval_sections
from anchordot_jax.report.blocks import Item
from anchordot_jax.report.data_sections import _plane
from anchordot_jax.report.items import thumbnail
from anchordot_jax.report.match_section import _ends
from planted import N_X, N_Y, Cli, tree

SECTIONS = [
    *("data", "recall", "examples", "matches", "selection", "transport"),
    *("training", "hubness", "spectrum", "map", "settings"),
]
METRICS = [f"{way}/recall@{k}" for way in ("x2y", "y2x") for k in (1, 5, 10)]
VOID = {"meta", "link", "img", "br", "path", "use", "rect", "ellipse", "polygon"}


class Page(html.parser.HTMLParser):
    """Reads a page and notes what a check needs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Note ids and addresses, and that the element is open."""
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "xlink:href"):
                self.links.append(value)
            if name == "src":
                self.sources.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        """Note an element that ends where it begins."""
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        """Check that the element that ends is the last one opened."""
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def reported(fitted_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the fitted folder, with texts, pictures and SMILES beside."""
    folder = tmp_path_factory.mktemp("reported") / "fitted"
    shutil.copytree(fitted_folder, folder)
    named = json.loads((folder / "run/sources.json").read_text())
    for side in ("x", "y"):
        named[side] = str(folder / f"{side}.npy")
    (folder / "run/sources.json").write_text(json.dumps(named))
    texts = [f"thing <{i}> & more" for i in range(N_Y)]
    (folder / "texts.txt").write_text("\n".join(texts) + "\n")
    (folder / "smiles.csv").write_text("smiles\n" + "CCO\n" * (N_X - 1) + "C1CC\n")
    (folder / "pictures").mkdir()
    for i in range(0, N_X, 2):
        Image.new("RGB", (300, 200), (i, 90, 200)).save(folder / f"pictures/{i}.png")
    return folder


@pytest.fixture
def here(reported: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return that folder as the working folder."""
    monkeypatch.chdir(reported)
    return reported


def test_the_page_has_every_section_and_needs_nothing_else(
    here: Path, cli: Cli
) -> None:
    outcome = cli("report", "run", "--texts-y", "texts.txt", "--images", "pictures")
    assert outcome.code == 0, outcome.err
    assert outcome.out == "Report: run/report.html\n"
    text = (here / "run/report.html").read_text()
    page = Page(text)
    assert page.open == []
    assert set(SECTIONS) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    inner = [link[1:] for link in page.links if link.startswith("#")]
    assert set(inner) <= set(page.ids)
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert page.sources
    assert all(source.startswith("data:image/") for source in page.sources)
    assert "<script" not in text
    assert "url(http" not in text
    assert "thing &lt;" in text
    assert "thing <" not in text
    for said in (
        "95 % bootstrap",
        "may be chance",
        "ridge CCA",
        "arXiv:2610.12781",
        "jax",
    ):
        assert said in text


def test_the_recalls_are_those_of_eval(here: Path, cli: Cli) -> None:
    assert cli("report", "run").code == 0
    scored = json.loads(
        cli("eval", "run", "--x", "x.npy", "--y", "y.npy", "--json").out
    )
    lines = (here / "run/report.md").read_text().splitlines()
    (row,) = [line for line in lines if line.startswith("| this model |")]
    shown = [float(cell.split()[0]) for cell in row.split("|")[2:-1]]
    names = [f"{way}/recall@{k}" for way in ("x2y", "y2x") for k in (1, 5, 10)]
    assert shown == pytest.approx([100 * scored[name] for name in names], abs=0.051)


def test_the_same_report_is_the_same_bytes(here: Path, cli: Cli) -> None:
    for out in ("one", "two"):
        assert cli("report", "run", "--out", out).code == 0
    assert tree(here / "one") == tree(here / "two")
    assert {"report.html", "report.md", "plots/losses.svg"} <= tree(here / "one").keys()


@pytest.mark.slow
def test_markdown_figures_are_files(here: Path, cli: Cli) -> None:
    assert cli("report", "run", "--out", "three", "--contrastive").code == 0
    text = (here / "three/report.md").read_text()
    figures = re.findall(r"\]\((plots/[\w-]+\.svg)\)", text)
    assert len(figures) >= 10
    assert all((here / "three" / name).is_file() for name in figures)
    assert "| contrastive |" in text


def test_pictures_that_cannot_be_read_are_left_out_and_counted(
    here: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged ones, and those so large that Pillow refuses or warns of them."""
    (tmp_path / "pictures").mkdir()
    for i in range(N_X):
        Image.new("RGB", (20, 20)).save(tmp_path / f"pictures/{i}.png")
    for i in range(0, N_X, 2):
        (tmp_path / f"pictures/{i}.png").write_bytes(b"\x89PNG no")
    for limit in (150, 300):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        out = tmp_path / str(limit)
        done = cli("report", "run", "--images", tmp_path / "pictures", "--out", out)
        assert (done.code, done.err) == (0, "")
        text = (out / "report.html").read_text()
        assert "Pictures that could not be read, and are left out: " in text
        assert "<img" not in text
        thumbnail.cache_clear()


def test_damaged_notes_of_a_run_are_left_out_or_a_sentence(
    here: Path, cli: Cli, tmp_path: Path
) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    shutil.copytree(here / "run", run)
    results = run / "results"
    for text in ('{"versions": [], "python": "3"}', "{", "{}"):
        (run / "env.json").write_text(text)
        (results / "report-ridge-cca.json").write_text('{"recalls": {"a": 3}}')
        (run / "metrics.jsonl").write_text('{"stage": "distillation", "epoch": 1}\n')
        assert cli("report", run, "--out", out).code == 0
        found = (out / "report.md").read_text()
        assert "Versions left out: env.json is missing or damaged." in found
        assert "x2y/recall@10" in (results / "report-ridge-cca.json").read_text()
    for name in ("seconds", "test"):
        (run / "sources.json").unlink(missing_ok=True)
        path = results / f"{name}.json"
        kept = path.read_text()
        values = {"seconds": {"a": "b"}, "metrics": dict.fromkeys(METRICS, "b")}
        path.write_text(json.dumps({"schema": 1, **values}))
        done = cli("report", run, "--out", out)
        assert done.code == 2
        assert f"{name}.json does not hold" in done.err
        assert done.err.count("\n") == 1
        path.write_text(kept)


def test_the_files_are_named_without_their_folders(
    here: Path, cli: Cli, tmp_path: Path
) -> None:
    """A report is passed on; where its data lay is nobody's business."""
    for moved in ("", "moved/"):
        run = tmp_path / f"{moved}run"
        shutil.copytree(here / "run", run)
        if moved:
            named = json.loads((run / "sources.json").read_text())
            named["x"] = str(here / "gone/x.npy")
            (run / "sources.json").write_text(json.dumps(named))
        assert cli("report", run).code == 0
        for name in ("report.html", "report.md"):
            text = (run / name).read_text()
            assert "x.npy" in text
            assert str(here) not in text


def test_a_plane_of_very_many_dimensions() -> None:
    """The axes are those of the whole covariance, and take no matrix of its size."""
    rows = np.random.default_rng(0).normal(size=(7, 5)) * [3, 1, 2, 0.1, 1]
    plane, share = _plane(rows)
    centred = rows - rows.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    assert share == pytest.approx(values[-2:].sum() / values.sum())
    expected = np.abs(centred @ vectors[:, :-3:-1])
    np.testing.assert_allclose(np.abs(plane), expected / expected.max(), atol=1e-9)
    wide, same = _plane(np.pad(rows, ((0, 0), (0, 200_000))))
    np.testing.assert_allclose(wide, plane, atol=1e-9)
    assert same == pytest.approx(share)
    assert _plane(rows[:1])[0].tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    ("n", "mutual", "confident", "doubtful"),
    [
        (20, 8, [0, 1, 2, 3, 4], [19, 18, 17, 16, 15]),
        (10, 8, [0, 1, 2, 3, 4], [9, 8]),
        (9, 8, [0, 1, 2, 3, 4], [8]),
        (20, 20, [0, 1, 2, 3, 4], [19, 18, 17, 16, 15]),
        (7, 7, [0, 1, 2, 3, 4], [6, 5]),
        (3, 3, [0, 1, 2], []),
        (2, 0, [], [1, 0]),
    ],
)
def test_both_ends_of_the_matches(
    n: int, mutual: int, confident: list[int], doubtful: list[int]
) -> None:
    """Every match that is not mutual is shown where they are few."""
    assert [list(part) for part in _ends(n, mutual)] == [confident, doubtful]


def test_a_model_at_chance_is_said() -> None:
    """In the direction in which the interval is not above it, and in no other."""
    rows = {
        "this model": {
            "x2y/recall@10": Interval(0.14, 0.08, 0.2),
            "y2x/recall@10": Interval(0.4, 0.3, 0.5),
        }
    }
    (said,) = retrieval_sections._at_chance(rows, dict.fromkeys(METRICS, 0.1))
    assert "recall@10 x → y may be chance" in said
    assert "8.0 to 20.0 %, and chance is 10.0 %" in said


def test_markdown_shows_texts_as_they_are() -> None:
    """No character of an item's starts a tag, a table cell, a link or emphasis."""
    item = Item("- a_b", "<b onclick=x>|*bold* `code` [link](u) &amp; \\")
    shown = markdown._item(item)
    assert shown == (
        r"\- a\_b “\<b onclick=x\>\|\*bold\* \`code\` \[link\](u) \&amp; \\”"
    )


def test_molecules_are_drawn_where_they_can_be(here: Path, cli: Cli) -> None:
    pytest.importorskip("rdkit")
    outcome = cli("report", "run", "--smiles", "smiles.csv", "--out", "four")
    assert outcome.code == 0, outcome.err
    text = (here / "four/report.html").read_text()
    assert 'aria-label="structure of CCO"' in text
    assert Page(text).open == []


def test_a_picture_outside_the_folder_is_not_shown(tmp_path: Path) -> None:
    """An id is data: `../secret` must not lead out."""
    (tmp_path / "in").mkdir()
    for place in ("secret.png", "in/fine.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / place)
    assert str(thumbnail(tmp_path / "in", "fine")).startswith("<img ")
    assert thumbnail(tmp_path / "in", "../secret") == ""


def test_transparent_parts_of_a_picture_are_white(tmp_path: Path) -> None:
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tmp_path / "drawing.png")
    shown = str(thumbnail(tmp_path, "drawing"))
    encoded = re.search(r"base64,([^\"]+)", shown)
    assert encoded is not None
    with Image.open(io.BytesIO(base64.b64decode(encoded[1]))) as made:
        assert min(made.getpixel((4, 4))) > 250


def test_without_the_files_the_rest_is_there(
    here: Path, cli: Cli, tmp_path: Path
) -> None:
    shutil.copytree(here / "run", tmp_path / "run")
    (tmp_path / "run/sources.json").unlink()
    outcome = cli("report", tmp_path / "run", "--json")
    assert outcome.code == 0, outcome.err
    said = json.loads(outcome.out)
    assert said["sections"] == SECTIONS
    assert "does not say which files" in said["missing"]
    text = (tmp_path / "run/report.md").read_text()
    assert text.count("does not say which files") == 7
    assert "| x2y/recall@1 |" in text
    assert "Converged after" in text


@pytest.mark.slow
def test_without_test_pairs_a_line_says_so(
    here: Path, cli: Cli, tmp_path: Path
) -> None:
    from planted import OPTIONS

    fitted = cli(
        *("fit", "--x", "x.npy", "--y", "y.npy", "--pairs", "pairs.csv"),
        *("--out", tmp_path / "run", "--gamma", "1", "--eta", "0.1", *OPTIONS),
    )
    assert fitted.code == 0, fitted.err
    assert cli("report", tmp_path / "run").code == 0
    text = (tmp_path / "run/report.md").read_text()
    assert text.count("Left out: the run has no test pairs.") == 4
    assert "No curve: nothing was tried" in text


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["nowhere"], "The run nowhere does not exist"),
        (["run/model"], "is not a run folder"),
        (["run", "--x", "y.npy"], "y.npy"),
        (["run", "--texts-x", "texts.txt"], "one text for each of the 40 rows"),
        (["run", "--images", "none"], "The folder of images none does not exist"),
        (["run", "--smiles", "pairs.csv"], "none of the columns smiles"),
        (["run", "--out", "x.npy"], "x.npy cannot be an output folder"),
    ],
)
def test_bad_input_is_one_sentence(
    here: Path, cli: Cli, more: list[str], message: str
) -> None:
    before = tree(here)
    outcome = cli("report", *more)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.err.startswith("anchordot: error: ")
    assert outcome.err.count("\n") == 1
    assert tree(here) == before


def test_files_that_have_changed_are_refused(
    here: Path, cli: Cli, tmp_path: Path
) -> None:
    changed = np.load("x.npy")
    changed[0] += 1
    np.save(tmp_path / "x.npy", changed)
    outcome = cli("report", "run", "--x", tmp_path / "x.npy")
    assert outcome.code == 2
    assert "do not hold the rows" in outcome.err
