"""`anchordot diagnose`: how well are two spaces aligned, and why not better?"""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from anchordot_jax.diagnostics.settings import UnbalancedConfig
from anchordot_jax.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from anchordot_jax.diagnostics.diagnosis import Diagnosis


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnose:
    """Take the gap between two embedding files apart, without any training.

    Reports transport, coupling complexity and mass variation, the mean gap, and, with
    pairs, the pair residual and retrieval. Compares the files as they are where both
    have the same dimension; a model's embeddings of them, or their anchor profiles,
    where --model or --anchors is given.
    """

    x: str
    """FILE or FILE::dataset of the one side's embeddings."""
    y: str
    """FILE or FILE::dataset of the other side's embeddings."""
    out: Path
    """Folder to write."""
    pairs: str | None = None
    """CSV of pairs (columns x,y), or the word rows: row i of x belongs to row i of y.
    Only paired rows are then compared. Without it there are no pair metrics."""
    pair_keys: Literal["auto", "rows", "ids"] = "auto"
    """How the values of the pairs files are read."""
    model: Path | None = None
    """Run folder or model folder: compare its embeddings of the files."""
    anchors: Path | None = None
    """CSV of known pairs: compare the profiles of similarities to them."""
    gamma: float = 0.75
    """Whitening of the profiles, with --anchors."""
    seed: int = 0
    """Fixes the folds of the modality probe."""
    json: bool = False
    """Print one JSON object instead of tables."""
    config: Annotated[UnbalancedConfig, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=UnbalancedConfig
    )

    def run(self) -> int:
        """Diagnose, write and print the report, and return the exit code."""
        from anchordot_jax import data, files
        from anchordot_jax.diagnostics import diagnosis, report

        files.check_writable(self.out)
        source_x, source_y = data.open_embeddings(self.x), data.open_embeddings(self.y)
        known = self._pairs(source_x, source_y)
        x, y, space = self._embeddings(source_x, source_y)
        found = diagnosis.diagnose(
            x, y, known, config=self.config, seed=self.seed, names=(self.x, self.y)
        )
        what = {"x": self.x, "y": self.y, "pairs": self.pairs, "space": space}
        written = report.write_report(
            self.out, found, what=what, ids_x=source_x.ids, ids_y=source_y.ids
        )
        self._print(found, space, written, (source_x.ids, source_y.ids))
        return 0

    def _pairs(self, x: Any, y: Any) -> "np.ndarray | None":
        """Return the pairs as row numbers; None where none were given."""
        import numpy as np

        from anchordot_jax import data

        if self.pairs is None:
            return None
        if self.pairs == "rows":
            if x.shape[0] != y.shape[0]:
                raise InputError(
                    f"--pairs rows needs files of as many rows, but {self.x} has "
                    f"{x.shape[0]} and {self.y} has {y.shape[0]}: say which rows "
                    f"belong together in a CSV, or leave --pairs out for the metrics "
                    f"without pairs."
                )
            return np.repeat(np.arange(x.shape[0])[:, None], 2, axis=1)
        return data.read_pairs(Path(self.pairs), x, y, keys=self.pair_keys)

    def _embeddings(self, x: Any, y: Any) -> tuple[Any, Any, str]:
        """Return the rows to compare, and what space they are of."""
        from anchordot_jax.cli.models import load_model

        if self.model is not None and self.anchors is not None:
            raise InputError("Give --model or --anchors, not both.")
        if self.model is not None:
            model = load_model(self.model)
            return model.embed_x(x), model.embed_y(y), f"embeddings of {self.model}"
        rows_x, rows_y = _read(x), _read(y)
        if self.anchors is not None:
            return self._profiles(x, y, rows_x, rows_y)
        if rows_x.shape[1] != rows_y.shape[1]:
            raise InputError(
                f"{self.x} has {rows_x.shape[1]} dimensions and {self.y} has "
                f"{rows_y.shape[1]}, so that their rows have no cosine: compare a "
                f"fitted model's embeddings (--model RUN), or profiles of some known "
                f"pairs (--anchors CSV)."
            )
        return rows_x, rows_y, "the files as they are"

    def _profiles(
        self, x: Any, y: Any, rows_x: Any, rows_y: Any
    ) -> tuple[Any, Any, str]:
        import numpy as np

        from anchordot_jax import data
        from anchordot_jax.config import check_gamma
        from anchordot_jax.profiles import fit_basis, profile

        check_gamma(self.gamma)
        anchors = data.read_pairs(Path(str(self.anchors)), x, y, keys=self.pair_keys)
        data.check_enough_pairs(anchors, str(self.anchors))
        profile_x, profile_y = (
            np.asarray(profile(rows, fit_basis(rows[own]), self.gamma))
            for rows, own in zip((rows_x, rows_y), anchors.T, strict=True)
        )
        space = f"profiles of {len(anchors)} anchors, gamma {self.gamma:g}"
        return profile_x, profile_y, space

    def _print(
        self,
        found: "Diagnosis",
        space: str,
        written: list[str],
        ids: tuple[Any, Any],
    ) -> None:
        from anchordot_jax.cli import output
        from anchordot_jax.diagnostics import diagnosis, report

        if self.json:
            output.print_json(
                {"out": str(self.out), "space": space, **diagnosis.summary(found)}
            )
            return
        title = f"{len(found.x)} rows of x, {len(found.y)} of y: {space}"
        output.print_table(title, ["", "value", "meaning"], report.rows_of_table(found))
        print(report.how_it_ended(found))
        if found.pairs is not None:
            rows = report.worst_pairs(found, *ids)[: report.LISTED]
            output.print_table(
                "Worst pairs by residual",
                list(rows[0]),
                [list(row.values()) for row in rows],
            )
        print(f"Written to {self.out}: {', '.join(written)}.")


def _read(source: Any) -> Any:
    """Return a file's rows; bad ones are named by their row number."""
    from anchordot_jax import data

    array = source.read()
    data.check_embeddings(array, source.where)
    return array
