"""Scorers that are a model and a matching rule, and how to load any scorer."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from anchordot_jax import profiles
from anchordot_jax.errors import InputError
from anchordot_jax.matching import rules
from anchordot_jax.model import AlignedModel, Rows, Scores


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuleScorer:
    """A model whose similarities are turned into scores by a matching rule.

    Transductive: an item's scores depend on the items it is scored with.
    """

    model: AlignedModel
    """Gives the similarities: inner products of its embeddings."""
    rule: str
    """A key of `matching.rules.RULES`."""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of `RuleSettings` that differ from its defaults, or all of them."""

    def __post_init__(self) -> None:
        """Check the rule's name and its settings."""
        rules.find_rule(self.rule)
        rule_settings(self.settings)

    @property
    def info(self) -> Mapping[str, Any]:
        """How the model was made, and the rule."""
        return {
            **self.model.info,
            "rule": self.rule,
            "rule_settings": dict(self.settings),
        }

    def scores(self, x: Rows, y: Rows) -> Scores:
        """Return the rule's scores of all x rows with all y rows, both ways.

        For a rule that needs them, the similarities within a side are the cosines of
        its embeddings in the shared space.

        Raises:
            InputError: wrong shapes, rows that are zero or not finite, or settings
                with which the rule has no answer.
        """
        embedded_x, embedded_y = self.model.embed_x(x), self.model.embed_y(y)
        within = None
        if self.rule == "dual-bank":
            within = rules.Within(_cosines(embedded_x), _cosines(embedded_y))
        rule = rules.find_rule(self.rule)
        similarity = embedded_x @ embedded_y.T
        return Scores(*rule(similarity, rule_settings(self.settings), within))

    def save(self, folder: str | Path) -> None:
        """Write the model's folder, with the rule in its config.json.

        Raises:
            InputError: the place cannot be written to or holds something else.
        """
        dataclasses.replace(self.model, info=self.info).save(folder)


def load_scorer(folder: str | Path) -> AlignedModel | RuleScorer:
    """Return the scorer of a folder: a model, with a matching rule if it has one.

    Raises:
        InputError: no model there, a file missing or damaged, or a rule that this
            version does not know.
    """
    model = AlignedModel.load(folder)
    if "rule" not in model.info:
        return model
    info = dict(model.info)
    rule, settings = info.pop("rule"), info.pop("rule_settings", {})
    return RuleScorer(
        model=dataclasses.replace(model, info=info), rule=rule, settings=settings
    )


def rule_settings(values: Mapping[str, Any]) -> rules.RuleSettings:
    """Return the settings of a rule; missing ones take their default.

    Raises:
        InputError: a setting that no rule has, or a value out of range.
    """
    known = {field.name for field in dataclasses.fields(rules.RuleSettings)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise InputError(
            f"No matching rule has a setting {unknown[0]!r}; known are: "
            f"{', '.join(sorted(known))}."
        )
    return rules.RuleSettings(**values)


def _cosines(embedded: np.ndarray) -> np.ndarray:
    unit = np.asarray(profiles.normalize(embedded))
    cosines: np.ndarray = unit @ unit.T
    return cosines
