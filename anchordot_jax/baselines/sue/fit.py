"""SUE: SpectralNet on either side, canonical directions of the pairs, MMD network."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import threadpoolctl
from jaxtyping import Array, Float

from anchordot_jax import profiles
from anchordot_jax.baselines.protocol import (
    Anchors,
    Method,
    Needs,
    Pools,
    make_model,
)
from anchordot_jax.baselines.sue import closed_form
from anchordot_jax.baselines.sue.graph import affinity_graph, laplacian_form
from anchordot_jax.baselines.sue.mmd import train_residual_net
from anchordot_jax.baselines.sue.pairs import Projection, canonical_projections
from anchordot_jax.baselines.sue.settings import SueSettings
from anchordot_jax.baselines.sue.spectral_net import SpectralNet, train_spectral_net
from anchordot_jax.maps.spectral import tanh_net
from anchordot_jax.model import AlignedModel
from anchordot_jax.students import Params

NOTES = (
    "Trained on anchors and pool together, each side alone. Rows are unit-norm; the "
    "authors' image embeddings are not normalised and their texts are zero-padded. The "
    "canonical rotation is applied to uncentred coordinates, as in their code "
    "(centered=True gives the canonical scores proper). An epoch has batches of one "
    "size, where the code's last one is smaller; x and y batches of the MMD network "
    "are drawn apart, which its loss cannot see. The graph of all items is sparse, of "
    "exact neighbours. The authors' protocol is easier: they drop a tenth of the "
    "unpaired items of each side, so that about 90 % of a pool still has its hidden "
    "partner in the other pool, where the pools here share no item. They seed nothing; "
    "here the key fixes the fit. Spectral coordinates are unique up to signs, and up "
    "to rotations where eigenvalues coincide: two keys give different maps, and only "
    "the pairs tie the sides together."
)


class SpectralSide(NamedTuple):
    """One modality's rotated spectral embedding."""

    net: SpectralNet
    rotation: np.ndarray
    """Q, `[k, k]`, the eigenvectors of E^T L E, the smallest eigenvalue first."""
    rows: Array
    """E Q of anchors, then pool, `[N + n, k]`."""
    loss: float
    """tr(E^T L E) / (N + n) over the graph of all items."""
    orthogonality: float
    """Largest entry of |E^T E / (N + n) - I|."""


def fit_sue(
    anchors: Anchors, pools: Pools, *, settings: SueSettings, key: jax.Array
) -> AlignedModel:
    """Return SUE's maps (Yacobi et al. 2025, Section 4; details from their code).

    Spectral embedding of either side by a network, its rotation to the eigenvectors of
    E^T L E, the canonical directions of the anchors, and on the x side a residual
    network that lowers the MMD between the two projected clouds.

    Args:
        anchors: pairs; also part of either side's graph.
        pools: the rest of either side's graph.
        settings: see `SueSettings`.
        key: fixes everything random.

    Raises:
        InputError: too few items or pairs for the settings, or training that diverges.
    """
    key_x, key_y, key_residual = jax.random.split(key, 3)
    side_x = spectral_side(anchors.x, pools.x, settings=settings, key=key_x)
    side_y = spectral_side(anchors.y, pools.y, settings=settings, key=key_y)
    n = len(anchors.x)
    projections = canonical_projections(
        np.asarray(side_x.rows[:n]),
        np.asarray(side_y.rows[:n]),
        components=settings.components,
        centered=settings.centered,
    )
    params: Params = {
        "x": _side_params(side_x, projections[0]),
        "y": _side_params(side_y, projections[1]),
    }
    facts: dict[str, Any] = {}
    if settings.residual:
        clouds = [
            _project(side.rows, params[name])
            for side, name in ((side_x, "x"), (side_y, "y"))
        ]
        net = train_residual_net(*clouds, settings=settings, key=key_residual)
        params["x"]["residual"] = net.layers
        facts = {"residual_loss": net.loss}
    for side, name in ((side_x, "x"), (side_y, "y")):
        facts |= {
            f"spectral_loss_{name}": side.loss,
            f"orthogonality_{name}": side.orthogonality,
            f"epochs_{name}": side.net.epochs,
        }
    return make_model(
        "sue",
        jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params),
        anchors=anchors,
        pools=pools,
        settings=settings,
        kind="spectral",
        dim=settings.components,
        **facts,
    )


def spectral_side(
    anchors: np.ndarray, pool: np.ndarray, *, settings: SueSettings, key: jax.Array
) -> SpectralSide:
    """Return one modality's spectral embedding of anchors and pool.

    Args:
        anchors: `[N, d]`, unit-norm rows.
        pool: `[n, d]`, unit-norm rows.
        settings: of the network and the graph.
        key: of the training.

    Raises:
        InputError: see `train_spectral_net` and `affinity_graph`.
    """
    items = np.concatenate([anchors, pool])
    graph = affinity_graph(
        items, neighbours=settings.neighbours, scale_k=settings.scale_k
    )
    net = train_spectral_net(items, settings=settings, key=key)
    outputs = _outputs(net.layers, net.orthonormal, items)
    form = laplacian_form(graph, outputs)
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        rotation = np.linalg.eigh(form)[1]
    gram = outputs.T @ outputs / len(outputs)
    return SpectralSide(
        net=net,
        rotation=rotation,
        rows=jnp.asarray(outputs @ rotation, jnp.float32),
        loss=float(np.trace(form)) / len(items),
        orthogonality=float(np.abs(gram - np.eye(len(gram))).max()),
    )


def _outputs(layers: Params, orthonormal: Array, items: np.ndarray) -> np.ndarray:
    """Return E, float64 `[n, k]`, as the map will compute it."""
    raw = np.concatenate(
        [
            np.asarray(_raw(layers, items[i : i + 8192]))
            for i in range(0, len(items), 8192)
        ]
    )
    return raw.astype(np.float64) @ np.asarray(orthonormal, np.float64)


@jax.jit
def _raw(layers: Params, rows: Array) -> Float[Array, "n k"]:
    return tanh_net(layers, profiles.normalize(rows))


def _side_params(side: SpectralSide, projection: Projection) -> Params:
    return {
        "layers": side.net.layers,
        "orthonormal": side.net.orthonormal,
        "rotation": side.rotation,
        "projection": projection.kernel,
        "shift": projection.shift,
    }


def _project(rows: Array, side: Params) -> np.ndarray:
    projected: np.ndarray = np.asarray(rows) @ side["projection"] + side["shift"]
    return projected.astype(np.float32)


METHODS = (
    Method(
        name="sue",
        title="SUE",
        source="Yacobi, Ben-Ari, Talmon, Shaham (2025), Learning Shared "
        "Representations from Unpaired Data",
        trust="code",
        notes=NOTES,
        needs=Needs(pools=True),
        settings=SueSettings(),
        short={
            "hidden": (512, 512, 256),
            "epochs": 25,
            "batch_size": 1024,
            "learning_rate": 1e-3,
            "residual_epochs": 30,
        },
        fit=fit_sue,
    ),
    *closed_form.METHODS,
)
