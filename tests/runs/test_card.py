"""The card: what a model is, how it was made, and what it scored."""

from anchordot_jax.runs.card import CITATION, model_card

INFO = {
    "method": "anchordot",
    "dim_x": 12,
    "dim_y": 9,
    "n_anchors": 14,
    "gamma": 0.75,
    "eta": 0.02,
    "versions": {"jax": "1.2.3"},
    "settings": {"seed": 4711},
}


def test_the_facts_are_listed_in_order() -> None:
    """Each known fact is a line; those not given, and the settings, are left out."""
    card = model_card(INFO, {})
    facts = [line for line in card.splitlines() if line.startswith("- ")]
    assert facts == [
        "- method: anchordot",
        "- dimension of x: 12",
        "- dimension of y: 9",
        "- anchor pairs: 14",
        "- gamma: 0.75",
        "- eta: 0.02",
        "- versions: {'jax': '1.2.3'}",
    ]


def test_results_are_a_table() -> None:
    """Every metric is a row, with four digits."""
    card = model_card(INFO, {"x2y/recall@1": 1 / 3, "x2y/mean_rank": 12.0})
    assert "| x2y/recall@1 | 0.3333 |\n| x2y/mean_rank | 12 |\n" in card
    assert "## Results on held-out pairs" in card


def test_without_results_there_is_no_table() -> None:
    """A model that was not scored shows no empty section."""
    card = model_card(INFO, {})
    assert "Results" not in card
    assert "|" not in card


def test_a_card_begins_with_its_metadata_and_ends_with_the_source() -> None:
    """Front matter, then the code to load it, then the paper."""
    card = model_card({}, {})
    assert card.startswith("---\nlibrary_name: anchordot-jax\n")
    assert 'AlignedModel.load("this-folder")' in card
    assert card.endswith(f"## Citation\n\n{CITATION}\n")
