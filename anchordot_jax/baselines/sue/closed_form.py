"""SUE without networks: eigenvectors of the graph itself, extended to new items."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from anchordot_jax.baselines.protocol import (
    Anchors,
    Method,
    Needs,
    Pools,
    make_model,
)
from anchordot_jax.baselines.sue.graph import affinity_graph, walk_vectors
from anchordot_jax.baselines.sue.pairs import canonical_projections
from anchordot_jax.baselines.sue.settings import GraphSettings
from anchordot_jax.maps.spectral import nystrom
from anchordot_jax.model import AlignedModel

NOTES = (
    "A cheaper relative of SUE, not the published method: the eigenvectors that its "
    "networks approximate, those of the normalised Laplacian of the same graph, with "
    "the Nystrom extension to unseen items, and the anchors' canonical directions, "
    "centred; neither networks nor MMD. The pairs are projected through the extension "
    "too, as unseen items are. How many eigenvectors and directions are kept is chosen "
    "on held-out anchors. Deterministic: the key is not used."
)

_nystrom = jax.jit(nystrom, static_argnames=("neighbours",))


class EmbeddedGraph(NamedTuple):
    """One modality's graph, embedded."""

    points: np.ndarray
    """Anchors, then pool, `[N + n, d]`."""
    vectors: np.ndarray
    """Random-walk eigenvectors over their eigenvalues, float32 `[N + n, k]`."""
    bandwidth: np.float32
    eigenvalues: np.ndarray


def fit_sue_spectral(
    anchors: Anchors, pools: Pools, *, settings: GraphSettings, key: jax.Array
) -> AlignedModel:
    """Return the maps of both graphs: Nystrom extension, then canonical directions.

    Args:
        anchors: pairs; also part of either side's graph.
        pools: the rest of either side's graph.
        settings: see `GraphSettings`.
        key: not used.

    Raises:
        InputError: too few items or pairs for the settings.
    """
    return next(fit_many_sue_spectral(anchors, pools, candidates=[settings], key=key))


def fit_many_sue_spectral(
    anchors: Anchors,
    pools: Pools,
    *,
    candidates: Sequence[GraphSettings],
    key: jax.Array,
) -> Iterator[AlignedModel]:
    """Yield the model of each candidate, embedding each kind of graph once.

    Args:
        anchors: pairs.
        pools: the rest of either side's graph.
        candidates: settings; those of one graph share its most eigenvectors.
        key: not used.

    Raises:
        InputError: too few items or pairs for the settings.
    """
    del key
    most: dict[tuple[int, int], int] = {}
    for settings in candidates:
        kind = (settings.neighbours, settings.scale_k)
        most[kind] = max(most.get(kind, 0), settings.eigenvectors)
    graphs: dict[tuple[int, int], tuple[EmbeddedGraph, EmbeddedGraph]] = {}
    for settings in candidates:
        kind = (settings.neighbours, settings.scale_k)
        if kind not in graphs:
            graphs[kind] = (
                embed_graph(anchors.x, pools.x, *kind, count=most[kind]),
                embed_graph(anchors.y, pools.y, *kind, count=most[kind]),
            )
        yield _model(anchors, pools, graphs[kind], settings)


def embed_graph(
    anchors: np.ndarray,
    pool: np.ndarray,
    neighbours: int,
    scale_k: int,
    *,
    count: int,
) -> EmbeddedGraph:
    """Return the `count` slowest modes of one modality's graph.

    Args:
        anchors: `[N, d]`, unit-norm rows.
        pool: `[n, d]`, unit-norm rows.
        neighbours: see `affinity_graph`.
        scale_k: see `affinity_graph`.
        count: eigenvectors.

    Raises:
        InputError: see `affinity_graph` and `walk_vectors`.
    """
    points = np.concatenate([anchors, pool])
    graph = affinity_graph(points, neighbours=neighbours, scale_k=scale_k)
    walking = walk_vectors(graph, count)
    return EmbeddedGraph(
        points=points,
        vectors=(walking.vectors / walking.eigenvalues[None, :]).astype(np.float32),
        bandwidth=np.float32(graph.bandwidth),
        eigenvalues=walking.eigenvalues,
    )


def _model(
    anchors: Anchors,
    pools: Pools,
    graphs: tuple[EmbeddedGraph, EmbeddedGraph],
    settings: GraphSettings,
) -> AlignedModel:
    params = {}
    coordinates = []
    for name, graph, rows in zip("xy", graphs, anchors, strict=True):
        params[name] = {
            "points": graph.points,
            "vectors": graph.vectors[:, : settings.eigenvectors],
            "bandwidth": np.asarray(graph.bandwidth),
        }
        neighbours = min(settings.neighbours + 1, len(graph.points))
        extended = _nystrom(rows, **params[name], neighbours=neighbours)
        coordinates.append(np.asarray(extended))
    projections = canonical_projections(
        coordinates[0],
        coordinates[1],
        components=settings.components,
        centered=settings.centered,
    )
    for name, projection in zip("xy", projections, strict=True):
        params[name] |= {
            "projection": projection.kernel.astype(np.float32),
            "shift": projection.shift.astype(np.float32),
        }
    side = {"neighbours": settings.neighbours + 1}
    return make_model(
        "sue-spectral",
        params,
        anchors=anchors,
        pools=pools,
        settings=settings,
        kind="nystrom",
        side_settings={"x": side, "y": side},
        dim=settings.components,
        gap_x=float(1 - graphs[0].eigenvalues[1]),
        gap_y=float(1 - graphs[1].eigenvalues[1]),
    )


METHODS = (
    Method(
        name="sue-spectral",
        title="SUE, closed form",
        source="This project; after Yacobi et al. (2025) and Bengio et al. (2004)",
        trust="ours",
        notes=NOTES,
        needs=Needs(pools=True),
        settings=GraphSettings(eigenvectors=60, components=30, centered=True),
        grid={"eigenvectors": (60, 120), "components": (30, 50, 16, 8)},
        fit=fit_sue_spectral,
        fit_many=fit_many_sue_spectral,
    ),
)
