"""AnchorDOT itself, under the protocol of the methods it is compared with."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from anchordot_jax import alignment, selection
from anchordot_jax.baselines.protocol import Anchors, Method, Needs, Pools
from anchordot_jax.config import Config
from anchordot_jax.fit_inputs import FitData
from anchordot_jax.listeners import Silent
from anchordot_jax.model import AlignedModel
from anchordot_jax.recipes import refined
from anchordot_jax.settings.refined import CHOSEN


def fit_anchordot(
    anchors: Anchors, pools: Pools, *, settings: Config, key: jax.Array
) -> AlignedModel:
    """Return the students of a whole fit (Algorithm 1)."""
    config = dataclasses.replace(settings, seed=seed_of(key))
    return alignment.fit_data(FitData(*anchors, *pools), config).model


def choose_anchordot(
    anchors: Anchors, pools: Pools, *, settings: Config, key: jax.Array
) -> tuple[Config, int]:
    """Return the settings with the gamma, eta and rho that a fit would choose."""
    config = dataclasses.replace(settings, seed=seed_of(key))
    chosen = selection.select(
        jnp.asarray(anchors.x),
        jnp.asarray(anchors.y),
        jnp.asarray(pools.x),
        jnp.asarray(pools.y),
        config,
        key=alignment.selection_key(config),
    )
    settings = dataclasses.replace(
        settings, gamma=chosen.gamma, eta=chosen.eta, rho=chosen.rho
    )
    return settings, chosen.n_heldout


def choose_refined(
    anchors: Anchors, pools: Pools, *, settings: Config, key: jax.Array
) -> tuple[Config, int]:
    """Return the settings with what a fit would choose."""
    config = dataclasses.replace(settings, seed=seed_of(key))
    _, chosen = refined.select(
        FitData(*anchors, *pools),
        config,
        key=alignment.selection_key(config),
        run=None,
        listener=Silent(),
    )
    soft = dataclasses.replace(settings.soft_cca, **chosen.settings._asdict())
    return dataclasses.replace(settings, soft_cca=soft), chosen.n_heldout


def seed_of(key: jax.Array) -> int:
    """Return the seed of `jax.random.key(seed)`, or a number that the key fixes."""
    return int(np.asarray(jax.random.key_data(key)).ravel()[-1])


METHODS = (
    Method(
        name="anchordot",
        title="AnchorDOT",
        source="Kordes and Dorent, arXiv:2610.12781 (2026)",
        trust="paper",
        notes="gamma and eta chosen by the ranks of held-out anchors in the plan.",
        needs=Needs(pools=True),
        settings=Config(recipe="paper"),
        tuned=("gamma", "eta"),
        choose=choose_anchordot,
        fit=fit_anchordot,
    ),
    Method(
        name="anchordot-refined",
        title="AnchorDOT, refined",
        source="This project, after Kordes and Dorent, arXiv:2610.12781 (2026)",
        trust="ours",
        notes=(
            "Students that start from the soft-matched CCA and learn for a tenth of "
            "the epochs from a plan of its cosines. Settings chosen as the "
            "soft-matched CCA's."
        ),
        needs=Needs(pools=True),
        settings=Config(recipe="refined"),
        tuned=CHOSEN,
        choose=choose_refined,
        fit=fit_anchordot,
    ),
)
