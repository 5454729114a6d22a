"""`anchordot search`: the best gallery items for each query."""

import csv
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import tyro

from anchordot_jax.config import IndexForm
from anchordot_jax.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """Find the k best gallery items for each query."""

    model: tyro.conf.Positional[Path]
    """Run folder or model folder."""
    queries: str
    """FILE of the queries' embeddings."""
    gallery: str | None = None
    """FILE of the other side's embeddings, searched."""
    index: Path | None = None
    """Index folder of `anchordot index`, instead of --gallery."""
    form: IndexForm = "inverted-softmax"
    """With --index: how scores are corrected for hubs."""
    side: Literal["x", "y"] = "x"
    """Side of the queries; the gallery is the other one."""
    k: int = 10
    """Matches a query."""
    bank: str | None = None
    """FILE of unpaired items of the queries' side, or `model`: those kept with the
    model. With it, hubs are corrected by an inverted softmax; scores are log
    probabilities up to a constant a query, and the cosines stand beside them. Without
    it scores are cosines."""
    out: Path | None = None
    """CSV to write, instead of standard output."""
    json: bool = False
    """Print one JSON object instead of CSV."""

    def run(self) -> int:
        """Search and return the exit code."""
        from anchordot_jax import files

        if self.k < 1:
            raise InputError(f"--k must be at least 1, got {self.k}.")
        if self.out is not None:
            files.check_output_file(self.out)
        rows = self._matches()
        heads = ["score", "cosine"] if self._corrected else ["score"]
        if self.json:
            self._print_json(rows)
        elif self.out is None:
            _write_csv(sys.stdout, heads, rows)
        else:
            with (
                files.replacing(self.out) as temporary,
                temporary.open("w", encoding="utf-8", newline="") as file,
            ):
                _write_csv(file, heads, rows)
            print(f"Matches: {self.out}")
        return 0

    def _matches(self) -> Iterator["_Match"]:
        """Yield each query's id (or row number) with its matches and their scores."""
        from anchordot_jax import data
        from anchordot_jax.cli.models import load_model

        if (self.gallery is None) == (self.index is None):
            raise InputError("Give --gallery or --index, one of them.")
        model = load_model(self.model)
        if self.index is not None:
            return self._by_index(model, self.index)
        if self.bank == "model" and model.bank is None:
            raise InputError(
                f"{self.model} keeps no query bank; give --bank a file of unpaired "
                f"{self.side} items."
            )
        queries = data.open_embeddings(self.queries)
        gallery = data.open_embeddings(str(self.gallery))
        model.check_rows(self.side, queries)
        embed = {"x": model.embed_x, "y": model.embed_y}
        embedded = embed["y" if self.side == "x" else "x"](gallery)
        scale, offsets = 1.0, None
        if self.bank is not None:
            given = self.bank != "model"
            bank = data.open_embeddings(self.bank) if given else None
            scale = model.bank_scale
            offsets = model.bank_offsets(self.side, embedded, bank=bank)
        names = gallery.ids if gallery.ids is None else gallery.ids.tolist()
        return self._blocks(model, queries, names, embedded, scale, offsets)

    def _by_index(self, model: Any, folder: Path) -> Iterator["_Match"]:
        """Yield the matches in a stored index."""
        from anchordot_jax import data
        from anchordot_jax.fitted import gallery_index

        if self.bank is not None:
            raise InputError("--bank belongs to --gallery; an index has its own.")
        index = gallery_index.read_index(folder)
        if index.model != gallery_index.model_digest(model):
            raise InputError(
                f"{folder} was made with another model than {self.model}; make it "
                f"again with anchordot index."
            )
        if index.side != self.side:
            raise InputError(
                f"{folder} is for queries of side {index.side}, got --side {self.side}."
            )
        if self.form not in index.potentials:
            raise InputError(
                f"{folder} has no form {self.form} ({', '.join(index.potentials)})."
            )
        queries = data.open_embeddings(self.queries)
        model.check_rows(self.side, queries)
        own = index.potentials[self.form]
        offsets = None if self.form == "cosine" else own.offsets
        return self._blocks(
            model, queries, index.ids, index.embeddings, own.scale, offsets
        )

    @property
    def _corrected(self) -> bool:
        """Whether cosines stand beside the scores."""
        if self.index is not None:
            return self.form != "cosine"
        return self.bank is not None

    def _blocks(
        self,
        model: Any,
        queries: Any,
        ids: list[Any] | None,
        embedded: Any,
        scale: float,
        offsets: Any,
    ) -> Iterator["_Match"]:
        from anchordot_jax import matching

        start = 0
        for block in model.embed_blocks(self.side, queries):
            top = matching.top_k(block, embedded, self.k, scale=scale, offsets=offsets)
            for i, (indices, scores) in enumerate(
                zip(top.indices, top.scores, strict=True)
            ):
                names = [int(j) if ids is None else ids[int(j)] for j in indices]
                columns = [[float(s) for s in scores]]
                if offsets is not None:
                    columns.append([float(c) for c in embedded[indices] @ block[i]])
                yield _Match(queries.row_name(start + i), names, columns)
            start += len(block)

    def _print_json(self, rows: Iterator["_Match"]) -> None:
        from anchordot_jax.cli import output

        names = ("scores", "cosines")
        results = [
            {
                "query": row.query,
                "matches": row.matches,
                **dict(zip(names, row.columns, strict=False)),
            }
            for row in rows
        ]
        said = {"bank": self.bank}
        if self.index is not None:
            said = {"index": str(self.index), "form": self.form}
        output.print_json({"k": self.k, **said, "results": results})


class _Match(NamedTuple):
    """One query's matches, best first."""

    query: Any
    matches: list[Any]
    columns: list[list[float]]
    """Scores, and where hubs are corrected the cosines."""


def _write_csv(file: Any, heads: list[str], rows: Iterator[_Match]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["query", "rank", "match", *heads])
    for query, matches, columns in rows:
        for rank, (match, *values) in enumerate(
            zip(matches, *columns, strict=True), start=1
        ):
            writer.writerow([query, rank, match, *(f"{v:.6f}" for v in values)])
