"""Chosen items against clusters and corners that anybody can see."""

import numpy as np
import pytest

from anchordot_jax.data import load_openclipart
from anchordot_jax.errors import InputError
from anchordot_jax.matching.coverage import choose_cover


@pytest.fixture(scope="module")
def clustered() -> tuple[np.ndarray, np.ndarray]:
    """Return 60 rows about 6 orthogonal directions, of 5 to 15 rows each."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), [5, 15, 10, 10, 12, 8])
    rows = np.eye(6)[labels] + 0.05 * rng.normal(size=(60, 6))
    return rows.astype(np.float32), labels


@pytest.mark.parametrize("rule", ["k-means", "k-centre"])
def test_one_item_of_each_cluster(
    clustered: tuple[np.ndarray, np.ndarray], rule: str
) -> None:
    rows, labels = clustered
    found = choose_cover(rows, 6, rule=rule)
    assert sorted(labels[found.rows]) == list(range(6))
    assert np.array_equal(found.covers, np.sort(np.bincount(labels))[::-1])
    assert np.array_equal(found.covers, np.bincount(labels)[labels[found.rows]])
    assert found.mean_cosine > 0.98
    assert found.mean_cosine > choose_cover(rows, 6, rule="random").mean_cosine


@pytest.mark.parametrize("rule", ["k-means", "k-centre", "random"])
def test_known_rows_are_not_chosen_again(
    clustered: tuple[np.ndarray, np.ndarray], rule: str
) -> None:
    rows, labels = clustered
    known = np.flatnonzero(labels < 3)
    found = choose_cover(rows, 3, rule=rule, known=known)
    assert not np.isin(found.rows, known).any()
    assert len(np.unique(found.rows)) == 3
    if rule != "random":
        assert sorted(labels[found.rows]) == [3, 4, 5]


def test_k_centre_is_the_greedy_one_in_float64() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(40, 4))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    chosen = [7]
    while len(chosen) < 6:
        chosen.append(int(np.argmin((unit @ unit[chosen].T).max(axis=1))))
    found = choose_cover(rows, 5, rule="k-centre", known=np.array([7]))
    assert set(found.rows) == set(chosen[1:])


def test_the_scale_of_a_row_does_not_matter(
    clustered: tuple[np.ndarray, np.ndarray],
) -> None:
    rows, _ = clustered
    scaled = rows * np.linspace(0.1, 9, len(rows), dtype=np.float32)[:, None]
    for rule in ("k-means", "k-centre"):
        one, other = (choose_cover(part, 6, rule=rule) for part in (rows, scaled))
        assert set(one.rows) == set(other.rows)


def test_more_than_there_are_is_refused() -> None:
    rows = np.eye(4, dtype=np.float32)
    with pytest.raises(InputError, match="at most the 3 items"):
        choose_cover(rows, 4, known=np.array([0]))
    with pytest.raises(InputError, match="at most the 1 distinct"):
        choose_cover(np.ones((5, 2)), 2)


def test_clip_art_is_covered_better_than_by_chance() -> None:
    """Fifty typical pictures are nearer to the others than fifty random ones are."""
    images = load_openclipart().image[:, :64]
    found = choose_cover(images, 50)
    drawn = [choose_cover(images, 50, rule="random", seed=seed) for seed in range(5)]
    assert found.mean_cosine > max(cover.mean_cosine for cover in drawn)
    assert found.covers.sum() == len(images)
