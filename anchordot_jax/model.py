"""An aligned model: two encoders into one space, with how they were made."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from anchordot_jax import dotted, evaluation, maps, matching
from anchordot_jax.data import EmbeddingSource, validation
from anchordot_jax.errors import InputError
from anchordot_jax.export import exporting, hub
from anchordot_jax.fit_inputs import as_float32
from anchordot_jax.matching.bank import Bank, make_bank
from anchordot_jax.runs import card, model_folder
from anchordot_jax.students import Params

BATCH_SIZE = 8192

Side = Literal["x", "y"]

Rows = ArrayLike | EmbeddingSource

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
        return str(self.info.get("map", {}).get("kind", "students"))

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
        return self._embed("x", x, batch_size)

    def embed_y(self, y: Rows, *, batch_size: int = BATCH_SIZE) -> np.ndarray:
        """Return float32 embeddings `[n, dim]` of y-side rows `[n, dim_y]`.

        Args:
            y: an array, or an opened file, which is read block by block.
            batch_size: rows embedded at once.

        Raises:
            InputError: wrong shape, or rows that are zero or not finite.
        """
        return self._embed("y", y, batch_size)

    def embed_blocks(
        self, side: Side, rows: Rows, *, batch_size: int = BATCH_SIZE
    ) -> Iterator[np.ndarray]:
        """Yield the embeddings of one side's rows, `batch_size` rows at a time.

        Raises:
            InputError: wrong shape, or rows that are zero or not finite.
        """
        self.check_rows(side, rows)
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}.")
        n = (
            rows.shape[0]
            if isinstance(rows, EmbeddingSource)
            else len(np.asarray(rows))
        )
        # Batches are padded to one size, so that one compilation serves them all.
        size = min(batch_size, _next_power_of_two(n))
        settings = tuple(sorted(self.info.get("map", {}).get(side, {}).items()))
        for batch in _batches(side, rows, size):
            padded = np.pad(batch, ((0, size - len(batch)), (0, 0)))
            embedded = _embed(
                self.params, padded, kind=self.kind, side=side, settings=settings
            )
            yield np.asarray(embedded)[: len(batch)]

    def check_rows(self, side: Side, rows: Rows) -> None:
        """Raise InputError unless the rows have the side's dimension."""
        dim = self.dim_x if side == "x" else self.dim_y
        if isinstance(rows, EmbeddingSource):
            where, shape = rows.where, tuple(rows.shape)
        else:
            where, shape = "The array", np.shape(rows)
        if len(shape) != 2 or shape[1] != dim:
            raise InputError(
                f"{where} has shape {shape}, and the model's {side} side takes "
                f"rows of {dim} numbers; give embeddings of the encoder it was fitted "
                f"with."
            )

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
            queries = self._embed(side, bank, BATCH_SIZE)
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
        items = self._embed_pairs(x, y, pairs)
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
        items = self._embed_pairs(x, y, pairs)
        x2y = self.bank_offsets("x", items.y, bank=bank_x)
        y2x = self.bank_offsets("y", items.x, bank=bank_y)
        there = {"x2y": x2y is not None, "y2x": y2x is not None}
        metrics = items.metrics(self.bank_scale, None, None)
        if not any(there.values()):
            return metrics
        beside = items.metrics(self.bank_scale, x2y, y2x)
        return metrics | {
            f"bank/{name}": value
            for name, value in beside.items()
            if there.get(name.split("/")[0])
        }

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
            _bank_tensors(self.bank),
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
        params = _checked_params(contents.tensors, info, folder)
        results = _checked_results(contents.metrics, folder)
        model = cls(params=params, info=info, metrics=results)
        bank = _checked_bank(contents.bank, model.dim, folder)
        return dataclasses.replace(model, bank=bank)

    def _embed(self, side: Side, rows: Rows, batch_size: int) -> np.ndarray:
        blocks = list(self.embed_blocks(side, rows, batch_size=batch_size))
        return np.concatenate(blocks or [np.zeros((0, self.dim), np.float32)])

    def _embed_pairs(self, x: Rows, y: Rows, pairs: ArrayLike) -> "_Items":
        paired = evaluation.positives_from_pairs(np.asarray(pairs))
        return _Items(
            self._embed_some("x", x, paired.query_rows),
            self._embed_some("y", y, paired.gallery_rows),
            paired.positives_x2y,
            paired.positives_y2x,
        )

    def _embed_some(self, side: Side, rows: Rows, chosen: np.ndarray) -> np.ndarray:
        self.check_rows(side, rows)
        if isinstance(rows, EmbeddingSource):
            array, where = rows.read(chosen), rows.where
        else:
            array = np.asarray(rows)
            if chosen.max() >= len(array):
                raise InputError(
                    f"The pairs name row {chosen.max()} of {side}, which has "
                    f"{len(array)} rows, counted from 0."
                )
            array, where = as_float32(array[chosen]), _name(side)
        validation.check_embeddings(array, where, rows=chosen)
        return self._embed(side, array, BATCH_SIZE)


class _Items(NamedTuple):
    """The embeddings of some pairs' rows, once each, and which belong together."""

    x: np.ndarray
    y: np.ndarray
    positives_x2y: np.ndarray
    positives_y2x: np.ndarray

    def metrics(
        self, scale: float, x2y: np.ndarray | None, y2x: np.ndarray | None
    ) -> dict[str, float]:
        """Return the metrics of both directions, with a term a gallery item each."""
        return evaluation.evaluate(*self, offsets_x2y=x2y, offsets_y2x=y2x, scale=scale)


def _bank_tensors(bank: Bank | None) -> dict[str, np.ndarray]:
    if bank is None:
        return {}
    return {"x": bank.x, "y": bank.y, "beta": np.asarray(bank.beta, np.float64)}


def _checked_bank(
    tensors: Mapping[str, np.ndarray], dim: int, folder: Path
) -> Bank | None:
    """Return the tensors as a bank; raise InputError unless they are one."""
    if not tensors:
        return None
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    ok = shapes.keys() == {"x", "y", "beta"} and shapes["beta"] == ()
    ok = ok and all(
        len(shapes[side]) == 2 and shapes[side][0] > 0 and shapes[side][1] == dim
        for side in ("x", "y")
    )
    if not (ok and np.isfinite(tensors["beta"]) and tensors["beta"] > 0):
        raise InputError(
            f"{folder / 'bank.safetensors'} does not hold query banks of {dim} columns "
            f"and their beta; delete it to score by the cosine alone."
        )
    return Bank(tensors["x"], tensors["y"], float(tensors["beta"]))


def _batches(side: Side, rows: Rows, size: int) -> Iterator[np.ndarray]:
    """Yield checked float32 blocks of an array or an opened file."""
    if isinstance(rows, EmbeddingSource):
        for start, block in rows.iter_blocks(size):
            validation.check_embeddings(block, rows.where, first_row=start)
            yield block
        return
    array = np.asarray(rows)
    for start in range(0, len(array), size):
        block = as_float32(array[start : start + size])
        validation.check_embeddings(block, _name(side), first_row=start)
        yield block


def _name(side: Side) -> str:
    return f"The array given as side {side}"


@functools.partial(jax.jit, static_argnames=("kind", "side", "settings"))
def _embed(
    params: Params,
    rows: Array,
    *,
    kind: str,
    side: str,
    settings: tuple[tuple[str, Any], ...],
) -> Float[Array, "n k"]:
    return maps.KINDS[kind].embed(params, rows, side, dict(settings))


def _next_power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _checked_results(metrics: Mapping[str, Any], folder: Path) -> dict[str, float]:
    """Return the stored results; raise InputError unless they are numbers by name."""
    results = metrics.get("results", {})
    if not isinstance(results, Mapping) or not all(
        isinstance(value, int | float) for value in results.values()
    ):
        raise InputError(
            f"{folder / 'metrics.json'} must hold results by name; delete what is "
            f"between the braces of `results`."
        )
    return dict(results)


def _check_map(info: Mapping[str, Any], folder: Path) -> None:
    """Raise InputError unless what is said of the maps is of JSON's simple types."""
    said = info.get("map", {})
    sides = said.values() if isinstance(said, Mapping) else [None]
    if not all(isinstance(side, str) or _are_settings(side) for side in sides):
        raise InputError(
            f"{folder / 'config.json'} does not describe its maps as a model does; "
            f"write the model again."
        )


def _are_settings(values: object) -> bool:
    return isinstance(values, Mapping) and all(
        isinstance(value, int | float | str) for value in values.values()
    )


def _checked_params(
    tensors: Mapping[str, np.ndarray], info: Mapping[str, Any], folder: Path
) -> Params:
    """Return the tensors as params; raise InputError unless their kind has such."""
    _check_map(info, folder)
    kind = AlignedModel(params={}, info=info).kind
    if kind not in maps.KINDS:
        raise InputError(
            f"{folder / 'config.json'} names the maps {kind!r}, which this version "
            f"does not know ({', '.join(maps.KINDS)}); update anchordot-jax."
        )
    try:
        params: Params = dotted.unflatten(tensors)
        maps.KINDS[kind].check(params)
    except ValueError as error:
        what = "students" if kind == "students" else f"{kind} maps"
        raise InputError(
            f"{folder / 'model.safetensors'} does not hold a pair of {what}: "
            f"{error} is missing, unknown or of another shape."
        ) from None
    return params
