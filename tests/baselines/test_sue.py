"""SUE and its closed form as methods: what they recover, and how they are kept."""

import dataclasses

import jax
import numpy as np
import pytest
from sklearn.cross_decomposition import CCA

from anchordot_jax import AlignedModel
from anchordot_jax.baselines.protocol import Anchors, Pools
from anchordot_jax.baselines.sue.closed_form import fit_sue_spectral
from anchordot_jax.baselines.sue.fit import METHODS, fit_sue, spectral_side
from anchordot_jax.baselines.sue.graph import affinity_graph
from anchordot_jax.baselines.sue.pairs import canonical_projections
from anchordot_jax.baselines.sue.settings import GraphSettings, SueSettings
from anchordot_jax.errors import InputError
from planted import same_model

N_ANCHORS, N_TEST, N_POOL = 40, 50, 160
CLOSED = GraphSettings(
    eigenvectors=12, components=4, neighbours=10, scale_k=6, centered=True
)
NETS = SueSettings(
    hidden=(32, 32),
    eigenvectors=6,
    components=3,
    neighbours=10,
    scale_k=6,
    epochs=40,
    learning_rate=3e-3,
    residual_epochs=3,
)


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def planted():
    """Return anchors, pools and test pairs: two curved views of one surface."""
    rng = np.random.default_rng(0)
    n = N_ANCHORS + N_TEST + 2 * N_POOL
    u, v = rng.uniform(0, 1, size=(2, n)) * [[np.pi], [np.pi]]
    shape = [np.cos(u), np.cos(v), np.cos(u) * np.cos(v), np.cos(2 * u), np.sin(v)]
    latent = np.stack(shape, axis=1)
    x = unit(latent @ rng.normal(size=(5, 12)) + 0.05 * rng.normal(size=(n, 12)))
    y = unit(latent @ rng.normal(size=(5, 9)) + 0.05 * rng.normal(size=(n, 9)))
    a, b, c = np.cumsum([N_ANCHORS, N_TEST, N_POOL])
    return Anchors(x[:a], y[:a]), Pools(x[b:c], y[c:]), (x[a:b], y[a:b])


def recall(model, test, k=5):
    """Return the share of test pairs among each other's k best, x to y."""
    scores = model.scores(*test).x2y
    own = np.diag(scores)[:, None]
    return float(np.mean((scores > own).sum(axis=1) < k))


@pytest.fixture(scope="module")
def closed(planted):
    with jax.numpy_rank_promotion("raise"):
        return fit_sue_spectral(*planted[:2], settings=CLOSED, key=jax.random.key(0))


@pytest.fixture(scope="module")
def nets(planted):
    with jax.numpy_rank_promotion("raise"):
        return fit_sue(*planted[:2], settings=NETS, key=jax.random.key(0))


def test_closed_form_recovers_the_pairs(planted, closed):
    """Far above the chance of 0.1, and chance where the anchors are shuffled."""
    anchors, pools, test = planted
    assert recall(closed, test) > 0.6
    order = np.random.default_rng(1).permutation(N_ANCHORS)
    wrong = Anchors(anchors.x, anchors.y[order])
    lost = fit_sue_spectral(wrong, pools, settings=CLOSED, key=jax.random.key(0))
    assert recall(lost, test) < 0.35


def test_nets_recover_the_pairs(planted, nets):
    """SUE itself is far above chance too."""
    assert recall(nets, planted[2]) > 0.4


def test_fits_are_deterministic(planted, closed, nets):
    """One key, one model; another key another net, but the same closed form."""
    anchors, pools, _ = planted
    for fit, model, settings in (
        (fit_sue_spectral, closed, CLOSED),
        (fit_sue, nets, NETS),
    ):
        again = fit(anchors, pools, settings=settings, key=jax.random.key(0))
        assert same_model(again, model)
    other = fit_sue(anchors, pools, settings=NETS, key=jax.random.key(1))
    assert not same_model(other, nets)
    other = fit_sue_spectral(anchors, pools, settings=CLOSED, key=jax.random.key(1))
    assert same_model(other, closed)


@pytest.mark.parametrize("name", ["closed", "nets"])
def test_models_are_kept(name, planted, request, tmp_path):
    """A model comes back from its folder with the same scores and facts."""
    model, test = request.getfixturevalue(name), planted[2]
    model.save(tmp_path / "model")
    loaded = AlignedModel.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.scores(*test).x2y, model.scores(*test).x2y)
    assert loaded.info["method"] == {"closed": "sue-spectral", "nets": "sue"}[name]
    assert (loaded.dim_x, loaded.dim_y) == (12, 9)
    assert loaded.dim == loaded.info["settings"]["components"]
    assert (loaded.info["n_pool_x"], loaded.info["n_pool_y"]) == (160, 160)


def test_the_residual_net_is_on_x_alone(planted, nets):
    """Without it only x changes, and only by the residual."""
    plain = dataclasses.replace(NETS, residual=False)
    model = fit_sue(*planted[:2], settings=plain, key=jax.random.key(0))
    assert "residual" not in model.params["x"]
    assert "residual" in nets.params["x"]
    assert "residual" not in nets.params["y"]
    x, y = planted[2]
    np.testing.assert_array_equal(model.embed_y(y), nets.embed_y(y))
    assert not np.allclose(model.embed_x(x), nets.embed_x(x))


def test_the_map_is_the_fitted_embedding(planted, nets):
    """Items of the fit are embedded as they were: rotated, E^T L E diagonal."""
    anchors, pools, _ = planted
    keys = jax.random.split(jax.random.key(0), 3)
    side = spectral_side(anchors.y, pools.y, settings=NETS, key=keys[1])
    own = nets.params["y"]
    expected = unit(np.asarray(side.rows) @ own["projection"])
    items = np.concatenate([anchors.y, pools.y])
    np.testing.assert_allclose(nets.embed_y(items), expected, atol=2e-3)
    np.testing.assert_array_equal(own["shift"], np.zeros(3))
    np.testing.assert_allclose(side.rotation.T @ side.rotation, np.eye(6), atol=1e-6)
    assert nets.info["spectral_loss_y"] == pytest.approx(side.loss)


def test_literal_projection_is_not_the_canonical_one():
    """Uncentred coordinates differ from scikit-learn's scores by up to 0.826."""
    t = np.arange(8.0)
    x = np.stack([np.cos(t), np.sin(2 * t), t / 4], axis=1)
    y = np.stack([np.sin(t + 0.3), np.cos(2 * t)], axis=1)
    scores = CCA(n_components=2).fit(x, y).transform(x, y)
    literal = canonical_projections(x, y, components=2, centered=False)
    proper = canonical_projections(x, y, components=2, centered=True)
    for rows, score, raw, fitted in zip((x, y), scores, literal, proper, strict=True):
        np.testing.assert_allclose(
            rows @ fitted.kernel + fitted.shift, score, atol=1e-10
        )
        assert np.all(raw.shift == 0)
        assert raw.kernel.shape == fitted.kernel.shape
    gap = np.abs(x @ literal[0].kernel - scores[0]).max()
    assert gap == pytest.approx(0.826, abs=1e-3)
    found = np.corrcoef(np.concatenate(scores, axis=1).T)[:2, 2:]
    np.testing.assert_allclose(np.diag(found), [0.524528, 0.129314], atol=1e-5)


def test_candidates_share_graphs(planted, monkeypatch):
    """Several candidates are what single fits are, and each graph is built once."""
    method = next(m for m in METHODS if m.name == "sue-spectral")
    candidates = [
        CLOSED,
        dataclasses.replace(CLOSED, eigenvectors=8, components=3),
        dataclasses.replace(CLOSED, neighbours=12),
    ]
    built = []
    module = "anchordot_jax.baselines.sue.closed_form"

    def spy(*args, **options):
        built.append(options["neighbours"])
        return affinity_graph(*args, **options)

    monkeypatch.setattr(f"{module}.affinity_graph", spy)
    anchors, pools, test = planted
    key = jax.random.key(0)
    models = list(method.fit_candidates(anchors, pools, candidates, key=key))
    assert sorted(built) == [10, 10, 12, 12]
    for settings, model in zip(candidates, models, strict=True):
        alone = method.fit(anchors, pools, settings=settings, key=key)
        np.testing.assert_allclose(
            model.scores(*test).x2y, alone.scores(*test).x2y, atol=1e-3
        )


def test_methods_say_what_they_are():
    """Names, trust, and candidates and short schedules that are possible settings."""
    assert [(m.name, m.trust) for m in METHODS] == [
        ("sue", "code"),
        ("sue-spectral", "ours"),
    ]
    sue, closed_form = METHODS
    assert sue.settings.hidden == (4096, 4096, 1024)
    assert dataclasses.replace(sue.settings, **sue.short) != sue.settings
    assert "90 %" in sue.notes
    assert sue.needs.pools
    assert closed_form.needs.pools
    candidates = closed_form.candidates(closed_form.settings)
    assert candidates[0] == closed_form.settings
    assert len(set(candidates)) == len(candidates) > 1


def test_too_few_pairs_are_refused(planted):
    """Fewer pairs than canonical directions cannot fit them."""
    anchors, pools, _ = planted
    few = Anchors(anchors.x[:3], anchors.y[:3])
    with pytest.raises(InputError, match="allow 3 canonical directions, and 4"):
        fit_sue_spectral(few, pools, settings=CLOSED, key=jax.random.key(0))


def test_a_constant_coordinate_is_left_out_of_the_scores() -> None:
    """A graph's first mode is constant but for rounding, and must not be scaled up."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 40, 5))
    y[:, :2] = x[:, :2]
    noise = 1e-7 * rng.normal(size=(40, 1))
    wide = np.concatenate([1 + noise, x], axis=1)
    plain = canonical_projections(x, y, components=3, centered=True)
    both = canonical_projections(wide, y, components=3, centered=True)
    np.testing.assert_array_equal(both[0].kernel[0], 0)
    np.testing.assert_allclose(both[0].kernel[1:], plain[0].kernel, atol=1e-8)
    np.testing.assert_allclose(both[1].kernel, plain[1].kernel, atol=1e-8)
