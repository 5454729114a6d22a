"""`anchordot report`: a run as one page that opens from disk."""

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from anchordot_jax.errors import InputError

if TYPE_CHECKING:
    from anchordot_jax.report.context import Data
    from anchordot_jax.runs.run_folder import RunFolder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """Write a run's report: report.html, report.md and the plots of the latter.

    The page holds everything itself and opens without a network. What the run's files
    are needed for is left out, with a line that says so, where they are gone.
    """

    run_folder: tyro.conf.Positional[Path]
    """Run folder of a finished fit."""
    x: str | None = None
    """FILE of x embeddings, if it is no longer where the fit found it."""
    y: str | None = None
    """FILE of y embeddings, the same."""
    texts_x: str | None = None
    """Texts of the x items: .txt of one a line, .csv or .tsv with a column text, or
    FILE.h5::dataset."""
    texts_y: str | None = None
    """Texts of the y items."""
    images: Path | None = None
    """Folder of pictures named by the items' ids or row numbers."""
    smiles: str | None = None
    """SMILES of the items, a file like --texts-x; drawn where RDKit is installed."""
    picture_side: Literal["x", "y"] = "x"
    """Side that --images and --smiles belong to."""
    contrastive: bool = False
    """Also fit contrastive training on the anchors, once, and show its recall."""
    out: Path | None = None
    """Folder to write, instead of the run's own."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Write the report and return the exit code."""
        from anchordot_jax import files
        from anchordot_jax.cli import output
        from anchordot_jax.fitted.fitted_run import (
            load_finished,
            stored_choice,
            stored_config,
        )
        from anchordot_jax.report.build import build_report, write_report
        from anchordot_jax.report.context import Context

        run, model = load_finished(self.run_folder)
        folder = self.run_folder if self.out is None else self.out
        files.check_writable(folder)
        known, missing = self._data(run, model)
        context = Context(
            run=run,
            config=stored_config(run),
            model=model,
            chosen=stored_choice(run),
            data=known,
            missing=_without_folders(missing, run),
            contrastive=self.contrastive,
        )
        report = build_report(context)
        written = write_report(report, folder)
        if self.json:
            output.print_json(
                {
                    "files": [str(path) for path in written],
                    "sections": [section.name for section in report.sections],
                    "missing": missing,
                }
            )
            return 0
        if missing:
            print(missing)
        print(f"Report: {written[0]}")
        return 0

    def _data(self, run: "RunFolder", model: Any) -> "tuple[Data | None, str]":
        """Return the run's data, or why they are not at hand."""
        from anchordot_jax import data
        from anchordot_jax.fitted import fitted_run
        from anchordot_jax.report.context import Data, test_items
        from anchordot_jax.report.items import Viewer, check_images

        asked = (self.x, self.y, self.texts_x, self.texts_y, self.images, self.smiles)
        if self.images is not None:
            check_images(self.images)
        try:
            known = fitted_run.load_data(run, x=self.x, y=self.y)
        except InputError as error:
            if any(value is not None for value in asked):
                raise
            return None, f"Left out: {error}"
        shown: dict[str, Viewer] = {}
        for name, side, texts in (
            ("x", known.x, self.texts_x),
            ("y", known.y, self.texts_y),
        ):
            own = self.picture_side == name
            shown[name] = Viewer(
                side,
                {} if texts is None else data.read_texts(texts, side.source),
                data.read_texts(self.smiles, side.source, columns=("smiles",))
                if own and self.smiles is not None
                else {},
                self.images if own else None,
            )
        test = test_items(model, known)
        both = Data(known=known, test=test, viewer_x=shown["x"], viewer_y=shown["y"])
        return both, ""


def _without_folders(text: str, run: "RunFolder") -> str:
    """Return a sentence with the run's files by name alone: a report is passed on."""
    from anchordot_jax.runs.sources import read_sources

    named = None
    with contextlib.suppress(InputError):
        named = read_sources(run.path)
    files = [Path(name.partition("::")[0]) for name in named or () if name]
    for path in (run.path, *files):
        text = text.replace(str(path), path.name)
    return text
