"""`anchordot index`: a gallery ready for search, its hubs corrected."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from anchordot_jax.config import IndexForm
from anchordot_jax.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from anchordot_jax.model import AlignedModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class Index:
    """Store a gallery's embeddings with what corrects its hubs, for `search --index`.

    Banks of unpaired items say which gallery items are everybody's match: those kept
    with the model, unless files are given.
    """

    model: tyro.conf.Positional[Path]
    """Run folder or model folder."""
    gallery: str
    """FILE of the embeddings to be searched."""
    out: Path
    """Index folder to write."""
    side: Literal["x", "y"] = "x"
    """Side of the queries; the gallery is the other one."""
    bank: str | None = None
    """FILE of unpaired items of the queries' side, instead of the model's bank."""
    gallery_bank: str | None = None
    """FILE of unpaired items of the gallery's side, for the dual forms, instead of the
    model's bank."""
    faiss: Path | None = None
    """Also write a faiss index (IndexFlatIP; queries are (q, 1)) of one form."""
    form: IndexForm = "inverted-softmax"
    """Form of the faiss index; the index folder holds all of them."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Build and write the index, and return the exit code."""
        from anchordot_jax import data, files
        from anchordot_jax.cli import output
        from anchordot_jax.cli.models import load_model
        from anchordot_jax.fitted import gallery_index

        gallery_index.check_place(self.out)
        if self.faiss is not None:
            files.check_output_file(self.faiss)
            if self.faiss.resolve().is_relative_to(self.out.resolve()):
                raise InputError(
                    f"--faiss {self.faiss} is in the index folder {self.out}, which "
                    f"is replaced as a whole; choose a place beside it."
                )
        model = load_model(self.model)
        gallery = data.open_embeddings(self.gallery)
        other: Literal["x", "y"] = "y" if self.side == "x" else "x"
        queries = self._bank(model, self.side, self.bank)
        neighbours = self._bank(model, other, self.gallery_bank)
        if queries is None:
            raise InputError(
                f"{self.model} keeps no query bank; give --bank a file of unpaired "
                f"{self.side} items."
            )
        embedded = _embed(model, other, gallery)
        index = gallery_index.GalleryIndex(
            self.side,
            embedded,
            _ids(gallery),
            gallery_index.gallery_potentials(embedded, queries, neighbours),
            gallery_index.model_digest(model),
        )
        if self.faiss is not None and self.form not in index.potentials:
            raise InputError(f"--form {self.form} needs --gallery-bank.")
        gallery_index.write_index(self.out, index)
        if self.faiss is not None:
            gallery_index.write_faiss(self.faiss, index, self.form)
        if self.json:
            output.print_json(
                {
                    "out": str(self.out),
                    "items": len(embedded),
                    "scales": {k: v.scale for k, v in index.potentials.items()},
                }
            )
            return 0
        print(f"{len(embedded)} items: {self.out}; {', '.join(index.potentials)}.")
        return 0

    def _bank(
        self, model: "AlignedModel", side: Literal["x", "y"], file: str | None
    ) -> "np.ndarray | None":
        """Return a bank in the shared space; None where there is none."""
        import numpy as np

        from anchordot_jax import data

        if file is not None:
            return _embed(model, side, data.open_embeddings(file))
        if model.bank is None:
            return None
        return np.asarray(getattr(model.bank, side), np.float32)


def _embed(model: "AlignedModel", side: Literal["x", "y"], source: Any) -> "np.ndarray":
    return model.embed_x(source) if side == "x" else model.embed_y(source)


def _ids(source: Any) -> list[Any]:
    if source.ids is None:
        return list(range(source.shape[0]))
    return list(source.ids.tolist())
