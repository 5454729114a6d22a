"""Is the refined recipe better than the paper's, on seeds that no choice was made on?

Command (DIR is a folder of chebi20.h5, flickr8k.h5, openclipart.h5 and
extra_molecules.h5; hours on 2 CPU cores, nearly all of them the paper's recipe):

    python experiments/beyond_the_paper.py --data-folder DIR

It has three parts, each of which skips what is in --out or --docs already:

1. choices: every method's settings, for every data set, number of anchors and seed, by
   one procedure: 5-fold cross-validation over the anchors, smallest mean log rank. Only
   rows of anchors and pools are read.
2. docs/beyond_the_paper_frozen.json: the choices and everything that was fixed
   beforehand. What is in it never changes; new cases are added.
3. cells: fits by the frozen choices, and only now the test items. Scores by the cosine,
   and with hubs corrected by the bank that a model keeps of its pools.

Then docs/beyond_the_paper.md and .csv are written; of what is in the .csv nothing is
run again. Protocol as in all_methods.py; the data sets ending in -more have further
unpaired molecules in their x pool.
"""

import dataclasses
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from beyond_tables import LABELS, Case, page, read_cells, write_cells

from anchordot_jax import files, open_embeddings, protocol_split, selection
from anchordot_jax.baselines.closed_form import soft_cca
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.baselines.registry import METHODS
from anchordot_jax.comparison import summary
from anchordot_jax.comparison.memory import peak_memory
from anchordot_jax.config import Config, RefinedConfig, SelectionConfig, SoftCcaConfig
from anchordot_jax.data.splits import Split
from anchordot_jax.matching.bank import BETA, bank_rows
from anchordot_jax.model import AlignedModel
from anchordot_jax.recipes.heldout_ranks import bank_ranks
from anchordot_jax.settings.refined import CHOSEN

TEXT = "chebi20.h5::text"
DATASETS = {
    "chebi20": ("chebi20.h5::molecule", TEXT, None),
    "chebi20-fp": ("chebi20.h5::molecule_fp", TEXT, None),
    "flickr8k": ("flickr8k.h5::image", "flickr8k.h5::text", None),
    "openclipart": ("openclipart.h5::image", "openclipart.h5::text", None),
    "chebi20-more": ("chebi20.h5::molecule", TEXT, "extra_molecules.h5::molecule"),
    "chebi20-fp-more": (
        "chebi20.h5::molecule_fp",
        TEXT,
        "extra_molecules.h5::molecule_fp",
    ),
}
SIZES = {
    name: (300 if name == "openclipart" else 500, 100, 200, 50) for name in DATASETS
}
"""Numbers of anchors: ten seeds of the first two, three of the others, and three of all
of chebi20-fp-more, which repeats chebi20-more with the other encoder."""
TEST = 400
TEN = tuple(range(100, 110))
THREE = TEN[:3]
FOLDS = 5
GALLERY = 500


@dataclasses.dataclass(frozen=True)
class Args:
    """What to run."""

    data_folder: Path
    """Folder of the embedding files."""
    out: Path = Path("runs/beyond")
    """Folder of the choices and the cells, as they are made."""
    docs: Path = Path("docs")
    """Folder of beyond_the_paper_frozen.json, .md and .csv."""
    datasets: tuple[str, ...] = tuple(DATASETS)
    methods: tuple[str, ...] = tuple(LABELS)
    """Where there are more molecules, only the soft-matched CCA and the refined recipe
    are run, of those named."""
    anchors: tuple[int, ...] | None = None
    """Numbers of anchors; by default 500 (openclipart: 300), 200, 100 and 50."""
    seeds: tuple[int, ...] | None = None
    """By default 100 to 109 for the largest number and 100, and 100 to 102 else; for
    chebi20-fp-more 100 to 102."""
    only_tables: bool = False
    """Run nothing; make the tables of what is there."""

    @property
    def frozen(self) -> Path:
        """The file of the choices."""
        return self.docs / "beyond_the_paper_frozen.json"

    @property
    def table(self) -> Path:
        """The file of the cells."""
        return self.docs / "beyond_the_paper.csv"


def case_file(case: Case, out: Path, kind: str) -> Path:
    """Return where a case's choice or its cell is kept."""
    folder = out / kind / f"{case.dataset}-{case.n}" / case.method
    return folder / f"seed-{case.seed}.json"


def case_name(case: Case) -> str:
    """Return a case's name among the frozen choices."""
    return f"{case.dataset}-{case.n}/{case.method}/seed-{case.seed}"


class Unscored(NamedTuple):
    """What a choice and a fit may see."""

    anchors: Anchors
    pools: Pools


def cases(args: Args) -> list[Case]:
    """Return all cases asked for, the largest numbers of anchors first."""
    found = []
    for i, dataset in itertools.product(range(4), args.datasets):
        n = SIZES[dataset][i]
        if args.anchors is not None and n not in args.anchors:
            continue
        many = i < 2 and dataset != "chebi20-fp-more"
        seeds = args.seeds or (TEN if many else THREE)
        more = dataset.endswith("-more")
        methods = [m for m in args.methods if not more or m in soft_methods()]
        found += [Case(dataset, n, m, s) for s in seeds for m in methods]
    return found


def soft_methods() -> tuple[str, ...]:
    """Return the methods that share the choice of the soft-matched CCA."""
    return ("soft-cca", "anchordot-refined")


def split_of(args: Args, case: Case) -> Split:
    """Return the rows of a case; no row is read."""
    rows = open_embeddings(f"{args.data_folder / DATASETS[case.dataset][0]}").shape[0]
    return protocol_split(rows, seed=case.seed, anchors=case.n, test=TEST)


def read(args: Args, file: str, rows: np.ndarray | None) -> np.ndarray:
    """Return some rows of a file, scaled to unit norm."""
    values = open_embeddings(f"{args.data_folder / file}").read(rows)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def load_unscored(args: Args, case: Case) -> Unscored:
    """Return anchors and pools; no test item is read."""
    file_x, file_y, more = DATASETS[case.dataset]
    split = split_of(args, case)
    pool_x = read(args, file_x, split.pool_x)
    if more is not None:
        pool_x = np.concatenate([pool_x, read(args, more, None)])
    return Unscored(
        Anchors(
            read(args, file_x, split.anchors[:, 0]),
            read(args, file_y, split.anchors[:, 1]),
        ),
        Pools(pool_x, read(args, file_y, split.pool_y)),
    )


def load_test(args: Args, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return the test items; row k of x belongs to row k of y."""
    file_x, file_y, _ = DATASETS[case.dataset]
    split = split_of(args, case)
    return (
        read(args, file_x, split.test_pairs[:, 0]),
        read(args, file_y, split.test_pairs[:, 1]),
    )


def choose(method: str, given: Unscored, seed: int) -> dict[str, Any]:
    """Return a method's settings of smallest held-out log rank, with all tried."""
    key = jax.random.key(seed)
    if method == "soft-cca":
        settings, _ = soft_cca.choose_soft_cca(
            *given, settings=SoftCcaConfig(), key=key
        )
        return {name: getattr(settings, name) for name in CHOSEN}
    if method == "anchordot":
        return _choose_paper(given, seed)
    return _choose_by_folds(method, given, key)


def _choose_paper(given: Unscored, seed: int) -> dict[str, Any]:
    """Return gamma and eta by the ranks in the plan, on five folds of the anchors."""
    few = SelectionConfig(heldout=1 / FOLDS, min_heldout=len(given.anchors.x))
    found = selection.select(
        *(jnp.asarray(rows) for rows in (*given.anchors, *given.pools)),
        Config(recipe="paper", selection=few),
        key=jax.random.key(seed),
    )
    best = min(found.curve, key=lambda candidate: candidate.log_rank)
    return {"gamma": best.gamma, "eta": best.eta}


def _choose_by_folds(method: str, given: Unscored, key: jax.Array) -> dict[str, Any]:
    """Return the candidate of a method's grid, by ranks with hubs corrected."""
    known = METHODS[method]
    candidates = known.candidates(known.settings)
    key_folds, key_x, key_y, key_fit = jax.random.split(key, 4)
    x, y = given.anchors
    gallery_x = given.pools.x[bank_rows(len(given.pools.x), GALLERY, key=key_x)]
    gallery_y = given.pools.y[bank_rows(len(given.pools.y), GALLERY, key=key_y)]
    order = np.asarray(jax.random.permutation(key_folds, len(x)))
    logs: list[list[np.ndarray]] = [[] for _ in candidates]
    for held in np.array_split(order, FOLDS):
        kept = np.setdiff1d(order, held)
        fits = known.fit_candidates(
            Anchors(x[kept], y[kept]), given.pools, candidates, key=key_fit
        )
        for own, model in zip(logs, fits, strict=True):
            u = model.embed_x(np.concatenate([x[held], gallery_x]))
            v = model.embed_y(np.concatenate([y[held], gallery_y]))
            h = len(held)
            own.append(np.log(bank_ranks(u, v, u[h:], v[h:], h)).mean(axis=0))
    means = [float(np.concatenate(own).mean()) for own in logs]
    best = dataclasses.asdict(candidates[int(np.argmin(means))])
    return {name: best[name] for name in known.grid}


def fit(
    method: str, chosen: dict[str, Any], given: Unscored, seed: int
) -> AlignedModel:
    """Return the model of some chosen settings, with its bank."""
    settings = METHODS[method].settings
    if method == "anchordot-refined":
        soft = dataclasses.replace(settings.soft_cca, **chosen)
        settings = dataclasses.replace(settings, soft_cca=soft)
    else:
        settings = dataclasses.replace(settings, **chosen)
    key = jax.random.key(seed)
    model = METHODS[method].fit(*given, settings=settings, key=key)
    if model.bank is None:
        key_x, key_y = jax.random.split(key)
        size = Config().bank_size
        model = model.with_bank(
            given.pools.x[bank_rows(len(given.pools.x), size, key=key_x)],
            given.pools.y[bank_rows(len(given.pools.y), size, key=key_y)],
        )
    return model


def chosen_by(method: str) -> str:
    """Return the method whose choice a method takes."""
    return "soft-cca" if method in soft_methods() else method


def make_choices(args: Args, wanted: list[Case], say: Callable[[str], None]) -> None:
    """Make and store the choices that are not there yet."""
    known = frozen_choices(args)
    for case in dict.fromkeys(c._replace(method=chosen_by(c.method)) for c in wanted):
        path = case_file(case, args.out, "choices")
        if path.exists() or case_name(case) in known:
            continue
        given = load_unscored(args, case)
        start = time.perf_counter()
        chosen = choose(case.method, given, case.seed)
        seconds = time.perf_counter() - start
        files.write_json(path, {"chosen": chosen, "seconds": seconds})
        say(f"chosen {case_name(case)}: {chosen}, {seconds:.1f} s")


def protocol() -> dict[str, Any]:
    """Return what was fixed before any choice, as JSON values."""
    fixed = {
        "test": TEST,
        "folds": FOLDS,
        "gallery": GALLERY,
        "beta": BETA,
        "bank_size": Config().bank_size,
        "soft_cca": dataclasses.asdict(SoftCcaConfig()),
        "refined": dataclasses.asdict(RefinedConfig()),
        "paper": Config(recipe="paper").to_dict(),
        "grids": {m: dict(METHODS[m].grid) for m in ("ridge-cca", "contrastive-tuned")},
    }
    return json.loads(json.dumps(fixed))


def frozen_choices(args: Args) -> dict[str, dict[str, Any]]:
    """Return the frozen choices by name; none before anything was frozen."""
    if not args.frozen.exists():
        return {}
    frozen = files.read_json(args.frozen, str(args.frozen))
    if frozen["protocol"] != protocol():
        raise SystemExit(
            f"{args.frozen} was frozen under another protocol; take another --docs and "
            f"--out"
        )
    return frozen["choices"]


def freeze(args: Args, wanted: list[Case]) -> None:
    """Add the choices to the frozen ones, which must not have changed."""
    choices = frozen_choices(args)
    for case in wanted:
        owner = case._replace(method=chosen_by(case.method))
        path = case_file(owner, args.out, "choices")
        if path.exists():
            made = files.read_json(path, f"The choice {case_name(owner)}")
            if choices.setdefault(case_name(owner), made)["chosen"] != made["chosen"]:
                raise SystemExit(
                    f"the choice of {case_name(owner)} changed after it was frozen"
                )
    ordered = dict(sorted(choices.items()))
    files.write_json(args.frozen, {"protocol": protocol(), "choices": ordered})


def frozen_choice(args: Args, case: Case) -> dict[str, Any]:
    """Return a case's frozen choice."""
    owner = case._replace(method=chosen_by(case.method))
    choices = frozen_choices(args)
    if case_name(owner) not in choices:
        raise SystemExit(
            f"the choice of {case_name(owner)} is not frozen: no test item yet"
        )
    return choices[case_name(owner)]


def run_cell(args: Args, case: Case) -> dict[str, Any]:
    """Return a case's result: fit by its frozen choice, then the test items."""
    choice = frozen_choice(args, case)
    given = load_unscored(args, case)
    start = time.perf_counter()
    with peak_memory() as peak:
        model = fit(case.method, choice["chosen"], given, case.seed)
    seconds = time.perf_counter() - start
    x, y = load_test(args, case)
    pairs = np.repeat(np.arange(len(x))[:, None], 2, axis=1)
    return {
        **case._asdict(),
        "chosen": choice["chosen"],
        "seconds": {"tuning": choice["seconds"], "fit": seconds},
        "peak_memory": peak.bytes,
        "metrics": model.evaluate_both(x, y, pairs),
    }


def stored_cells(args: Args) -> dict[Case, dict[str, Any]]:
    """Return all finished cells, in the order of the tables."""
    cells = read_cells(args.table)
    cells += [
        files.read_json(path, str(path))
        for path in (args.out / "cells").glob("*/*/seed-*.json")
    ]
    datasets, methods = list(DATASETS), list(LABELS)
    cells.sort(
        key=lambda c: (
            datasets.index(c["dataset"]),
            -c["n"],
            methods.index(c["method"]),
            c["seed"],
        )
    )
    return {Case(*(cell[name] for name in Case._fields)): cell for cell in cells}


def write_tables(args: Args) -> None:
    """Write every cell, and the tables made of them; print the tables."""
    write_cells(args.table, list(stored_cells(args).values()))
    # As they are rounded there: a later run, which reads them there, prints the same.
    cells = read_cells(args.table)
    command = f"python experiments/beyond_the_paper.py --data-folder {args.data_folder}"
    text = page(cells, command)
    (args.docs / "beyond_the_paper.md").write_text(text, encoding="utf-8")
    print(text)


def main(args: Args) -> None:
    """Choose, freeze, then run what is missing, and write the tables."""
    if not args.only_tables:
        wanted = cases(args)
        make_choices(args, wanted, lambda line: print(line, flush=True))
        freeze(args, wanted)
        known = stored_cells(args)
        for case in wanted:
            if case not in known:
                cell = run_cell(args, case)
                files.write_json(case_file(case, args.out, "cells"), cell)
                means = [
                    np.mean([100 * cell["metrics"][b + r] for r in summary.RECALLS])
                    for b in ("", "bank/")
                ]
                print(
                    f"{case_name(case)}: {means[0]:.2f}, with bank {means[1]:.2f}, "
                    f"{sum(cell['seconds'].values()):.1f} s",
                    flush=True,
                )
    write_tables(args)


if __name__ == "__main__":
    main(tyro.cli(Args))
