"""Soft-matched CCA: a ridge CCA of the anchors and of the softly matched pools.

The closed form that starts the students of the refined recipe, as a method of its own;
see `anchordot_jax.recipes.soft_cca`. It ends with students too: LayerNorm and one
linear map.
"""

import dataclasses

import jax
import jax.numpy as jnp

from anchordot_jax.baselines.protocol import (
    Anchors,
    Method,
    Needs,
    Pools,
    make_model,
)
from anchordot_jax.config import CouplingConfig, RefinedConfig, SoftCcaConfig
from anchordot_jax.model import AlignedModel
from anchordot_jax.recipes import soft_cca, soft_selection, two_sides
from anchordot_jax.settings.refined import CHOSEN


def fit_soft_cca(
    anchors: Anchors, pools: Pools, *, settings: SoftCcaConfig, key: jax.Array
) -> AlignedModel:
    """Return the closed form as students; what is auto is chosen first."""
    sides = prepare(anchors, pools)
    chosen = _select(sides, settings, key).settings
    found = soft_cca.solve(sides, chosen, config=transport(settings))
    params = soft_cca.student_params(
        sides, found.weights, temperature=RefinedConfig().temperature
    )
    return make_model(
        "soft-cca",
        params,
        anchors=anchors,
        pools=pools,
        settings=settings,
        **chosen._asdict(),
        converged=bool(found.coupling.converged),
        sinkhorn_iterations=int(found.coupling.n_iterations),
    )


def choose_soft_cca(
    anchors: Anchors, pools: Pools, *, settings: SoftCcaConfig, key: jax.Array
) -> tuple[SoftCcaConfig, int]:
    """Return the settings with what `fit_soft_cca` would choose itself."""
    found = _select(prepare(anchors, pools), settings, key)
    chosen = dataclasses.replace(settings, **found.settings._asdict())
    return chosen, found.n_heldout


def prepare(anchors: Anchors, pools: Pools) -> two_sides.Sides:
    """Return both sides in their principal axes."""
    return two_sides.prepare(*(jnp.asarray(rows) for rows in (*anchors, *pools)))


def transport(settings: SoftCcaConfig) -> CouplingConfig:
    """Return the transport's settings."""
    return CouplingConfig(tolerance=settings.tolerance)


def _select(
    sides: two_sides.Sides, settings: SoftCcaConfig, key: jax.Array
) -> soft_selection.SoftSelection:
    return soft_selection.select(sides, settings, coupling=transport(settings), key=key)


METHODS = (
    Method(
        name="soft-cca",
        title="Soft-matched CCA",
        source="This project: one step of expectation maximisation on a ridge CCA",
        trust="ours",
        notes=(
            "A CCA of the anchors matches the pools by one transport problem; a second "
            "CCA takes the matched pools in. Ridges of both sides, powers of the "
            "correlations and the plan's sharpness are chosen by cross-validation "
            "over the anchors, hubs corrected."
        ),
        needs=Needs(pools=True),
        settings=SoftCcaConfig(),
        tuned=CHOSEN,
        choose=choose_soft_cca,
        fit=fit_soft_cca,
    ),
)
