"""Figures 14 to 16: retrieval examples, right and wrong ones, drawn by a rule.

    python experiments/figures14_16_examples.py --data flickr8k chebi20 openclipart \
        --data-folder ../shared/data --pictures /usr/share/openclipart/png

The paper shows text -> image (Flickr30k), image -> text (MS-COCO) and text -> molecule
(ChEBI-20), and does not say how the examples were chosen. Here both directions of
AnchorDOT's students are shown, each with `--shown` queries drawn at random by the seed
among those whose partner is first, and as many among those whose partner is not among
the first five.

One page a data set, `figures14_16_examples-DATA.html`, that needs nothing else, and a
PNG where pictures are at hand. Captions of flickr8k and chebi20 may not be passed on
with the project: their pages lie in --out, that of openclipart in --docs. A picture
whose file is not below `--pictures` is shown as its caption; those of openclipart are
in Debian's package openclipart-png. Molecules are SMILES, drawn where RDKit is there.

About a minute a data set on 2 CPU cores.
"""

import csv
import dataclasses
import functools
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from couplings import ETA, GAMMAS
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from results import COLOURS, Options, one_sentence, run_grid, write_results

from anchordot_jax import (
    AnchorDOT,
    Config,
    DistillationConfig,
    InputError,
    evaluation,
    files,
    load_dataset,
    protocol_split,
)
from anchordot_jax.comparison.named import TEST
from anchordot_jax.data.datasets import DataSet
from anchordot_jax.data.texts import read_texts
from anchordot_jax.encoders.base import Rejected
from anchordot_jax.encoders.images import decode
from anchordot_jax.report import html
from anchordot_jax.report.blocks import Example, Examples, Item, Report, Section, Text
from anchordot_jax.report.items import check_images, molecule, picture_path, thumbnail
from anchordot_jax.runs import cells

NAME = "figures14_16_examples"
ANSWERS = 5
ANCHORS = {"openclipart": 300}
"""N where it is not 500."""
MAY_BE_PASSED_ON = ("openclipart",)
WAYS = {"y2x": "text -> {x}", "x2y": "{x} -> text"}
KINDS = {"right": "the partner is first", "wrong": "the partner is not in the first 5"}


class Table(NamedTuple):
    """Where a data set's texts lie beside its embeddings."""

    file: str
    text: str
    """Its columns, separated by tabs."""
    row: str | None
    """Number of the x row; None: the table's rows are in order."""
    smiles: str | None = None


TABLES = {
    "flickr8k": Table("flickr8k_captions.tsv.gz", "caption", "image_row"),
    "chebi20": Table("chebi20.tsv.gz", "description", None, "smiles"),
    "chebi20-fp": Table("chebi20.tsv.gz", "description", None, "smiles"),
    "openclipart": Table("openclipart_captions.tsv.gz", "caption", "row"),
}


@dataclasses.dataclass(frozen=True)
class Args(Options):
    """What to run."""

    data: tuple[str, ...] = ("flickr8k", "chebi20", "openclipart")
    """Data sets by name."""
    texts: Path | None = None
    """Texts of a data set that has no table here: see `anchordot report --texts-y`."""
    pictures: Path | None = None
    """Folder of pictures named by the ids of x."""
    seeds: int = 1
    """The pages show seed 0; the table has all."""
    anchors: int = 500
    """N; 300 on openclipart at most."""
    epochs: int = 100
    """Of the students; the paper's 200 with --full."""
    shown: int = 4
    """Right and wrong examples a direction."""
    full: bool = False
    """The paper's 200 epochs."""


class Names(NamedTuple):
    """What the items are called, by pair."""

    ids: Sequence[str]
    texts: Mapping[int, str]
    smiles: Mapping[int, str]


def run(settings: Mapping[str, Any], *, folder: Path) -> dict[str, Any]:
    """Return the shares of right and wrong, and the drawn examples as JSON text."""
    data, seed = settings["data"], settings["seed"]
    x, y = load_dataset(data, folder).read()
    split = protocol_split(
        len(x), seed=seed, anchors=settings["anchors"], test=settings["test"]
    )
    epochs = settings["epochs"]
    model = AnchorDOT(
        Config(
            recipe="paper",
            gamma=GAMMAS.get(data, 0.75),
            eta=ETA,
            seed=seed,
            bank_size=0,
            distillation=DistillationConfig(
                epochs=epochs, warmup_steps=min(200, epochs)
            ),
        )
    ).fit(x, y, split.anchors, pool_x=x[split.pool_x], pool_y=y[split.pool_y])
    rows = split.test_pairs[:, 0]
    sides = {"x": model.embed_x(x[rows]), "y": model.embed_y(y[rows])}
    result: dict[str, Any] = {}
    for way in WAYS:
        queries, gallery = sides[way[0]], sides[way[-1]]
        found = examples(queries, gallery, rows, shown=settings["shown"], seed=seed)
        result |= {f"{way}/{name}": value for name, value in found.items()}
    return result


def examples(
    queries: np.ndarray, gallery: np.ndarray, rows: np.ndarray, *, shown: int, seed: int
) -> dict[str, Any]:
    """Return the shares of right and wrong queries, and some of each, as JSON text.

    Args:
        queries: embeddings `[t, k]`.
        gallery: `[t, k]`; row i is the partner of query i.
        rows: the data set's pair of each `[t]`.
        shown: how many right and how many wrong ones to draw.
        seed: fixes which.
    """
    ranks = evaluation.expected_rank(
        evaluation.retrieve(queries, gallery, np.arange(len(queries)))
    )
    order = np.argsort(-(queries @ gallery.T), axis=1, kind="stable")[:, :ANSWERS]
    rng = np.random.default_rng(seed)
    drawn = []
    for kind, members in (("right", ranks == 1), ("wrong", ranks > ANSWERS)):
        candidates = np.flatnonzero(members)
        chosen = rng.choice(candidates, min(shown, len(candidates)), replace=False)
        drawn += [
            {
                "kind": kind,
                "query": int(rows[i]),
                "rank": float(ranks[i]),
                "answers": rows[order[i]].tolist(),
                "cosines": [
                    round(float(v), 3) for v in queries[i] @ gallery[order[i]].T
                ],
            }
            for i in chosen
        ]
    return {
        "right": float((ranks == 1).mean()),
        "wrong": float((ranks > ANSWERS).mean()),
        "examples": json.dumps(drawn),
    }


def read_names(loaded: DataSet, folder: Path, texts: Path | None) -> Names:
    """Return ids, texts and SMILES of a data set's pairs.

    Raises:
        InputError: the table that belongs to the data set is missing or damaged.
    """
    rows = loaded.pairs[:, 0]
    ids = [str(loaded.x.row_name(int(row))) for row in rows]
    table = TABLES.get(loaded.name)
    if texts is not None:
        by_row = read_texts(str(texts), loaded.y)
        own = {
            i: by_row[row] for i, row in enumerate(loaded.pairs[:, 1]) if row in by_row
        }
        return Names(ids, own, {})
    if table is None:
        return Names(ids, {}, {})
    path = folder / table.file
    if not path.is_file():
        raise InputError(
            f"The texts of {loaded.name} are not there: {path} is missing; put it "
            f"beside the embeddings, or name a file of texts with --texts."
        )
    found: dict[int, str] = {}
    smiles: dict[int, str] = {}
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            for number, line in enumerate(csv.DictReader(file, delimiter="\t")):
                row = number if table.row is None else int(line[table.row])
                # Of several captions the first, as the paper's protocol has it.
                found.setdefault(row, line[table.text])
                if table.smiles is not None:
                    smiles.setdefault(row, line[table.smiles])
    except (OSError, EOFError, KeyError, ValueError, csv.Error) as error:
        raise InputError(f"{path} is not a table of texts: {error}.") from None
    return Names(ids, found, smiles)


def page(
    data: str, result: Mapping[str, Any], names: Names, args: Args
) -> tuple[str, str]:
    """Return a data set's page and the file's name."""
    kind = "molecule" if names.smiles else "image"
    sections = []
    for way, title in WAYS.items():
        drawn = json.loads(result[f"{way}/examples"])
        blocks: list[Any] = []
        for chosen, meaning in KINDS.items():
            own = [example for example in drawn if example["kind"] == chosen]
            share = 100 * result[f"{way}/{chosen}"]
            blocks.append(
                Text(f"{chosen.capitalize()}: {meaning}, {share:.1f} % of the queries.")
            )
            shown = [_example(each, way, names, args.pictures) for each in own]
            blocks.append(Examples(f"{len(shown)} of them, drawn at random.", shown))
        sections.append(Section(way, title.format(x=kind).replace("->", "→"), blocks))
    lead = (
        f"AnchorDOT's students on {data}: {_anchors(data, args)} anchors, seed 0, "
        f"{TEST} test pairs. The examples are drawn by the seed, not by hand; the "
        f"right answer is framed, the number is the cosine."
    )
    report = Report(f"Retrieval examples: {data}", lead, sections)
    return html.page(report, made_by=f"experiments/{NAME}.py"), f"{NAME}-{data}.html"


def _example(
    drawn: Mapping[str, Any], way: str, names: Names, pictures: Path | None
) -> Example:
    asked, answering = way[0], way[-1]
    query, rank = drawn["query"], drawn["rank"]
    answers = [
        _item(row, answering, names, pictures, f"{cosine:.3f}", right=row == query)
        for row, cosine in zip(drawn["answers"], drawn["cosines"], strict=True)
    ]
    # The partner of a query that was not found is shown after the answers.
    if query not in drawn["answers"]:
        note = f"the partner, at rank {rank:g}"
        answers.append(_item(query, answering, names, pictures, note, right=True))
    return Example(
        f"Rank {rank:g}", _item(query, asked, names, pictures, "query"), answers
    )


def _item(
    pair: int,
    side: str,
    names: Names,
    pictures: Path | None,
    note: str,
    *,
    right: bool = False,
) -> Item:
    name, text = names.ids[pair], names.texts.get(pair, "")
    if side == "y":
        return Item(f"text of {name}", text, note=note, right=right)
    smiles = names.smiles.get(pair, "")
    if smiles:
        return Item(name, smiles, molecule(smiles), note=note, right=right)
    picture = thumbnail(pictures, name) if pictures is not None else ""
    shown = "" if picture else f"picture with the caption: {text}"
    return Item(name, shown, picture or "", picture is None, note, right)


def picture_of(
    drawn: Sequence[Mapping[str, Any]], names: Names, pictures: Path
) -> Figure:
    """Return the examples of text -> image as a picture, a row each."""
    figure = Figure(figsize=(9, 1.35 * len(drawn)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(drawn), ANSWERS + 1, squeeze=False)
    for axes, example in zip(grid, drawn, strict=True):
        text = names.texts.get(example["query"], names.ids[example["query"]])
        axes[0].text(0, 0.5, wrapped(text), fontsize=7, va="center")
        axes[0].set_title(f"rank {example['rank']:g}", fontsize=7, loc="left")
        axes[0].axis("off")
        for place, row in zip(axes[1:], example["answers"], strict=True):
            place.imshow(pixels(pictures, names.ids[row]))
            place.set_xticks([])
            place.set_yticks([])
            right = row == example["query"]
            for spine in place.spines.values():
                spine.set(color=COLOURS[2], linewidth=3, visible=right)
    return figure


def pixels(pictures: Path, name: str, side: int = 160) -> np.ndarray:
    """Return a picture on a white square; white alone where it cannot be read."""
    canvas = np.full((side, side, 3), 255, np.uint8)
    path = picture_path(pictures, name)
    if path is None:
        return canvas
    try:
        small = decode(path)
    except Rejected:
        return canvas
    small.thumbnail((side, side))
    top, left = (side - small.height) // 2, (side - small.width) // 2
    canvas[top : top + small.height, left : left + small.width] = np.asarray(small)
    return canvas


def wrapped(text: str, width: int = 26, lines: int = 5) -> str:
    """Return the first lines of a text, cut between words."""
    words, rows = text.split(), [""]
    for word in words:
        if len(rows[-1]) + len(word) > width:
            rows.append("")
        rows[-1] = f"{rows[-1]} {word}".strip()
    return "\n".join(rows[:lines])


def _anchors(data: str, args: Args) -> int:
    return min(args.anchors, ANCHORS.get(data, args.anchors))


def main(args: Args) -> None:
    """Run what is missing, then write the table and the pages of seed 0."""
    with one_sentence():
        if args.shown < 1 or args.epochs < 1:
            raise InputError("--shown and --epochs must be at least 1.")
        if args.pictures is not None:
            check_images(args.pictures)
        loaded = {data: load_dataset(data, args.data_folder) for data in args.data}
        names = {
            data: read_names(own, args.data_folder, args.texts)
            for data, own in loaded.items()
        }
    grid = [
        cell
        for data in args.data
        for cell in cells.grid(
            NAME,
            data=[data],
            anchors=[_anchors(data, args)],
            test=[TEST],
            epochs=[200 if args.full else args.epochs],
            shown=[args.shown],
            seed=range(args.seeds),
        )
    ]
    records = run_grid(grid, functools.partial(run, folder=args.data_folder), args)
    write_results(NAME, records, args.docs)
    for record in records:
        if record["status"] != "done" or record["settings"]["seed"] != 0:
            continue
        data, result = record["settings"]["data"], record["result"]
        folder = args.docs if data in MAY_BE_PASSED_ON else args.out
        text, file = page(data, result, names[data], args)
        with files.replacing(folder / file) as temporary:
            temporary.write_text(text, encoding="utf-8")
        print(f"{folder / file} written")
        drawn = json.loads(result["y2x/examples"])
        known = args.pictures is not None and any(
            picture_path(args.pictures, names[data].ids[e["query"]]) for e in drawn
        )
        if known:
            path = folder / f"{NAME}-{data}.png"
            with files.replacing(path) as temporary:
                figure = picture_of(drawn, names[data], args.pictures)
                figure.savefig(temporary, dpi=110, metadata={"Software": None})
            print(f"{path} written")


if __name__ == "__main__":
    main(tyro.cli(Args))
