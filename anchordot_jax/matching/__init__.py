"""Matching across spaces: nearest neighbours and the inverted softmax."""

from anchordot_jax.matching.inverted_softmax import bank_offsets
from anchordot_jax.matching.nearest import TopK, top_k

__all__ = ["TopK", "bank_offsets", "top_k"]
