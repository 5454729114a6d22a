"""SOTAlign: a linear teacher of the pairs, then students with SAIL and KLOT.

Roschmann, Krzakala, Mazelet, Bouniot and Akata (ICML 2026, arXiv:2602.23353). Stage 1
fits CCA to the pairs. Stage 2 trains the students on

    alpha_sail SAIL(pairs) + alpha_klot KLOT(K || K*)

with K the cosines between the students' outputs of the unpaired pools and K* the
teacher's. KLOT was written from the authors' code, the rest from their README, which
states no optimiser: that of SAIL, from which the project derives, is assumed.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anchordot_jax.baselines import tuning
from anchordot_jax.baselines.protocol import (
    Anchors,
    Method,
    Needs,
    Pools,
    make_model,
    numpy_rng,
)
from anchordot_jax.baselines.sotalign import klot, noise, teacher
from anchordot_jax.baselines.sotalign.loss import (
    Data,
    Unpaired,
    loss_settings,
    sotalign_loss,
)
from anchordot_jax.baselines.sotalign.settings import SotalignSettings
from anchordot_jax.baselines.trained.training import train
from anchordot_jax.config import check_setting
from anchordot_jax.model import AlignedModel
from anchordot_jax.students import Params
from anchordot_jax.training.affinity import (
    cosines,
    standardized_sides,
)


def fit_sotalign(
    anchors: Anchors, pools: Pools, *, settings: SotalignSettings, key: jax.Array
) -> AlignedModel:
    """Return students trained with SAIL on the pairs and KLOT on the pools.

    Args:
        anchors: the pairs.
        pools: the unpaired items.
        settings: see `SotalignSettings`.
        key: fixes all that is drawn; with `alpha_klot` 0 the fit is that of SAIL.
    """
    key_teacher, key_pools, key_held, key_noise = (
        jax.random.fold_in(key, i) for i in range(4)
    )
    kept, held = _held_out(anchors, settings.validation, key=key_held)
    used = _used_pools(pools, settings, key=key_pools)
    facts: dict[str, Any] = {}
    unpaired = None
    if settings.alpha_klot > 0:
        linear, how = _fit_teacher(kept, used, settings, key=key_teacher)
        facts["teacher"] = how
        n_pairs = min(settings.batch_size_pairs, len(kept.x))
        size = settings.batch_size - n_pairs
        ok, least = size > 0, f"more than the {n_pairs} pairs of a step"
        check_setting(ok, "batch_size", least, settings.batch_size)
        unpaired = _unpaired(used, linear, settings, size, key=key_noise)
    trained = train(
        sotalign_loss,
        Data(Anchors(*standardized_sides(*kept)), unpaired),
        dim_x=anchors.x.shape[1],
        dim_y=anchors.y.shape[1],
        settings=settings,
        static=loss_settings(settings),
        state=jnp.zeros(len(used.y), jnp.float32),
        key=key,
        n_checkpoints=settings.checkpoints if held is not None else 1,
        validate=None if held is None else functools.partial(mean_recall, held),
    )
    return make_model(
        "sotalign",
        jax.tree.map(np.asarray, trained.params),
        anchors=anchors,
        pools=used,
        settings=settings,
        final_loss=float(trained.losses[-1]),
        step=trained.step,
        **facts,
    )


def mean_recall(held: Anchors, params: Params) -> float:
    """Return the mean of both directions' recall@1 among held-out pairs."""
    similarities = cosines(params, *standardized_sides(*held))
    own = jnp.diagonal(similarities)
    x2y = jnp.mean(own >= jnp.max(similarities, axis=1))
    y2x = jnp.mean(own >= jnp.max(similarities, axis=0))
    return float(x2y + y2x) / 2


def _held_out(
    anchors: Anchors, share: float, *, key: jax.Array
) -> tuple[Anchors, Anchors | None]:
    """Return the anchors to train on and those that choose the checkpoint."""
    n = len(anchors.x)
    n_held = round(share * n)
    if n_held == 0:
        return anchors, None
    check_setting(n_held < n, "validation", "smaller, to leave anchors", share)
    held = numpy_rng(key).permutation(n)[:n_held]
    kept = np.setdiff1d(np.arange(n), held)
    return (
        Anchors(anchors.x[kept], anchors.y[kept]),
        Anchors(anchors.x[held], anchors.y[held]),
    )


def _used_pools(pools: Pools, settings: SotalignSettings, *, key: jax.Array) -> Pools:
    """Return the rows of the pools that are trained on, noise included."""
    rng = numpy_rng(key)
    rows_x, rows_y = np.arange(len(pools.x)), np.arange(len(pools.y))
    if settings.index_mode == "disjoint":
        order = rng.permutation(max(len(rows_x), len(rows_y)))
        half = len(order) // 2
        rows_x = np.intersect1d(rows_x, order[:half])
        rows_y = np.intersect1d(rows_y, order[half:])
    key_x, key_y = jax.random.split(key)
    return Pools(
        _limited(pools.x[rows_x], settings, key=key_x),
        _limited(pools.y[rows_y], settings, key=key_y),
    )


def _limited(
    rows: np.ndarray, settings: SotalignSettings, *, key: jax.Array
) -> np.ndarray:
    if len(rows) > settings.max_pool:
        drawn = numpy_rng(key).permutation(len(rows))[: settings.max_pool]
        rows = rows[np.sort(drawn)]
    return noise.replace_rows(rows, settings.p_noise_unpaired, key=key)


def _fit_teacher(
    anchors: Anchors, pools: Pools, settings: SotalignSettings, *, key: jax.Array
) -> tuple[AlignedModel, dict[str, Any]]:
    """Return the linear teacher and how it was made."""
    key_noise, key_choice = jax.random.split(key)
    pairs = noise.corrupt_pairs(anchors, settings.p_noise, key=key_noise)
    return teacher.fit_teacher(
        pairs,
        pools,
        settings.affinity,
        teacher.Ridges(
            settings.ridge,
            settings.ridge_y,
            settings.ridge_relative,
            settings.eigenvalue_floor,
        ),
        key=key_choice,
    )


def _unpaired(
    pools: Pools,
    linear: AlignedModel,
    settings: SotalignSettings,
    size: int,
    *,
    key: jax.Array,
) -> Unpaired:
    """Return the pools for the loss, with the teacher's plan if a step takes all."""
    x, y = standardized_sides(*pools)
    taught_x, taught_y = linear.embed_x(pools.x), linear.embed_y(pools.y)
    if max(len(x), len(y)) > size:
        return Unpaired(x, y, None, jnp.asarray(taught_x), jnp.asarray(taught_y))
    affinity = jnp.asarray(taught_x @ taught_y.T)
    if settings.sigma_k:
        affinity = noise.blur(affinity, settings.sigma_k, key=key)
    plan = klot.fast_teacher_plan(
        affinity, settings.epsilon_teacher, settings.iterations_teacher
    )
    return Unpaired(x, y, plan, None, None)


# A small fit that tells the candidates apart in seconds.
_PROXY: dict[str, Any] = {
    "steps": 100,
    "learning_rate": 1e-3,
    "dim": 256,
    "max_pool": 1000,
}


def choose_settings(
    anchors: Anchors, pools: Pools, *, settings: SotalignSettings, key: jax.Array
) -> tuple[SotalignSettings, int]:
    """Return the settings with ridge and teacher's epsilon chosen, and the held out.

    The ridge first, by the closed-form teacher; then the epsilon, each candidate by a
    smaller fit: fewer steps and dimensions, a part of the pools.
    """
    key_ridge, key_epsilon = jax.random.split(key)
    if settings.ridge == "auto":
        found = teacher.choose_ridge(settings.affinity, anchors, pools, key=key_ridge)
        own = found.settings
        settings = dataclasses.replace(
            settings,
            ridge=getattr(own, "ridge", settings.ridge),
            ridge_relative=getattr(own, "relative", settings.ridge_relative),
        )
    small = dataclasses.replace(settings, **_PROXY)
    method = dataclasses.replace(METHODS[0], grid={"epsilon_teacher": EPSILONS})
    chosen = tuning.choose(method, anchors, pools, settings=small, key=key_epsilon)
    epsilon = chosen.settings.epsilon_teacher
    return dataclasses.replace(settings, epsilon_teacher=epsilon), chosen.n_heldout


EPSILONS = (0.01, 0.05)
"""Candidates for the teacher's epsilon; the authors' first."""

METHODS = (
    Method(
        name="sotalign",
        title="SOTAlign",
        source='Roschmann, Krzakala et al., "SOTAlign: Semi-Supervised Alignment of '
        'Unimodal Vision and Language Models via Optimal Transport" (ICML 2026)',
        trust="readme",
        notes="KLOT from the authors' code; the teacher, weights, epsilons and batches "
        "from their README, written for 10k pairs and 1M unpaired items. It states no "
        "optimiser: SAIL's Lion is assumed, with larger steps than SAIL's 1e-5, which "
        "hardly moves students of a few hundred pairs. The README does not say that "
        "SAIL's loss is a mean over n^2 entries; as its gradient then falls with n, "
        "KLOT weighs 0.01 here instead of 0.001. In pools with few true matches the "
        "teacher's plan at the authors' epsilon 0.01 is surer than it is right, and "
        "the students learn its mistakes: held-out anchors choose between 0.01 and "
        "0.05, and the teacher's ridge, where the authors' is 0.1 of an unnamed unit. "
        "The last checkpoint is taken: there are no pairs beside the anchors to choose "
        "one by. The students' potentials are carried from step to step instead of "
        "solved from zero.",
        needs=Needs(pools=True),
        settings=SotalignSettings(),
        tuned=("ridge", "epsilon_teacher"),
        choose=choose_settings,
        short={"steps": 200, "learning_rate": 5e-4, "max_pool": 2000},
        fit=fit_sotalign,
    ),
)
