"""An aligned model: two encoders into one space, with how they were made."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from anchordot_jax import dotted, maps, matching
from anchordot_jax.errors import InputError
from anchordot_jax.export import exporting, hub
from anchordot_jax.matching.bank import Bank, make_bank
from anchordot_jax.model_contents import (
    bank_tensors,
    checked_bank,
    checked_params,
    checked_results,
    map_kind,
)
from anchordot_jax.paired_items import PairedItems
from anchordot_jax.runs import card, model_folder
from anchordot_jax.side_map import BATCH_SIZE as BATCH_SIZE
from anchordot_jax.side_map import Rows as Rows
from anchordot_jax.side_map import Side as Side
from anchordot_jax.side_map import SideMap
from anchordot_jax.students import Params

# The scale of a map that learned none: CLIP's initial temperature.
USUAL_SCALE = 1 / 0.07


class Scores(NamedTuple):
    """Every query's scores, both ways; the second need not be the first transposed."""

    x2y: np.ndarray
    """`[n, m]`: row i holds the scores of x_i's candidates."""
    y2x: np.ndarray
    """`[m, n]`: row j holds the scores of y_j's candidates."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlignedModel:
    """Two maps into one shared space, the trained students or another method's."""

    params: Params
    """The maps' arrays; for students, see `students.init_params`."""
    info: Mapping[str, Any]
    """How the model was made: settings, gamma, eta, sizes, versions; JSON values."""
    metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Results on held-out pairs, where there were any; JSON values."""
    bank: Bank | None = None
    """Query banks that correct hubs, where the model keeps some."""

    @property
    def kind(self) -> str:
        """Kind of the maps, a key of `maps.KINDS`."""
        return map_kind(self.info)

    @property
    def dim_x(self) -> int:
        """Dimension of the x embeddings that go in."""
        return maps.KINDS[self.kind].dims(self.params, "x")[0]

    @property
    def dim_y(self) -> int:
        """Dimension of the y embeddings that go in."""
        return maps.KINDS[self.kind].dims(self.params, "y")[0]

    @property
    def dim(self) -> int:
        """Dimension of the shared space."""
        return maps.KINDS[self.kind].dims(self.params, "x")[1]

    @property
    def logit_scale(self) -> float:
        """Learned scale s, 1/0.07 where none was; s times the cosine is a logit."""
        if "log_scale" not in self.params:
            return USUAL_SCALE
        return float(np.exp(self.params["log_scale"]))

    def embed_x(self, x: Rows, *, batch_size: int = BATCH_SIZE) -> np.ndarray:
        """Return float32 embeddings `[n, dim]` of x-side rows `[n, dim_x]`.

        Args:
            x: an array, or an opened file, which is read block by block.
            batch_size: rows embedded at once.

        Raises:
            InputError: wrong shape, or rows that are zero or not finite.
        """
        return self._map("x").whole(x, batch_size)

    def embed_y(self, y: Rows, *, batch_size: int = BATCH_SIZE) -> np.ndarray:
        """Return float32 embeddings `[n, dim]` of y-side rows `[n, dim_y]`.

        Args:
            y: an array, or an opened file, which is read block by block.
            batch_size: rows embedded at once.

        Raises:
            InputError: wrong shape, or rows that are zero or not finite.
        """
        return self._map("y").whole(y, batch_size)

    def embed_blocks(
        self, side: Side, rows: Rows, *, batch_size: int = BATCH_SIZE
    ) -> Iterator[np.ndarray]:
        """Yield the embeddings of one side's rows, `batch_size` rows at a time.

        Raises:
            InputError: wrong shape, or rows that are zero or not finite.
        """
        yield from self._map(side).blocks(rows, batch_size)

    def check_rows(self, side: Side, rows: Rows) -> None:
        """Raise InputError unless the rows have the side's dimension."""
        self._map(side).check(rows)

    def scores(self, x: Rows, y: Rows) -> Scores:
        """Return the inner products of all x rows with all y rows, both ways.

        The whole matrix; `matching.top_k` finds neighbours among many without it.

        Raises:
            InputError: wrong shapes, or rows that are zero or not finite.
        """
        products = self.embed_x(x) @ self.embed_y(y).T
        return Scores(products, products.T)

    def with_bank(
        self, x: Rows, y: Rows, *, beta: float | None = None
    ) -> "AlignedModel":
        """Return the model with query banks, which are saved with it.

        Args:
            x: unpaired x rows, `[p, dim_x]`.
            y: unpaired y rows, `[q, dim_y]`.
            beta: inverse temperature; by default 1.5 / std(cosines between the banks).

        Raises:
            InputError: wrong shapes, no rows, or bad rows.
        """
        bank = make_bank(self.embed_x(x), self.embed_y(y), beta=beta)
        return dataclasses.replace(self, bank=bank)

    @property
    def bank_scale(self) -> float:
        """Inverse temperature of hub correction: the bank's, or the learned scale."""
        return self.logit_scale if self.bank is None else self.bank.beta

    def bank_offsets(
        self, side: Side, gallery: ArrayLike, *, bank: Rows | None = None
    ) -> np.ndarray | None:
        """Return a term a gallery item, `[m]`, that corrects hubs for a side's queries.

        Scores are bank_scale <q, g_j> + offset_j; None where there is no bank.

        Args:
            side: of the queries.
            gallery: embeddings of the other side, `[m, dim]`.
            bank: unpaired rows of the queries' side, instead of the model's own.

        Raises:
            InputError: rows of the bank that cannot be used.
        """
        if bank is not None:
            queries = self._map(side).whole(bank)
        elif self.bank is not None:
            queries = getattr(self.bank, side).astype(np.float32)
        else:
            return None
        return matching.bank_offsets(queries, np.asarray(gallery), self.bank_scale)

    def evaluate(
        self,
        x: Rows,
        y: Rows,
        pairs: ArrayLike,
        *,
        bank_x: Rows | None = None,
        bank_y: Rows | None = None,
    ) -> dict[str, float]:
        """Return retrieval metrics of some pairs, both ways; recalls are fractions.

        The queries and the gallery are the rows that occur in the pairs, once each; an
        item of several pairs has several right answers. See `evaluation.evaluate` for
        the keys and how ties count. Of an opened file only the needed rows are read.

        Args:
            x: x-side rows, `[n, dim_x]`, an array or an opened file.
            y: y-side rows, `[m, dim_y]`.
            pairs: `[T, 2]` row numbers of x and y.
            bank_x: unpaired x rows. With them x -> y is scored by the inverted softmax
                instead of the cosine, which corrects hubs, see `bank_offsets`.
            bank_y: the same for y -> x.

        Raises:
            InputError: wrong shapes, row numbers out of range, or bad rows.
        """
        items = PairedItems.of(self._map("x"), self._map("y"), x, y, pairs)
        x2y = None if bank_x is None else self.bank_offsets("x", items.y, bank=bank_x)
        y2x = None if bank_y is None else self.bank_offsets("y", items.x, bank=bank_y)
        return items.metrics(self.bank_scale, x2y, y2x)

    def evaluate_both(
        self,
        x: Rows,
        y: Rows,
        pairs: ArrayLike,
        *,
        bank_x: Rows | None = None,
        bank_y: Rows | None = None,
    ) -> dict[str, float]:
        """Return the metrics of the cosine, and those with hubs corrected beside them.

        The latter's keys begin with `bank/`. A direction without a bank, given or the
        model's own, has none.

        Args:
            x: as `evaluate`.
            y: as `evaluate`.
            pairs: as `evaluate`.
            bank_x: unpaired x rows, instead of the model's own bank.
            bank_y: unpaired y rows, instead of the model's own bank.

        Raises:
            InputError: as `evaluate`.
        """
        items = PairedItems.of(self._map("x"), self._map("y"), x, y, pairs)
        x2y = self.bank_offsets("x", items.y, bank=bank_x)
        y2x = self.bank_offsets("y", items.x, bank=bank_y)
        return items.metrics_beside(self.bank_scale, x2y, y2x)

    def save(self, folder: str | Path) -> None:
        """Write config.json, model.safetensors, README.md and metrics.json there.

        And bank.safetensors, where the model has query banks.

        Raises:
            InputError: the place cannot be written to or holds something else.
        """
        tensors = {k: np.asarray(v) for k, v in dotted.flatten(self.params).items()}
        text = card.model_card(self.info, self.metrics)
        model_folder.write_model(
            Path(folder),
            tensors,
            self.info,
            {"results": dict(self.metrics)},
            text,
            bank_tensors(self.bank),
        )

    def export(self, folder: str | Path, fmt: exporting.Format) -> exporting.Export:
        """Write both students for programs without JAX, see `export.exporting`.

        Raises:
            InputError: maps of another kind, a place that cannot be written to, or a
                library that is missing.
        """
        if self.kind != "students":
            raise InputError(
                f"Only students can be exported, and this model holds {self.kind} maps "
                f"(method {self.info.get('method', 'unknown')})."
            )
        return exporting.export_students(
            Path(folder), fmt, self.params, info=self.info, metrics=self.metrics
        )

    def save_results(self, folder: str | Path) -> None:
        """Replace the results and the card of a folder that this model was saved to."""
        text = card.model_card(self.info, self.metrics)
        results = {"results": dict(self.metrics)}
        model_folder.write_results(Path(folder), results, text)

    @classmethod
    def load(cls, folder: str | Path) -> "AlignedModel":
        """Return the model of a model folder, or of a run folder that has finished.

        `hf:USER/NAME` and `hf:USER/NAME@REVISION` name one on the Hugging Face hub.

        Raises:
            InputError: no model there, a file missing or damaged, or a newer schema.
        """
        place = hub.fetch(str(folder)) if hub.is_address(folder) else Path(folder)
        folder = model_folder.locate(place)
        contents = model_folder.read_model(folder)
        info = {k: v for k, v in contents.config.items() if k != "schema"}
        params = checked_params(contents.tensors, info, folder)
        results = checked_results(contents.metrics, folder)
        model = cls(params=params, info=info, metrics=results)
        bank = checked_bank(contents.bank, model.dim, folder)
        return dataclasses.replace(model, bank=bank)

    def _map(self, side: Side) -> SideMap:
        settings = tuple(sorted(self.info.get("map", {}).get(side, {}).items()))
        return SideMap(self.params, self.kind, side, settings)
