"""What known pairs add to the distributional picture (UOT-Gap, Sections 3.2 and 5.1).

Re-pairing the rows of one side leaves every term of the decomposition as it is, and the
mean gap too; the metrics of this module that look at pairs are those that notice.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from anchordot_jax import geometry
from anchordot_jax.arrays import AnyArray

LOGIT_SCALE = 100.0
"""Scale of the logits whose entropy is measured: the largest that CLIP may learn."""

PROBE_ROWS = 5000
"""Most rows of a side that the modality probe is trained on."""
PROBE_FOLDS = 5


def mean_gap(x: Float[AnyArray, "n d"], y: Float[AnyArray, "m d"]) -> float:
    """Return the distance of the two centroids, |mean x - mean y|."""
    means = (np.asarray(side, np.float64).mean(axis=0) for side in (x, y))
    first, second = means
    return float(np.linalg.norm(first - second))


def pair_costs(x: Float[AnyArray, "n d"], y: Float[AnyArray, "n d"]) -> np.ndarray:
    """Return C_ii = 1 - x_i . y_i, `[n]`; row i of x belongs to row i of y."""
    products = np.einsum("ij,ij->i", np.asarray(x), np.asarray(y), dtype=np.float64)
    return np.asarray(1 - products)


def pair_residual(pair_cost: float, unit_transport: float) -> float:
    """Return PairCost - <C, pi>/sum pi, the pair-aware residual.

    The published text omits the formula; its Table 1 fixes it: 0.681 - 0.807 = -0.126
    for full captions and 0.824 - 0.807 = 0.017 for shuffled ones, with a transport cost
    that shuffling does not change. Negative: the observed pairs are better than the
    soft matching.
    """
    return pair_cost - unit_transport


def strain(
    complexity: float, variation_x: float, variation_y: float, residual: float
) -> float:
    """Return complexity + variations + pair residual: this package's composite.

    It is the optimum's value less the optimum's transport, plus the pair residual. The
    published composite, called UOT-Gap, "combines marginal and coupling terms with the
    pair residual" by a formula that the text omits; this one has a name of its own
    because it need not be that one.
    """
    return complexity + variation_x + variation_y + residual


def logit_entropy(
    x: Float[AnyArray, "n d"],
    y: Float[AnyArray, "m d"],
    *,
    scale: float = LOGIT_SCALE,
) -> float:
    """Return the mean entropy of softmax_j(scale x_i . y_j) over the rows, in nats.

    log m where all similarities are equal, 0 where every row has one clear neighbour;
    pairs do not matter. Rows are taken a tile at a time.
    """
    tile = geometry.tile_rows(len(y))
    x, y = jnp.asarray(x), jnp.asarray(y)
    factor = jnp.asarray(scale, jnp.float32)
    total = 0.0
    for start in range(0, len(x), tile):
        total += float(_entropy_sum(x[start : start + tile], y, factor))
    return total / len(x)


@jax.jit
def _entropy_sum(x: Array, y: Array, scale: Array) -> Array:
    logits = scale * jnp.matmul(x, y.T, precision=geometry.HIGHEST)
    logs = jax.nn.log_softmax(logits, axis=1)
    return -jnp.sum(jnp.exp(logs) * logs)


def modality_auc(
    x: Float[AnyArray, "n d"], y: Float[AnyArray, "m d"], *, seed: int = 0
) -> float:
    """Return the AUC of a logistic classifier that tells x rows from y rows.

    Of rows that the classifier was not trained on: five folds, stratified. 1: a
    hyperplane separates the sides; 0.5: none does. It can fall below 0.5, as where the
    sides' means were made equal and a fold's absence shifts them apart. At most 5000
    rows a side are used, drawn at random.

    Args:
        x: rows of one side, at least five.
        y: rows of the other side.
        seed: fixes the folds and the draw.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    rng = np.random.default_rng(seed)
    sides = [
        np.asarray(side)[rng.choice(len(side), min(len(side), PROBE_ROWS), False)]
        for side in (x, y)
    ]
    rows = np.concatenate(sides)
    labels = np.repeat([0, 1], [len(side) for side in sides])
    folds = StratifiedKFold(PROBE_FOLDS, shuffle=True, random_state=seed)
    model = LogisticRegression(max_iter=1000)
    scores = cross_val_predict(
        model, rows, labels, cv=folds, method="decision_function"
    )
    return float(roc_auc_score(labels, scores))
