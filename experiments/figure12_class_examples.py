"""Figure 12: examples of zero-shot classification, methods side by side.

    python experiments/figure12_class_examples.py --data flickr8k \
        --classes openclipart --data-folder ../shared/data \
        --pictures /usr/share/openclipart/png

The paper shows ImageNet images with the class that AnchorDOT, SOTAlign and SUE, fitted
on Flickr30k, and CLIP give them, and does not say how it chose them. Here `--shown`
images are drawn at random by the seed among those that Table 3 classifies, the same for
all methods, and each has its class and what the methods took it for. With imagenet7's
files at hand: `--data flickr30k --classes imagenet7 --pictures FOLDER`, where FOLDER
has the pictures named by the ids of x.

Written are the table of the answers and, for seed 0, the picture, into --docs for
openclipart, whose pictures may be passed on (Debian's package openclipart-png), and
into --out for the others. A minute after Table 3, whose fits it shares.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fits
import numpy as np
import table3_zero_shot
import tyro
from class_task import class_task
from figures14_16_examples import MAY_BE_PASSED_ON, pixels
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from results import COLOURS, distinct, one_sentence, run_grid, write_results

from anchordot_jax import InputError, files, load_dataset
from anchordot_jax.baselines.registry import METHODS
from anchordot_jax.report.items import check_images
from anchordot_jax.runs import cells

NAME = "figure12_class_examples"
A_ROW = 6
SIDE, LINE = 1.3, 0.15
"""Inches of a picture and of a line of text."""


@dataclasses.dataclass(frozen=True)
class Args(fits.PooledOptions):
    """What to run."""

    data: str = "flickr8k"
    """What the models are fitted on."""
    classes: str = "openclipart"
    """What is classified: flickr8k, openclipart, or imagenet7 as in the paper."""
    methods: tuple[str, ...] = ("sue", "sotalign", "anchordot")
    pictures: Path | None = None
    """Folder of pictures named by the ids of x; none: the table alone."""
    anchors: int = 500
    shown: int = 12
    """Images."""
    seeds: int = 1
    """The picture shows seed 0; the table has all."""


def run(settings: Mapping[str, Any], *, folder: Path, out: Path) -> dict[str, Any]:
    """Return the accuracy over all images, and the drawn answers as JSON text.

    Raises:
        InputError: other encoders, or a method that has no embeddings.
    """
    task = class_task(settings, folder)
    images, classes = table3_zero_shot.embedded(settings, task, folder=folder, out=out)
    predicted = (images @ classes.T).argmax(axis=1)
    names = np.array(task.names)
    drawn = examples(
        names[predicted],
        names[task.image_labels],
        task.rows,
        shown=settings["shown"],
        seed=settings["seed"],
    )
    right = predicted == task.image_labels
    return {"top1": float(right.mean()), "examples": json.dumps(drawn)}


def examples(
    predicted: np.ndarray,
    labels: np.ndarray,
    rows: np.ndarray,
    *,
    shown: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Return row, class and answer of some images, drawn whatever the answers are.

    Args:
        predicted: class that each image is taken for `[q]`.
        labels: its own `[q]`.
        rows: its row in the data set `[q]`.
        shown: how many to draw, at most all.
        seed: fixes which.
    """
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(len(rows), min(shown, len(rows)), replace=False))
    return [
        {
            "row": rows[i].item(),
            "label": labels[i].item(),
            "predicted": predicted[i].item(),
        }
        for i in chosen
    ]


def answers(
    records: Sequence[Mapping[str, Any]], *, seed: int = 0
) -> dict[int, dict[str, str]]:
    """Return the class of each drawn image and each method's answer, by row."""
    found: dict[int, dict[str, str]] = {}
    by_method = {
        record["settings"]["method"]: json.loads(record["result"]["examples"])
        for record in records
        if record["settings"]["seed"] == seed
    }
    for method in distinct(records, "method"):
        for each in by_method.get(method, []):
            own = found.setdefault(each["row"], {"label": each["label"]})
            own[method] = each["predicted"]
    return found


def picture_of(
    found: Mapping[int, Mapping[str, str]], ids: Mapping[int, str], pictures: Path
) -> Figure:
    """Return each image with its class and the methods' answers, right ones green."""
    n_rows = -(-len(found) // A_ROW)
    # Inches: a picture, its class above it, and a line a method below it.
    above, below = 0.3, LINE * len(next(iter(found.values())))
    height = n_rows * (SIDE + above + below)
    figure = Figure(figsize=(A_ROW * (SIDE + 0.2), height))
    FigureCanvasAgg(figure)
    grid = figure.subplots(n_rows, A_ROW, squeeze=False).ravel()
    figure.subplots_adjust(
        left=0.01,
        right=0.99,
        top=1 - above / height,
        bottom=below / height,
        hspace=(above + below) / SIDE,
    )
    for axes in grid:
        axes.axis("off")
    for axes, (row, own) in zip(grid, found.items(), strict=False):
        axes.imshow(pixels(pictures, ids[row]))
        axes.set_title(own["label"], fontsize=8, weight="bold")
        given = {method: name for method, name in own.items() if method != "label"}
        for line, (method, name) in enumerate(given.items()):
            right = name == own["label"]
            axes.text(
                0.5,
                -(line + 0.3) * LINE / SIDE,
                f"{METHODS[method].title}: {name}",
                transform=axes.transAxes,
                fontsize=6.5,
                color=COLOURS[2] if right else COLOURS[5],
                ha="center",
                va="top",
            )
    return figure


def main(args: Args) -> None:
    """Run what is missing, then write the table and the picture of seed 0."""
    with one_sentence():
        if args.shown < 1:
            raise InputError("--shown must be at least 1.")
        if args.pictures is not None:
            check_images(args.pictures)
        fitted = fits.fit_grid(
            args,
            data=[args.data],
            methods=args.methods,
            anchors=[args.anchors],
            pool=args.pools,
        )
    more = {"classes": args.classes, "shown": args.shown}
    grid = [cells.Cell(NAME, cell.settings | more) for cell in fitted]
    call = functools.partial(run, folder=args.data_folder, out=args.out)
    records = [r for r in run_grid(grid, call, args) if r["status"] == "done"]
    write_results(NAME, records, args.docs)
    found = answers(records)
    for row, own in found.items():
        print(f"row {row}: " + ", ".join(f"{who} {name}" for who, name in own.items()))
    if args.pictures is None:
        return
    source = load_dataset(args.classes, args.data_folder).x
    ids = {row: str(source.row_name(row)) for row in found}
    folder = args.docs if args.classes in MAY_BE_PASSED_ON else args.out
    path = folder / f"{NAME}.png"
    with files.replacing(path) as temporary:
        figure = picture_of(found, ids, args.pictures)
        figure.savefig(temporary, dpi=110, metadata={"Software": None})
    print(f"{path} written")


if __name__ == "__main__":
    main(tyro.cli(Args))
