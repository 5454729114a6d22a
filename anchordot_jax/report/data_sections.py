"""What the run was given: files, anchors, pools; their spectra; their maps."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np

from anchordot_jax import evaluation, profiles
from anchordot_jax.data import inspect_embeddings
from anchordot_jax.recipes.soft_selection import SoftSelection
from anchordot_jax.report import figures
from anchordot_jax.report.blocks import Block, Caution, Figure, Section, Table, Text
from anchordot_jax.report.context import Context, TestItems
from anchordot_jax.selection import Selection

GAMMAS = (0.0, 0.5, 0.75, 1.0, 1.5)
SPECTRUM_ROWS = 5000
"""Rows of a pool that its spectrum is taken over."""
MAP_ROWS = 300
MAP_LINES = 40


def data_section(context: Context) -> Section:
    """Return sizes, norms and faults of the files, and warnings."""
    if context.data is None:
        return Section("data", "Data", [Text(context.missing)])
    known = context.data.known
    sides = {"x": known.x.source, "y": known.y.source}
    found = [inspect_embeddings(source) for source in sides.values()]
    names = {
        "rows": "n",
        "dimensions": "d",
        "stored as": "dtype",
        "ids": "has_ids",
        "repeated rows": "n_duplicate",
        "constant dimensions": "n_constant_dims",
        "smallest norm": "norm_min",
        "largest norm": "norm_max",
    }
    rows = [
        [label, *(_shown(getattr(one, name)) for one in found)]
        for label, name in names.items()
    ]
    fit, split = known.fit, known.split
    sizes = [
        ["anchor pairs", str(len(split.anchors)), str(len(split.anchors))],
        ["pool", str(len(fit.pool_x)), str(len(fit.pool_y))],
        ["test items", *(str(len(np.unique(c))) for c in split.test_pairs.T)],
        [
            "directions the anchors span",
            *(
                str(len(_basis(context, anchors).singular_values))
                for anchors in (fit.anchors_x, fit.anchors_y)
            ),
        ],
    ]
    blocks: list[Block] = [Caution(text) for text in _warnings(context)]
    blocks.append(Table("Both sides", ["", "x", "y"], sizes + rows))
    blocks.append(
        Text(
            f"Files: {_file_name(known.sources.x)} (x), "
            f"{_file_name(known.sources.y)} (y). No row is NaN or 0."
        )
    )
    return Section("data", "Data", blocks)


def _file_name(name: str) -> str:
    """Return FILE::dataset without its folders: a report is passed on."""
    file, separator, dataset = name.partition("::")
    return f"{Path(file).name}{separator}{dataset}"


def _warnings(context: Context) -> list[str]:
    """Return what a reader should know before trusting the figures."""
    if context.data is None:
        return []
    known, said = context.data.known, []
    n = len(known.fit.anchors_x)
    if n < 50:
        said.append(f"{n} anchors are few; the choice of settings is a guess.")
    for side in ("x", "y"):
        pool = getattr(known.fit, f"pool_{side}")
        repeated = len(pool) - len(np.unique(pool, axis=0))
        if repeated:
            said.append(f"Rows of the {side} pool that repeat another: {repeated}.")
    tested = len(known.split.test_pairs)
    if 0 < tested < 100:
        said.append(f"{tested} test pairs are few; see the intervals of the recalls.")
    chosen = context.chosen
    if isinstance(chosen, Selection) and chosen.curve:
        etas = [point.eta for point in chosen.curve]
        if len(set(etas)) > 1 and chosen.eta in (min(etas), max(etas)):
            said.append(f"The chosen eta {chosen.eta:g} is at the end of its grid.")
    if isinstance(chosen, SoftSelection):
        ridges = [point.value for point in chosen.curve if point.setting == "ridge"]
        if len(ridges) > 1 and chosen.ridge in (min(ridges), max(ridges)):
            said.append(
                f"The chosen ridge {chosen.ridge:g} is at the end of its candidates."
            )
    return said


def spectrum_section(context: Context) -> Section:
    """Return the pools' spectra in profile coordinates, by gamma."""
    title = "Spectrum of the profiles by gamma"
    if context.data is None:
        return Section("spectrum", title, [Text(context.missing)])
    fit, blocks, rows = context.data.known.fit, [], []
    for side in ("x", "y"):
        basis = _basis(context, getattr(fit, f"anchors_{side}"))
        pool = getattr(fit, f"pool_{side}")[:SPECTRUM_ROWS]
        rows_of_pool = np.asarray(profiles.normalize(pool), np.float64) - basis.mean
        along = rows_of_pool @ basis.right
        lines, ratios = {}, []
        for gamma in GAMMAS:
            values = _spectrum(along * profiles.spectral_weights(basis, gamma))
            places = np.arange(1, len(values) + 1)
            lines[f"gamma {gamma:g}"] = (places, values / values.sum())
            ratio = evaluation.participation_ratio_of_spectrum(values)
            ratios.append(f"{ratio:.1f}")
        svg = figures.curves(
            lines, x_label="direction", y_label="share of the mean square", log_y=True
        )
        said = f"Side {side}: share of each direction of the pool's profiles."
        blocks.append(
            Figure(
                f"spectrum-{side}",
                svg,
                said,
                f"{said} Larger gammas are flatter: participation ratios "
                f"{', '.join(ratios)} for gamma {', '.join(f'{g:g}' for g in GAMMAS)}.",
            )
        )
        rows.append([side, *ratios])
    heads = ["side", *(f"gamma {gamma:g}" for gamma in GAMMAS)]
    caption = "Participation ratio: the number of directions that carry the profiles"
    return Section("spectrum", title, [*blocks, Table(caption, heads, rows)])


def _basis(context: Context, anchors: np.ndarray) -> profiles.AnchorBasis:
    """Return the basis as a fit by the paper's recipe has it."""
    return profiles.fit_basis(anchors, center=context.config.center)


def _spectrum(rows: np.ndarray) -> np.ndarray:
    """Return the eigenvalues of unit rows' second moment, decreasing, above 0."""
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
    values = np.linalg.eigvalsh(unit.T @ unit / len(unit))[::-1]
    return np.asarray(values[values > 1e-9 * values[0]])


def map_section(context: Context) -> Section:
    """Return both sides' test items in a plane, before and after."""
    test, title = context.test, "Map of both sides"
    if test is None:
        return Section("map", title, [Text(context.no_test)])
    pairs = _shown_pairs(test)
    before_x, share_x = _plane(test.raw_x[:MAP_ROWS])
    before_y, share_y = _plane(test.raw_y[:MAP_ROWS])
    shown_x, shown_y = test.x[:MAP_ROWS], test.y[:MAP_ROWS]
    together, share = _plane(np.concatenate([shown_x, shown_y]))
    before = figures.cloud(before_x, before_y, pairs, label="each side's own axes")
    after = figures.cloud(
        together[: len(shown_x)],
        together[len(shown_x) :],
        pairs,
        label="axes of both sides together",
    )
    return Section(
        "map",
        title,
        [
            Text(
                f"The first two principal axes of up to {MAP_ROWS} test items a side; "
                f"lines join {len(pairs)} pairs. Two axes show {share:.0%} of the "
                f"spread after the fit, so that pairs far apart here may still be "
                f"nearest neighbours, and the other way round."
            ),
            Figure(
                "map-before",
                before,
                f"Before: each side by its own axes ({share_x:.0%} and {share_y:.0%} "
                f"of the spread), which have nothing to do with each other.",
                "Two clouds of points, one a side, overlaid; lines join the pairs.",
            ),
            Figure(
                "map-after",
                after,
                f"After: both sides in the shared space, by common axes. Mean cosine "
                f"of the pairs {_pair_cosine(test):.2f}, of all "
                f"{_mean_cosine(test):.2f}.",
                "Points of both sides in one plane; lines join the pairs.",
            ),
        ],
    )


def _plane(rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the rows along their first two principal axes, and their share."""
    centred = np.asarray(rows, np.float64) - rows.mean(axis=0, dtype=np.float64)
    # Thin: the rows are few, and their dimensions may be very many.
    _, values, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2]
    # An axis has no sign of its own: its largest entry is made positive.
    largest = np.abs(axes).argmax(axis=1)
    axes = axes * np.sign(axes[np.arange(len(axes)), largest])[:, None]
    plane = np.zeros((len(rows), 2))
    plane[:, : len(axes)] = centred @ axes.T
    share = float((values[:2] ** 2).sum() / max((values**2).sum(), 1e-30))
    return plane / max(float(np.abs(plane).max()), 1e-30), share


def _shown_pairs(test: TestItems) -> list[tuple[int, int]]:
    partners = test.paired.positives_x2y[:MAP_ROWS, 0]
    pairs = [(i, int(j)) for i, j in enumerate(partners) if j < MAP_ROWS]
    return pairs[:MAP_LINES]


def _pair_cosine(test: TestItems) -> float:
    partners = test.y[test.paired.positives_x2y[:, 0]]
    return float(np.einsum("ij,ij->i", test.x, partners).mean())


def _mean_cosine(test: TestItems) -> float:
    return float(jnp.dot(test.x.mean(axis=0), test.y.mean(axis=0)))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
