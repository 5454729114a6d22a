"""A gallery ready for search: its embeddings, and what corrects its hubs.

The score of gallery item j for a query is

    score(q, j) = scale <q, g_j> + offset_j.

Every form of correction is one scale and one number an item, its potential, so that
none costs a search more than the plain cosine. With S the cosines, b the bank of
queries, c the bank of the gallery's own side and beta = 1.5 / std of a bank's cosines:

    cosine                 scale 1,                offset 0
    inverted-softmax       scale beta_b,           -log sum_b exp(beta_b S_bj)
    sinkhorn               scale beta_b,           beta_b g_j,  epsilon = 1/beta_b
    dual-inverted-softmax  scale beta_b + beta_c,  both banks' offsets together
    dual-sinkhorn          scale beta_b + beta_c,  both banks' offsets together

The gallery bank of the dual forms holds items that are not searched themselves.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from anchordot_jax import dotted, files, matching
from anchordot_jax.config import IndexForm
from anchordot_jax.errors import InputError
from anchordot_jax.extras import needs
from anchordot_jax.matching.bank import BETA, LEAST_SPREAD, cosine_spread
from anchordot_jax.matching.nearest import TopK, as_embeddings
from anchordot_jax.model import AlignedModel, Side
from anchordot_jax.runs.tensors import read_tensors, tensor_digest, write_tensors

SCHEMA = 1
FILES = frozenset({"config.json", "index.safetensors", "ids.json"})
FORMS: tuple[str, ...] = get_args(IndexForm)


class Potentials(NamedTuple):
    """One form's scores."""

    scale: float
    offsets: np.ndarray
    """`[m]`, float32."""


class GalleryIndex(NamedTuple):
    """A searchable gallery."""

    side: Side
    """Of the queries; the gallery is the other one."""
    embeddings: np.ndarray
    """`[m, k]`, float32, in the shared space."""
    ids: list[Any]
    """Id or row number of each item."""
    potentials: Mapping[str, Potentials]
    """By form."""
    model: str
    """Digest of the model whose queries it is for."""

    def search(self, queries: np.ndarray, k: int, *, form: str) -> TopK:
        """Return the k best items of some embedded queries by a form's score."""
        own = self.potentials[form]
        return matching.top_k(
            queries, self.embeddings, k, scale=own.scale, offsets=own.offsets
        )


def gallery_potentials(
    gallery: np.ndarray, queries: np.ndarray, neighbours: np.ndarray | None
) -> dict[str, Potentials]:
    """Return the potentials of every form.

    Args:
        gallery: embeddings `[m, k]`.
        queries: bank of the queries' side in the shared space, `[b, k]`.
        neighbours: bank of the gallery's own side, `[c, k]`; None: no dual forms.

    Raises:
        InputError: banks that cannot be used, or a transport without a solution.
    """
    from anchordot_jax.matching.sinkhorn import sinkhorn_offsets

    gallery = as_embeddings(gallery, "gallery")
    found = {"cosine": Potentials(1.0, np.zeros(len(gallery), np.float32))}
    sides: dict[str, list[tuple[float, np.ndarray]]] = {}
    for bank in (queries, neighbours):
        if bank is None:
            continue
        beta = BETA / max(cosine_spread(bank, gallery), LEAST_SPREAD)
        softmax = matching.bank_offsets(bank, gallery, beta)
        sinkhorn = sinkhorn_offsets(bank, gallery, 1 / beta)
        sides.setdefault("inverted-softmax", []).append((beta, softmax))
        sides.setdefault("sinkhorn", []).append((beta, sinkhorn))
    for name, banks in sides.items():
        found[name] = Potentials(*banks[0])
        if len(banks) == 2:
            (beta_b, over_queries), (beta_c, over_gallery) = banks
            found[f"dual-{name}"] = Potentials(
                beta_b + beta_c, over_queries + over_gallery
            )
    return found


def model_digest(model: AlignedModel) -> str:
    """Return 64 hexadecimal digits that change whenever the model's maps do."""
    arrays = dotted.flatten(model.params)
    return tensor_digest({name: np.asarray(value) for name, value in arrays.items()})


def check_place(folder: Path) -> None:
    """Raise InputError unless the folder is new, empty, or an index and nothing else.

    A folder with other files is never replaced.
    """
    files.check_writable(folder.parent)
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
    if names and not names <= FILES:
        raise InputError(
            f"{folder} exists and is not an index, or holds other files too; choose "
            f"another --out."
        )


def write_index(folder: Path, index: GalleryIndex) -> None:
    """Write config.json, index.safetensors and ids.json; complete or not at all.

    Raises:
        InputError: the folder holds something else.
    """
    check_place(folder)
    tensors = {"embeddings": np.ascontiguousarray(index.embeddings)}
    for form, own in index.potentials.items():
        tensors[f"offsets.{form}"] = np.ascontiguousarray(own.offsets, np.float32)
    config = {
        "schema": SCHEMA,
        "side": index.side,
        "model": index.model,
        "scales": {form: own.scale for form, own in index.potentials.items()},
    }
    with files.replacing_folder(folder) as temporary:
        write_tensors(temporary / "index.safetensors", tensors)
        files.write_json(temporary / "config.json", files.sealed(config))
        ids = files.sealed({"ids": index.ids})
        files.write_json(temporary / "ids.json", ids, indent=None)


def read_index(folder: Path) -> GalleryIndex:
    """Return the index of a folder.

    Raises:
        InputError: no index there, or one that is damaged or of a newer version.
    """
    what = f"The index {folder}"
    if not folder.is_dir():
        raise InputError(f"{what} does not exist.")
    config = _read_sealed(folder / "config.json", what)
    files.check_schema(config, SCHEMA, what)
    ids = _read_sealed(folder / "ids.json", what).get("ids")
    try:
        tensors = read_tensors(folder / "index.safetensors")
        embeddings = tensors["embeddings"]
        potentials = {
            form: Potentials(float(scale), tensors[f"offsets.{form}"])
            for form, scale in config["scales"].items()
        }
        found = GalleryIndex(
            config["side"], embeddings, list(ids or []), potentials, config["model"]
        )
        if found.side not in get_args(Side):
            raise ValueError(f"its side is {found.side!r}")
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f"{what} is damaged ({error}); make it again with anchordot index."
        ) from None
    sizes = {len(found.ids), *(len(own.offsets) for own in potentials.values())}
    if sizes != {len(embeddings)}:
        raise InputError(
            f"{what} is damaged (its parts differ in length); make it again with "
            f"anchordot index."
        )
    return found


def _read_sealed(path: Path, what: str) -> dict[str, Any]:
    """Return a file's values, which must be those that it was sealed with."""
    values = files.read_json(path, what)
    if files.SEAL not in values:
        raise InputError(
            f"{path} holds no {files.SEAL} of its values; make the index again with "
            f"anchordot index."
        )
    files.check_seal(values, path)
    return values


def write_faiss(path: Path, index: GalleryIndex, form: str) -> None:
    """Write a form's scores as a faiss index of exact inner products.

    A row is (scale g_j, offset_j); a query is (q, 1), so that faiss's inner product is
    the score.

    Raises:
        InputError: faiss is not installed.
    """
    faiss = needs("faiss", extra="faiss", what="--faiss")
    own = index.potentials[form]
    rows = np.concatenate(
        [own.scale * index.embeddings, own.offsets[:, None]], axis=1
    ).astype(np.float32)
    flat = faiss.IndexFlatIP(rows.shape[1])
    flat.add(np.ascontiguousarray(rows))
    with files.replacing(path) as temporary:
        faiss.write_index(flat, str(temporary))
