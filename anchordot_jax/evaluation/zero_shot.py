"""Zero-shot classification: an image's class is that of the nearest prompt embedding.

A class is the unit mean of its prompts' embeddings (Radford et al., 2021); an image is
scored by its inner product with every class. Ties count as in `evaluation.retrieval`,
so that an encoder that maps everything to one point has the accuracy of chance.
"""

from typing import NamedTuple

import numpy as np

from anchordot_jax.arrays import AnyArray
from anchordot_jax.errors import InputError
from anchordot_jax.evaluation.retrieval import hits_at_k, retrieve
from anchordot_jax.matching.nearest import as_embeddings


class ZeroShot(NamedTuple):
    """How well images were classified; shares between 0 and 1."""

    top1: float
    """Share of the images whose own class scores highest."""
    top5: float
    """Share of the images whose own class is among the five highest."""
    per_class: np.ndarray
    """`top1` of each class's images `[c]`; NaN for a class without images."""
    counts: np.ndarray
    """Images of each class `[c]`."""


def class_embeddings(
    prompts: AnyArray, labels: np.ndarray, n_classes: int
) -> np.ndarray:
    """Return one unit-norm row a class: the mean of its prompts' unit rows `[c, d]`.

    Args:
        prompts: embeddings of prompts in the shared space `[p, d]`.
        labels: the class of each prompt `[p]`, from 0 to `n_classes` - 1.
        n_classes: c.

    Raises:
        InputError: labels that do not match, a class without prompts, or one whose
            prompts cancel out.
    """
    rows = np.asarray(as_embeddings(prompts, "prompts"), np.float64)
    numbers = _labels(labels, len(rows), n_classes, "prompts")
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
    sums = np.zeros((n_classes, rows.shape[1]))
    np.add.at(sums, numbers, rows)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    empty = np.flatnonzero(norms[:, 0] < 1e-12)
    if len(empty):
        raise InputError(
            f"Class {empty[0]} has no direction: it has "
            f"{int((numbers == empty[0]).sum())} prompts; give each class at least "
            f"one that is not zero."
        )
    return np.asarray(sums / norms, np.float32)


def classify(images: AnyArray, classes: AnyArray, labels: np.ndarray) -> ZeroShot:
    """Return the accuracy of classifying images by the nearest class.

    Args:
        images: embeddings in the shared space `[q, d]`.
        classes: one row a class `[c, d]`, see `class_embeddings`.
        labels: the true class of each image `[q]`.

    Raises:
        InputError: shapes that do not match, or a label that is no class.
    """
    n_classes = len(as_embeddings(classes, "classes"))
    numbers = _labels(labels, len(as_embeddings(images, "images")), n_classes, "images")
    found = retrieve(images, classes, numbers)
    right = hits_at_k(found, 1)
    counts = np.bincount(numbers, minlength=n_classes)
    sums = np.bincount(numbers, weights=right, minlength=n_classes)
    per_class = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return ZeroShot(
        top1=float(right.mean()),
        top5=float(hits_at_k(found, 5).mean()),
        per_class=per_class,
        counts=counts,
    )


def _labels(labels: np.ndarray, n: int, n_classes: int, what: str) -> np.ndarray:
    numbers = np.asarray(labels)
    fits = numbers.shape == (n,) and np.issubdtype(numbers.dtype, np.integer)
    if not fits or (n and not 0 <= numbers.min() <= numbers.max() < n_classes):
        raise InputError(
            f"Give each of the {n} {what} one class from 0 to {n_classes - 1}, got "
            f"labels of shape {numbers.shape} and type {numbers.dtype}."
        )
    return numbers
