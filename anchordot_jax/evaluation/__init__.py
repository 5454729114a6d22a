"""Evaluation of aligned embeddings: retrieval, classes, hubness and spectra."""

from anchordot_jax.evaluation.bootstrap import Interval, bootstrap_mean
from anchordot_jax.evaluation.hubness import k_occurrence, skewness
from anchordot_jax.evaluation.mutual_knn import mutual_knn_alignment
from anchordot_jax.evaluation.pairs import PairedRows, positives_from_pairs
from anchordot_jax.evaluation.retrieval import (
    Retrieval,
    chance_recall,
    evaluate,
    expected_rank,
    hits_at_k,
    mean_reciprocal_rank,
    recall_at_k,
    retrieve,
)
from anchordot_jax.evaluation.spectrum import (
    participation_ratio,
    participation_ratio_of_spectrum,
)
from anchordot_jax.evaluation.zero_shot import ZeroShot, class_embeddings, classify

__all__ = [
    "Interval",
    "PairedRows",
    "Retrieval",
    "ZeroShot",
    "bootstrap_mean",
    "chance_recall",
    "class_embeddings",
    "classify",
    "evaluate",
    "expected_rank",
    "hits_at_k",
    "k_occurrence",
    "mean_reciprocal_rank",
    "mutual_knn_alignment",
    "participation_ratio",
    "participation_ratio_of_spectrum",
    "positives_from_pairs",
    "recall_at_k",
    "retrieve",
    "skewness",
]
