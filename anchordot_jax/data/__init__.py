"""Embedding files, pairs files and splits: from paths to checked arrays.

Names: `FILE` or `FILE::dataset` is an embedding array; a pairs file is a CSV with the
columns `x` and `y`; a split says which rows are anchors, test pairs and pools.
"""

from anchordot_jax.data.bundled import Openclipart as Openclipart
from anchordot_jax.data.bundled import load_openclipart as load_openclipart
from anchordot_jax.data.datasets import DataSet as DataSet
from anchordot_jax.data.datasets import load_dataset as load_dataset
from anchordot_jax.data.pairs import check_enough_pairs as check_enough_pairs
from anchordot_jax.data.pairs import read_pairs as read_pairs
from anchordot_jax.data.readers import open_embeddings as open_embeddings
from anchordot_jax.data.source import EmbeddingSource as EmbeddingSource
from anchordot_jax.data.splits import Split as Split
from anchordot_jax.data.splits import protocol_split as protocol_split
from anchordot_jax.data.splits import read_split as read_split
from anchordot_jax.data.splits import redraw_split as redraw_split
from anchordot_jax.data.splits import split_by_exclusion as split_by_exclusion
from anchordot_jax.data.splits import split_digest as split_digest
from anchordot_jax.data.splits import write_split as write_split
from anchordot_jax.data.texts import read_texts as read_texts
from anchordot_jax.data.validation import EmbeddingReport as EmbeddingReport
from anchordot_jax.data.validation import check_embeddings as check_embeddings
from anchordot_jax.data.validation import inspect_embeddings as inspect_embeddings
from anchordot_jax.data.weights import read_weights as read_weights
from anchordot_jax.data.writers import write_embeddings as write_embeddings
