"""The README.md of a model folder."""

from collections.abc import Mapping
from typing import Any

CITATION = """\
Julien Kordes and Reuben Dorent. Representation Alignment from a Few Paired Data via
Distilled Optimal Transport. arXiv:2610.12781, 2026."""


def loading_code(place: str) -> str:
    """Return the Python lines that load a model folder."""
    return f"""\
from anchordot_jax import AlignedModel

model = AlignedModel.load("{place}")
scores = model.embed_x(x) @ model.embed_y(y).T"""


def model_card(
    info: Mapping[str, Any],
    metrics: Mapping[str, Any],
    *,
    code: str = loading_code("this-folder"),
) -> str:
    """Return the Markdown text that explains a model to who finds its folder.

    Args:
        info: how the model was made.
        metrics: results on held-out pairs.
        code: Python lines that show how the files beside the card are used.
    """
    lines = [
        "---",
        "library_name: anchordot-jax",
        "tags: [representation-alignment, optimal-transport, retrieval]",
        "---",
        "",
        "# An aligned pair of embedding spaces",
        "",
        "Two small encoders (LayerNorm and one linear map each) that take embeddings",
        "of two frozen encoders into one shared space, where the inner product is a",
        "cosine.",
        "",
        "```python",
        code,
        "```",
        "",
        "## How it was made",
        "",
    ]
    lines += [f"- {name}: {value}" for name, value in _facts(info)]
    if metrics:
        lines += ["", "## Results on held-out pairs", ""]
        lines += ["| metric | value |", "| --- | --- |"]
        lines += [f"| {name} | {value:.4g} |" for name, value in metrics.items()]
        lines += ["", "Recalls are fractions; ranks start at 1."]
    lines += ["", "## Citation", "", CITATION, ""]
    return "\n".join(lines)


def _facts(info: Mapping[str, Any]) -> list[tuple[str, Any]]:
    names = {
        "method": "method",
        "dim_x": "dimension of x",
        "dim_y": "dimension of y",
        "dim": "dimension of the shared space",
        "n_anchors": "anchor pairs",
        "n_pool_x": "unpaired x items",
        "n_pool_y": "unpaired y items",
        "gamma": "gamma",
        "eta": "eta",
        "rho": "rho",
        "mass": "mass of the plan",
        "ridge": "ridge",
        "balance": "balance of the ridges",
        "power": "power of the correlations",
        "sharpness": "sharpness of the plan",
        "ridge_ratio": "ratio of the second ridges to the first",
        "balance_ratio": "ratio of their balances",
        "final_power": "power of the second correlations",
        "versions": "versions",
    }
    return [(text, info[key]) for key, text in names.items() if key in info]
