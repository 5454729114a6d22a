"""The generation probe (Appendix C.4): can what was learned from images serve texts?

    python experiments/generation_probe.py --data flickr8k chebi20 openclipart \
        --data-folder ../shared/data --pictures /usr/share/openclipart/png

A converter learns, from x alone, to turn an embedding of the shared space into the
code that a fixed decoder has for the item. Then it is given embeddings of y. Two
decoders:

- nearest: the nearest training item; an item's code is its frozen embedding. It needs
  no pictures, and runs on molecules too.
- autoencoder: a small convolutional one, trained on the x pool's pictures (64 x 64);
  only with `--pictures`. For clip art: `apt-get install openclipart-png`.

Shown are cosines between codes, and how often the own code is among the 10 nearest of
the test codes, for codes made of y; beside them chance, and codes made of x, the most
that can be hoped for. `shuffled` is AnchorDOT on anchors whose pairing was destroyed.
The paper (caption-FFHQ, StyleGAN2 with e4e) shows pictures and prints no figures; how
to put those networks here says `decoders.py`. Expected here: y above chance and well
below x, and shuffled anchors at chance.

With the default sizes about 15 minutes on 2 CPU cores, and 3 more the first time that
pictures are read; `--full` takes whole pools, 200 epochs and 5 seeds.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import picture_autoencoder
import tyro
from couplings import ETA, GAMMAS
from decoders import Decoder, NearestTraining, Probe, probe
from figures14_16_examples import MAY_BE_PASSED_ON, read_names, wrapped
from findings import Finding, difference, judge, write_findings
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from results import (
    COLOURS,
    Options,
    mean_and_deviation,
    new_figure,
    one_sentence,
    run_grid,
    save_figure,
    write_results,
)

from anchordot_jax import Config, DistillationConfig, InputError, files, load_dataset
from anchordot_jax.baselines.registry import METHODS
from anchordot_jax.comparison.problem import Problem, make_problem, shuffle_anchors
from anchordot_jax.data.datasets import DataSet
from anchordot_jax.data.splits import protocol_split
from anchordot_jax.model import AlignedModel
from anchordot_jax.runs import cells

NAME = "generation_probe"
ANCHORS = {"openclipart": 300}
"""N where it is not 500."""
LEARNERS = ("anchordot", "ridge-cca", "shuffled")
SHOWN = 8
"""Test pairs whose pictures are drawn: the first of the split."""
MEASURES = {
    "code_cosine": "cosine of codes",
    "reencoded_cosine": "cosine, encoded again",
    "code_recall@10": "own code in the first 10",
}
SOURCES = {"x": "of x", "y": "of y", "chance": "chance"}


@dataclasses.dataclass(frozen=True)
class Args(Options):
    """What to run."""

    data: tuple[str, ...] = ("flickr8k", "chebi20", "openclipart")
    """Data sets by name."""
    anchors: int = 500
    """N; 300 on openclipart at most."""
    test: int = 400
    """Test pairs."""
    pictures: Path | None = None
    """Folder of pictures named by the ids of x."""
    pictured: tuple[str, ...] = ("openclipart",)
    """The data sets whose pictures lie there."""
    pool: int = 2000
    """Rows of each pool at most."""
    epochs: int = 60
    """Of AnchorDOT's students."""
    picture_epochs: int = 30
    """Of the autoencoder."""
    seeds: int = 3
    full: bool = False
    """Whole pools, 200 epochs and 5 seeds, in the place of --pool, --epochs and
    --seeds."""


def run(
    settings: Mapping[str, Any], *, folder: Path, pictures: Path | None, out: Path
) -> dict[str, Any]:
    """Return every alignment's metrics with one decoder: `LEARNER/METRIC`."""
    loaded = load_dataset(settings["data"], folder)
    seen: dict[int, np.ndarray] | None = None
    if settings["decoder"] == "autoencoder":
        if pictures is None:
            raise InputError(
                f"The autoencoder needs --pictures: {picture_autoencoder.PACKAGE}."
            )
        names = tuple(str(loaded.x.row_name(int(row))) for row in loaded.pairs[:, 0])
        kept = out / f"pictures-{settings['data']}.npz"
        seen = picture_autoencoder.read_pictures(pictures, names, kept)
    problem, rows_pool, rows_test = _problem(loaded, seen, settings)
    decoder: Decoder
    if seen is None:
        images_train, images_test = problem.pools.x, problem.test_x
        decoder = NearestTraining(images_train)
    else:
        images_train = np.stack([seen[row] for row in rows_pool])
        images_test = np.stack([seen[row] for row in rows_test])
        decoder = picture_autoencoder.train(
            images_train, epochs=settings["picture_epochs"], seed=settings["seed"]
        )
    result: dict[str, Any] = {}
    for learner in LEARNERS:
        model = _fit(learner, problem, settings)
        found = probe(
            decoder,
            shared_train=model.embed_x(problem.pools.x),
            images_train=images_train,
            shared_x=model.embed_x(problem.test_x),
            shared_y=model.embed_y(problem.test_y),
            images_test=images_test,
            seed=settings["seed"],
        )
        result |= {f"{learner}/{name}": v for name, v in found.metrics.items()}
        if seen is not None and learner == "anchordot" and settings["seed"] == 0:
            made = _made(found, decoder, images_train, images_test)
            with files.replacing(_strip_path(out, settings["data"])) as temporary:
                np.savez_compressed(temporary, rows=rows_test[:SHOWN], **made)
    return result


def _problem(
    loaded: DataSet, seen: Mapping[int, Any] | None, settings: Mapping[str, Any]
) -> tuple[Problem, np.ndarray, np.ndarray]:
    """Return the problem, and which pairs its x pool and test items are.

    Pairs without a picture are left out where pictures are needed.
    """
    x, y = loaded.read()
    known = np.arange(len(x)) if seen is None else np.array(sorted(seen))
    split = protocol_split(
        len(known),
        seed=settings["seed"],
        anchors=settings["anchors"],
        test=settings["test"],
    )
    if settings["pool"]:
        # Pools are sorted: a random part, not the first.
        rng = np.random.default_rng(settings["seed"])
        pools = {
            name: np.sort(rng.permutation(getattr(split, name))[: settings["pool"]])
            for name in ("pool_x", "pool_y")
        }
        split = split._replace(**pools)
    problem = make_problem(x[known], y[known], split)
    return problem, known[split.pool_x], known[split.test_pairs[:, 0]]


def _fit(learner: str, problem: Problem, settings: Mapping[str, Any]) -> AlignedModel:
    """Return an alignment of the shared space."""
    seed, epochs = settings["seed"], settings["epochs"]
    if learner == "shuffled":
        problem = shuffle_anchors(problem, seed=seed)
    method = METHODS["ridge-cca" if learner == "ridge-cca" else "anchordot"]
    fixed = method.settings
    if isinstance(fixed, Config):
        fixed = Config(
            recipe="paper",
            gamma=GAMMAS.get(settings["data"], 0.75),
            eta=ETA,
            bank_size=0,
            distillation=DistillationConfig(
                epochs=epochs, warmup_steps=min(200, epochs)
            ),
        )
    key = jax.random.key(seed)
    return method.fit(problem.anchors, problem.pools, settings=fixed, key=key)


def _strip_path(out: Path, data: str) -> Path:
    return out / NAME / f"{data}.npz"


def _made(
    found: Probe, decoder: Decoder, train: np.ndarray, test: np.ndarray
) -> dict[str, np.ndarray]:
    """Return rows of pictures of the first test pairs, by what they are made of."""
    codes_y = found.codes_y[:SHOWN]
    own = decoder.encode(test[:SHOWN])
    gaps = np.linalg.norm(codes_y[:, None] - decoder.encode(train)[None], axis=2)
    return {
        "the picture": test[:SHOWN],
        "its own code": decoder.decode(own),
        "its embedding": decoder.decode(found.codes_x[:SHOWN]),
        "its text": decoder.decode(codes_y),
        "nearest to text": train[np.argmin(gaps, axis=1)],
    }


def draw_strips(path: Path, texts: Mapping[int, str]) -> Figure:
    """Return the stored rows of pictures as a figure, the texts above."""
    with np.load(path) as stored:
        rows = stored["rows"]
        made = {name: stored[name] for name in stored.files if name != "rows"}
    figure = Figure(figsize=(1.15 * len(rows) + 0.9, 1.2 * len(made) + 0.6))
    figure.set_layout_engine("constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(made), len(rows), squeeze=False)
    for line, (name, pictures) in zip(grid, made.items(), strict=True):
        for axes, picture in zip(line, pictures, strict=True):
            axes.imshow(picture)
            axes.set_xticks([])
            axes.set_yticks([])
        line[0].set_ylabel(name, fontsize=7)
    for axes, row in zip(grid[0], rows, strict=True):
        axes.set_title(wrapped(texts.get(int(row), ""), 18, 3), fontsize=6)
    return figure


def plot(records: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw each measure by decoder and data set, for AnchorDOT's space."""
    places = list(
        dict.fromkeys(
            (r["settings"]["decoder"], r["settings"]["data"]) for r in records
        )
    )
    figure, panels = new_figure(len(MEASURES), height=3.4)
    for axes, (measure, title) in zip(panels, MEASURES.items(), strict=True):
        for number, (source, label) in enumerate(SOURCES.items()):
            found = mean_and_deviation(
                records, ("decoder", "data"), f"anchordot/{measure}/{source}"
            )
            known = [(i, found[p]) for i, p in enumerate(places) if p in found]
            axes.bar(
                [i + 0.27 * number for i, _ in known],
                [mean for _, (mean, _) in known],
                0.27,
                yerr=[deviation for _, (_, deviation) in known],
                color=COLOURS[number],
                label=label,
                error_kw={"linewidth": 0.8},
            )
        labels = [f"{decoder}\n{data}" for decoder, data in places]
        axes.set_xticks([i + 0.27 for i in range(len(places))], labels, fontsize=6)
        axes.set_title(title, fontsize=8)
    panels[0].legend(fontsize=7)
    return figure


def findings(records: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Return whether texts are served at all, as well as images, and by chance."""
    above, below, control = [], [], []
    for decoder, data in dict.fromkeys(
        (r["settings"]["decoder"], r["settings"]["data"]) for r in records
    ):
        part = {"decoder": decoder, "data": data}
        for claims, first, second in (
            (above, "anchordot/code_cosine/y", "anchordot/code_cosine/chance"),
            (below, "anchordot/code_cosine/y", "anchordot/code_cosine/x"),
            (control, "shuffled/code_cosine/y", "shuffled/code_cosine/chance"),
        ):
            claims.append(
                difference(
                    records,
                    part,
                    part,
                    first,
                    other=second,
                    what=f"{data}, {decoder}: {first} less {second}",
                    scale=100,
                )
            )
    unit = "cosine, hundredths"
    return [
        judge(
            "A converter that saw images alone makes codes of texts.",
            above,
            stated="higher",
            unit=unit,
        ),
        judge(
            "It serves texts less well than images.", below, stated="lower", unit=unit
        ),
        judge(
            "A control that should not hold: with mismatched anchors too.",
            control,
            stated="higher",
            unit=unit,
        ),
    ]


def print_table(records: Sequence[Mapping[str, Any]]) -> None:
    """Print the measures of each space and decoder."""
    names = [f"{m}/{s}" for m in MEASURES for s in SOURCES] + [
        "reencoded_cosine/decoder"
    ]
    print("| data | decoder | space | " + " | ".join(names) + " |")
    print("| --- " * (len(names) + 3) + "|")
    for learner in LEARNERS:
        means = [
            mean_and_deviation(records, ("data", "decoder"), f"{learner}/{name}")
            for name in names
        ]
        for key in means[0]:
            shown = [f"{own[key][0]:.3f} ({own[key][1]:.3f})" for own in means]
            print(f"| {key[0]} | {key[1]} | {learner} | " + " | ".join(shown) + " |")


def main(args: Args) -> None:
    """Run what is missing, then write the table, the figures and the findings."""
    with one_sentence():
        if args.epochs < 1 or args.picture_epochs < 1:
            raise InputError("--epochs and --picture-epochs must be at least 1.")
        for data in args.data:
            load_dataset(data, args.data_folder)
    seeds = 5 if args.full else args.seeds
    grid = []
    for data in args.data:
        with_pictures = args.pictures is not None and data in args.pictured
        for decoder in ("nearest", *(["autoencoder"] if with_pictures else [])):
            grid += cells.grid(
                NAME,
                data=[data],
                decoder=[decoder],
                anchors=[min(args.anchors, ANCHORS.get(data, args.anchors))],
                test=[args.test],
                pool=[0 if args.full else args.pool],
                epochs=[200 if args.full else args.epochs],
                picture_epochs=[args.picture_epochs if decoder != "nearest" else 0],
                seed=range(seeds),
            )
    if args.pictures is None:
        print(f"Without --pictures no autoencoder: {picture_autoencoder.PACKAGE}.")
    run_cell = functools.partial(
        run, folder=args.data_folder, pictures=args.pictures, out=args.out
    )
    records = run_grid(grid, run_cell, args)
    write_results(NAME, records, args.docs)
    save_figure(plot(records), NAME, args.docs)
    print_table(records)
    write_findings(NAME, findings(records), args.docs)
    for data in args.data:
        path = _strip_path(args.out, data)
        if args.pictures is None or not path.is_file():
            continue
        with one_sentence():
            loaded = load_dataset(data, args.data_folder)
            names = read_names(loaded, args.data_folder, None)
        # Pictures may be passed on where the data set may.
        folder = args.docs if data in MAY_BE_PASSED_ON else args.out
        target = folder / f"{NAME}-{data}.png"
        with files.replacing(target) as temporary:
            figure = draw_strips(path, names.texts)
            figure.savefig(temporary, dpi=130, metadata={"Software": None})
        print(f"{target} written")


if __name__ == "__main__":
    main(tyro.cli(Args))
