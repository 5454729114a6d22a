"""A stored gallery: its scores against the dense rules, and the files."""

import json
from pathlib import Path

import numpy as np
import pytest

from anchordot_jax import files
from anchordot_jax.errors import InputError
from anchordot_jax.fitted import gallery_index
from anchordot_jax.fitted.gallery_index import FORMS, GalleryIndex
from anchordot_jax.matching import query_bank
from anchordot_jax.matching.bank import BETA
from anchordot_jax.matching.sinkhorn import sinkhorn


def unit(rng: np.random.Generator, n: int) -> np.ndarray:
    rows = rng.normal(size=(n, 6))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def sides() -> tuple[np.ndarray, ...]:
    """Return 11 queries, 13 gallery items, banks of 17 queries and 19 neighbours."""
    rng = np.random.default_rng(0)
    return unit(rng, 11), unit(rng, 13), unit(rng, 17), unit(rng, 19)


@pytest.fixture(scope="module")
def index(sides: tuple[np.ndarray, ...]) -> GalleryIndex:
    """Return the index of the gallery."""
    _, gallery, bank, neighbours = sides
    potentials = gallery_index.gallery_potentials(gallery, bank, neighbours)
    ids = [f"item {i}" for i in range(len(gallery))]
    return GalleryIndex("x", gallery, ids, potentials, "0" * 16)


def scores(index: GalleryIndex, queries: np.ndarray, form: str) -> np.ndarray:
    """Return all scores of a form, in the gallery's order."""
    found = index.search(queries, len(index.embeddings), form=form)
    table = np.empty(found.scores.shape, np.float32)
    np.put_along_axis(table, found.indices.astype(int), found.scores, axis=1)
    return table


def betas(sides: tuple[np.ndarray, ...]) -> tuple[float, float]:
    _, gallery, bank, neighbours = sides
    return tuple(BETA / float((part @ gallery.T).std()) for part in (bank, neighbours))


def test_the_softmax_forms_are_those_of_the_whole_matrices(
    sides: tuple[np.ndarray, ...], index: GalleryIndex
) -> None:
    queries, gallery, bank, neighbours = sides
    beta_b, beta_c = betas(sides)
    s, over_b = queries @ gallery.T, bank @ gallery.T
    single = query_bank.inverted_softmax(s, beta_b, bank=over_b)
    assert np.allclose(scores(index, queries, "inverted-softmax"), single, atol=1e-4)
    dual = query_bank.dual_bank(
        s,
        gallery_bank=neighbours @ gallery.T,
        query_bank=over_b,
        query_beta=beta_b,
        gallery_beta=beta_c,
    )
    shown = scores(index, queries, "dual-inverted-softmax")
    assert np.allclose(shown, dual, atol=1e-4)


def test_the_sinkhorn_form_gives_each_item_the_same_mass(
    sides: tuple[np.ndarray, ...], index: GalleryIndex
) -> None:
    """A bank's query ranks by its own row of the converged plan."""
    _, gallery, bank, _ = sides
    plan = sinkhorn(bank @ gallery.T, 1 / betas(sides)[0])
    shown = scores(index, bank, "sinkhorn")
    level = shown - plan
    assert np.allclose(level, level.mean(axis=1, keepdims=True), atol=1e-3)


def test_the_cosine_is_plain_and_dual_needs_a_second_bank(
    sides: tuple[np.ndarray, ...], index: GalleryIndex
) -> None:
    queries, gallery, bank, _ = sides
    assert np.allclose(scores(index, queries, "cosine"), queries @ gallery.T, atol=1e-6)
    assert tuple(index.potentials) == (
        *("cosine", "inverted-softmax", "dual-inverted-softmax"),
        *("sinkhorn", "dual-sinkhorn"),
    )
    alone = gallery_index.gallery_potentials(gallery, bank, None)
    assert set(FORMS) - set(alone) == {"dual-inverted-softmax", "dual-sinkhorn"}


def test_what_is_written_is_read(index: GalleryIndex, tmp_path: Path) -> None:
    gallery_index.write_index(tmp_path / "index", index)
    found = gallery_index.read_index(tmp_path / "index")
    assert found.ids == index.ids
    assert (found.side, found.model) == (index.side, index.model)
    assert np.array_equal(found.embeddings, index.embeddings)
    for form, own in index.potentials.items():
        assert found.potentials[form].scale == own.scale
        assert np.array_equal(found.potentials[form].offsets, own.offsets)
    gallery_index.write_index(tmp_path / "index", index)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_damage_and_other_folders_are_refused(
    index: GalleryIndex, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="does not exist"):
        gallery_index.read_index(tmp_path / "none")
    folder = tmp_path / "index"
    gallery_index.write_index(folder, index)
    (folder / "ids.json").write_text(json.dumps(files.sealed({"ids": ["one"]})))
    with pytest.raises(InputError, match="its parts differ in length"):
        gallery_index.read_index(folder)
    (folder / "index.safetensors").write_bytes(b"no")
    with pytest.raises(InputError, match="is damaged"):
        gallery_index.read_index(folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/note.txt").write_text("keep")
    with pytest.raises(InputError, match="is not an index"):
        gallery_index.write_index(tmp_path / "mine", index)
    assert (tmp_path / "mine/note.txt").read_text() == "keep"


def test_faiss_ranks_as_we_do(
    sides: tuple[np.ndarray, ...], index: GalleryIndex, tmp_path: Path
) -> None:
    faiss = pytest.importorskip("faiss")
    queries = sides[0]
    for form in FORMS:
        gallery_index.write_faiss(tmp_path / "gallery.faiss", index, form)
        stored = faiss.read_index(str(tmp_path / "gallery.faiss"))
        ones = np.ones((len(queries), 1), np.float32)
        values, items = stored.search(np.concatenate([queries, ones], axis=1), 4)
        ours = index.search(queries, 4, form=form)
        assert np.array_equal(items, ours.indices)
        assert np.allclose(values, ours.scores, rtol=1e-5, atol=1e-5)


def test_without_faiss_a_sentence_says_so(
    index: GalleryIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(InputError, match="which is not installed; run pip install"):
        gallery_index.write_faiss(tmp_path / "gallery.faiss", index, "cosine")
    assert list(tmp_path.iterdir()) == []
