"""`anchordot search`: the best gallery items for each query."""

import csv
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import tyro

from anchordot_jax.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """Find the k best gallery items for each query."""

    model: tyro.conf.Positional[Path]
    """Run folder or model folder."""
    queries: str
    """FILE of the queries' embeddings."""
    gallery: str
    """FILE of the other side's embeddings, searched."""
    side: Literal["x", "y"] = "x"
    """Side of the queries; the gallery is the other one."""
    k: int = 10
    """Matches a query."""
    bank: str | None = None
    """FILE of unpaired items of the queries' side. With it, hubs are corrected by an
    inverted softmax at the learned scale, and scores are log probabilities up to a
    constant a query; without it they are cosines."""
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
        if self.json:
            self._print_json(rows)
        elif self.out is None:
            _write_csv(sys.stdout, rows)
        else:
            with (
                files.replacing(self.out) as temporary,
                temporary.open("w", encoding="utf-8", newline="") as file,
            ):
                _write_csv(file, rows)
            print(f"Matches: {self.out}")
        return 0

    def _matches(self) -> Iterator[tuple[Any, list[Any], list[float]]]:
        """Yield each query's id (or row number) with its matches and their scores."""
        from anchordot_jax import data, matching
        from anchordot_jax.cli.models import load_model

        model = load_model(self.model)
        queries = data.open_embeddings(self.queries)
        gallery = data.open_embeddings(self.gallery)
        model.check_rows(self.side, queries)
        embed = {"x": model.embed_x, "y": model.embed_y}
        embedded = embed["y" if self.side == "x" else "x"](gallery)
        scale, offsets = 1.0, None
        if self.bank is not None:
            scale = model.logit_scale
            bank = embed[self.side](data.open_embeddings(self.bank))
            offsets = matching.bank_offsets(bank, embedded, scale)
        return self._blocks(model, queries, gallery, embedded, scale, offsets)

    def _blocks(
        self,
        model: Any,
        queries: Any,
        gallery: Any,
        embedded: Any,
        scale: float,
        offsets: Any,
    ) -> Iterator[tuple[Any, list[Any], list[float]]]:
        from anchordot_jax import matching

        start = 0
        for block in model.embed_blocks(self.side, queries):
            top = matching.top_k(block, embedded, self.k, scale=scale, offsets=offsets)
            for i, (indices, scores) in enumerate(
                zip(top.indices, top.scores, strict=True)
            ):
                names = [_name(gallery, int(j)) for j in indices]
                yield _name(queries, start + i), names, [float(s) for s in scores]
            start += len(block)

    def _print_json(self, rows: Iterator[tuple[Any, list[Any], list[float]]]) -> None:
        from anchordot_jax.cli import output

        results = [
            {"query": query, "matches": matches, "scores": scores}
            for query, matches, scores in rows
        ]
        output.print_json({"k": self.k, "bank": self.bank, "results": results})


def _name(source: Any, row: int) -> Any:
    """Return a row's id where the file has ids, else its number."""
    return row if source.ids is None else source.ids[row].item()


def _write_csv(file: Any, rows: Iterator[tuple[Any, list[Any], list[float]]]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["query", "rank", "match", "score"])
    for query, matches, scores in rows:
        for rank, (match, score) in enumerate(zip(matches, scores, strict=True), 1):
            writer.writerow([query, rank, match, f"{score:.6f}"])
