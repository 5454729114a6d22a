"""`anchordot push`: a model to the Hugging Face hub."""

import dataclasses
from pathlib import Path

import tyro


@dataclasses.dataclass(frozen=True, kw_only=True)
class Push:
    """Upload a model with its card; `hf:USER/NAME` then loads it anywhere.

    Log in once with `hf auth login`, or set HF_TOKEN.
    """

    model: tyro.conf.Positional[Path]
    """Run folder or model folder."""
    repository: tyro.conf.Positional[str]
    """USER/NAME on the hub; made if need be."""
    private: bool = False
    """Make a new repository private."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Push and return the exit code."""
        from anchordot_jax.cli import output
        from anchordot_jax.cli.models import load_model
        from anchordot_jax.export import hub
        from anchordot_jax.runs import card, model_folder

        model = load_model(self.model)
        place = f"{hub.PREFIX}{self.repository}"
        text = card.model_card(model.info, model.metrics, code=card.loading_code(place))
        folder = (
            hub.fetch(str(self.model))
            if hub.is_address(self.model)
            else model_folder.locate(self.model)
        )
        commit = hub.push(
            folder,
            self.repository,
            card=text,
            private=self.private,
        )
        if self.json:
            output.print_json({"model": place, "commit": commit})
        else:
            print(f"{place}: {commit}")
        return 0
