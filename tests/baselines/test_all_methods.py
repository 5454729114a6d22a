"""One walk over all methods: the protocol, its promises, and clear refusals."""

import dataclasses
import inspect
import json
from pathlib import Path

import jax
import numpy as np
import pytest

import reference
from anchordot_jax.baselines.protocol import Anchors, Method, Pools
from anchordot_jax.baselines.registry import METHODS, find_methods
from anchordot_jax.baselines.scorers import load_scorer
from anchordot_jax.config import (
    Config,
    DistillationConfig,
    RefinedConfig,
    SelectionConfig,
    SoftCcaConfig,
)
from anchordot_jax.errors import InputError
from anchordot_jax.model import AlignedModel

# Settings that make every method small; each is a field of some methods' settings.
SMALL = {
    "steps": 6,
    "dim": 8,
    "n_checkpoints": 1,
    "distillation": DistillationConfig(dim=8, epochs=3, chunk_size=16),
    "soft_cca": SoftCcaConfig(
        ridge=1.0,
        balance=1.0,
        power=1.0,
        sharpness=3.0,
        ridge_ratio=0.5,
        balance_ratio=1.0,
        final_power=1.0,
    ),
    "epochs": 2,
    "hidden": (16, 8),
    "residual_epochs": 2,
    "eigenvectors": 8,
    "components": 4,
    "alpha_klot": 10.0,
    "warm_iterations": 2,
    "rounds": 2,
    "restarts": 2,
}


def small(method: Method) -> object:
    """Return the method's settings, made small where it has such a field."""
    settings = dataclasses.replace(method.settings, **method.short)
    if isinstance(settings, SoftCcaConfig):
        return SMALL["soft_cca"]
    if isinstance(settings, Config) and settings.recipe == "refined":
        return Config(
            recipe="refined",
            distillation=DistillationConfig(chunk_size=16),
            soft_cca=SMALL["soft_cca"],
            refined=RefinedConfig(epochs=3),
        )
    if isinstance(settings, Config):
        return Config(
            recipe="paper",
            gamma=0.75,
            eta=0.05,
            distillation=SMALL["distillation"],
            selection=SelectionConfig(gammas=(0.75,), etas=(0.05,)),
        )
    names = {field.name for field in dataclasses.fields(settings)}
    return dataclasses.replace(
        settings, **{k: v for k, v in SMALL.items() if k in names}
    )


def planted(dx: int, dy: int, n: int = 46, m: int = 52) -> tuple[Anchors, Pools]:
    """Return 40 anchors and pools of n and m, all from one latent space."""
    rng = np.random.default_rng(dx + dy)
    to_x, to_y = rng.normal(size=(5, dx)), rng.normal(size=(5, dy))
    latent = rng.normal(size=(40 + n + m, 5))
    x = reference.unit(latent @ to_x).astype(np.float32)
    y = reference.unit(latent @ to_y).astype(np.float32)
    return Anchors(x[:40], y[:40]), Pools(x[40 : 40 + n], y[40 + n :])


@pytest.fixture(params=METHODS.values(), ids=METHODS.keys())
def method(request: pytest.FixtureRequest) -> Method:
    """Return each method in turn."""
    chosen: Method = request.param
    return chosen


def test_what_a_method_says_of_itself(method: Method) -> None:
    parameters = inspect.signature(method.fit).parameters
    assert list(parameters)[:2] == ["anchors", "pools"]
    others = {name for name, own in parameters.items() if own.default is own.empty}
    assert others == {"anchors", "pools", "settings", "key"}
    for name in ("settings", "key"):
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    assert METHODS[method.name] is method
    assert method.name == method.name.lower().replace("_", "-").replace(" ", "-")
    assert method.title
    assert method.source
    assert method.trust in ("code", "readme", "paper", "memory", "ours")
    if method.trust in ("readme", "memory"):
        assert method.notes, "what was not at hand must be said"
    # Settings are JSON, and every tuned or shortened name is one of them.
    names = set(json.loads(json.dumps(dataclasses.asdict(method.settings))))
    assert set(method.grid) | set(method.short) <= names
    candidates = method.candidates(method.settings)
    assert candidates[0] == dataclasses.replace(
        method.settings, **{k: v[0] for k, v in method.grid.items()}
    )
    assert len(candidates) == len(set(map(repr, candidates)))


def test_fit_score_repeat_save_load(method: Method, tmp_path: Path) -> None:
    """N != m and dx != dy: the same key gives the same scores, also after a reload."""
    anchors, pools = planted(12, 9)
    settings, key = small(method), jax.random.key(3)
    if method.needs.equal_dimensions:
        with pytest.raises(InputError, match="12 and 9"):
            method.fit(anchors, pools, settings=settings, key=key)
        anchors, pools = planted(9, 9)
    scorer = method.fit(anchors, pools, settings=settings, key=key)
    x, y = pools.x[:7], pools.y[:11]
    scores = scorer.scores(x, y)
    assert scores.x2y.shape == (7, 11)
    assert scores.y2x.shape == (11, 7)
    assert np.isfinite(scores.x2y).all()
    assert np.isfinite(scores.y2x).all()
    assert np.ptp(scores.x2y) > 0

    again = method.fit(anchors, pools, settings=settings, key=key).scores(x, y)
    np.testing.assert_allclose(again.x2y, scores.x2y, atol=1e-5)
    np.testing.assert_allclose(again.y2x, scores.y2x, atol=1e-5)

    scorer.save(tmp_path / "scorer")
    loaded = load_scorer(tmp_path / "scorer")
    assert isinstance(loaded, AlignedModel) is not method.needs.transductive
    np.testing.assert_array_equal(loaded.scores(x, y).x2y, scores.x2y)
    np.testing.assert_array_equal(loaded.scores(x, y).y2x, scores.y2x)

    alone = scorer.scores(x[:3], y[:5])
    same = np.allclose(alone.x2y, scores.x2y[:3, :5], atol=1e-3)
    assert same is not method.needs.transductive
    json.dumps(dict(scorer.info), allow_nan=False)


def test_what_a_method_depends_on(method: Method) -> None:
    """Pools, and the pairing of the anchors, matter exactly where they are declared."""
    anchors, pools = planted(9, 9)
    settings, key = small(method), jax.random.key(0)
    x, y = pools.x[:6], pools.y[:8]

    def scored(anchors: Anchors, pools: Pools) -> np.ndarray:
        return method.fit(anchors, pools, settings=settings, key=key).scores(x, y).x2y

    first = scored(anchors, pools)
    # Other rows of the same shape: nothing is compiled again.
    other_pools = Pools(
        np.concatenate([anchors.x[:30], pools.x[30:]]),
        np.concatenate([anchors.y[10:40], pools.y[30:]]),
    )
    if method.needs.pools:
        assert not np.allclose(scored(anchors, other_pools), first, atol=1e-6)
    else:
        np.testing.assert_allclose(scored(anchors, other_pools), first, atol=1e-5)
    shuffled = Anchors(anchors.x, np.roll(anchors.y, 1, axis=0))
    if method.needs.pairs:
        assert not np.allclose(scored(shuffled, pools), first, atol=1e-6)
    else:
        np.testing.assert_allclose(scored(shuffled, pools), first, atol=1e-5)


def test_names_are_looked_up() -> None:
    assert [m.name for m in find_methods(["csa", "asif", "csa"])] == ["csa", "asif"]
    assert find_methods(["all"]) == list(METHODS.values())
    with pytest.raises(
        InputError, match="There is no method 'sotaling': did you mean so"
    ):
        find_methods(["sotaling"])
    with pytest.raises(InputError, match="Name at least one method"):
        find_methods([])
