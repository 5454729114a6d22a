"""Zero-shot classification: worked cases, an independent reference, chance, errors."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, recall_score, top_k_accuracy_score

from anchordot_jax import InputError
from anchordot_jax.evaluation.zero_shot import class_embeddings, classify


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_a_class_is_the_unit_mean_of_its_unit_prompts() -> None:
    prompts = np.array([[3.0, 0.0], [0.0, 0.5], [0.0, -2.0]], np.float32)
    found = class_embeddings(prompts, np.array([1, 1, 0]), 2)
    half = np.sqrt(0.5)
    np.testing.assert_allclose(found, [[0, -1], [half, half]], atol=1e-7)


def test_accuracy_agrees_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    classes = unit(rng.normal(size=(7, 16)))
    labels = rng.integers(7, size=60)
    images = unit(classes[labels] + 0.6 * rng.normal(size=(60, 16)))
    found = classify(images, classes, labels)
    scores = images @ classes.T
    predicted = scores.argmax(axis=1)
    assert 0.3 < found.top1 < 1
    assert found.top1 == pytest.approx(accuracy_score(labels, predicted))
    top5 = top_k_accuracy_score(labels, scores, k=5, labels=np.arange(7))
    assert found.top5 == pytest.approx(top5)
    each = recall_score(labels, predicted, average=None, labels=np.arange(7))
    np.testing.assert_allclose(found.per_class, each)
    np.testing.assert_array_equal(found.counts, np.bincount(labels, minlength=7))


def test_one_point_for_all_has_the_accuracy_of_chance() -> None:
    found = classify(np.ones((12, 3)), np.ones((8, 3)), np.arange(12) % 4)
    assert found.top1 == pytest.approx(1 / 8)
    assert found.top5 == pytest.approx(5 / 8)
    assert np.isnan(found.per_class[4:]).all()
    np.testing.assert_allclose(found.per_class[:4], 1 / 8)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0, 2, 1]), "from 0 to 1"),
        (np.array([0, 1]), "each of the 3 prompts"),
        (np.array([0.0, 1.0, 1.0]), "float64"),
        (np.array([1, 1, 1]), "Class 0 has no direction: it has 0 prompts"),
    ],
)
def test_bad_labels_are_refused(labels: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        class_embeddings(np.eye(3, dtype=np.float32), labels, 2)


def test_a_label_that_is_no_class_is_refused() -> None:
    rows = np.eye(3, dtype=np.float32)
    with pytest.raises(InputError, match="each of the 3 images"):
        classify(rows, rows[:2], np.array([0, 1, 2]))
