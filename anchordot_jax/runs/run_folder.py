"""The folder of one fit: what it was asked, how far it is, and what came out.

Layout: config.json metrics.jsonl env.json splits.json sources.json selection.json
coupling.safetensors checkpoints/ model/ results/, and start.safetensors where a closed
form starts the students. What a later stage builds on (config, splits, selection,
start, coupling, checkpoints, model) holds a digest of its contents, so that a damaged
file is refused and never built upon. Every stage is stored once it is through, so the
same command continues where the last one stopped. Of several processes of one run the
first writes; all read, so that the folder must be one that all see.
"""

import dataclasses
import importlib.metadata
import json
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from anchordot_jax import dotted, files, maps
from anchordot_jax.coupling import Coupling
from anchordot_jax.distillation import TrainState
from anchordot_jax.errors import InputError
from anchordot_jax.parallel.mesh import is_first_process, wait_for_all
from anchordot_jax.recipes.soft_selection import Candidate as SoftCandidate
from anchordot_jax.recipes.soft_selection import SoftSelection
from anchordot_jax.runs import checkpoints, model_folder
from anchordot_jax.runs.tensors import read_tensors, write_tensors
from anchordot_jax.selection import Selection
from anchordot_jax.selection_curve import Candidate
from anchordot_jax.students import Params

S = TypeVar("S", Selection, SoftSelection)

SCHEMA = 1
OURS = (
    "metrics.jsonl",
    "env.json",
    "splits.json",
    "sources.json",
    "selection.json",
    "start.safetensors",
    "coupling.safetensors",
    "checkpoints",
    "model",
    "results",
    "tensorboard",
    "wandb",
    "plots",
    "report.html",
    "report.md",
    # Last: what an interrupted deletion leaves must still be known for a run.
    "config.json",
)

RESULTS = (
    "test.json",
    "seconds.json",
    "coupling.json",
    "report-ridge-cca.json",
    "report-contrastive.json",
)
NOT_COMPARED = ("schema", files.SEAL, "config.distillation.pool_memory")
"""What a run that is continued may differ in: where its pools lie changes no number but
for rounding, and a run that ran out of memory can go on with streamed pools."""
WRITTEN = tuple(f".{name}." for name in (*OURS, *model_folder.ALL_FILES, *RESULTS))
"""How the temporary names begin under which `files.replacing` writes them."""


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """One fit's folder, opened for the settings and data that it was made for."""

    path: Path

    @classmethod
    def open(
        cls,
        path: str | Path,
        identity: Mapping[str, Any],
        *,
        overwrite: bool = False,
    ) -> "RunFolder":
        """Return the run folder, new or continued.

        Args:
            path: the folder; made if need be.
            identity: settings and data digests as JSON values. A folder that was made
                for others is refused, but for what is in `NOT_COMPARED`.
            overwrite: delete an earlier run that is there.

        Raises:
            InputError: the place cannot be written to, holds other files, or holds the
                run of other settings or data.
        """
        folder = cls(Path(path))
        identity = json.loads(json.dumps(identity))
        if not is_first_process():
            wait_for_all("the run folder is open")
            folder._check_same(folder.identity(), identity)
            return folder
        folder._prepare(identity, overwrite=overwrite)
        wait_for_all("the run folder is open")
        return folder

    def _prepare(self, identity: Mapping[str, Any], *, overwrite: bool) -> None:
        """Make the folder, or check that it is of the same run."""
        files.check_writable(self.path)
        config = self.path / "config.json"
        if config.exists():
            stored = self.identity()
            if not overwrite:
                self._check_same(stored, identity)
                self._sweep()
                self._note_environment()
                return
            self._sweep()
            self._clear()
        elif self.path.is_dir() and any(
            not entry.name.startswith(".") for entry in self.path.iterdir()
        ):
            raise InputError(
                f"{self.path} holds files but no run (no config.json); choose an empty "
                f"or new folder."
            )
        files.write_json(config, files.sealed({"schema": SCHEMA, **identity}))
        self._note_environment()

    def _note_environment(self) -> None:
        """Write env.json, where a killed fit has not come that far."""
        path = self.path / "env.json"
        if not path.exists():
            files.write_json(path, environment())

    def _sweep(self) -> None:
        """Delete the half-written files that a killed fit left behind."""
        for folder in (self.path, self.path / "results", self.path / "model"):
            for entry in folder.glob(".*.*"):
                if not entry.name.startswith(WRITTEN):
                    continue
                if entry.is_dir():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()

    @property
    def model(self) -> Path:
        """The model folder; it exists once the fit is complete."""
        return self.path / "model"

    @property
    def finished(self) -> bool:
        """Whether the model is there."""
        return (self.model / "config.json").is_file()

    def save_selection(self, selection: Selection | SoftSelection) -> None:
        """Store the chosen settings with the whole curve."""
        if not is_first_process():
            return
        values = selection._asdict()
        values["curve"] = [candidate._asdict() for candidate in selection.curve]
        record = files.sealed({"schema": SCHEMA, **values})
        files.write_json(self.path / "selection.json", record)

    def load_selection(self) -> Selection | None:
        """Return the stored selection, or None before that stage is through.

        None, too, where it is that of the refined recipe.
        """
        return self._load_selection(Selection, Candidate)

    def load_soft_selection(self) -> SoftSelection | None:
        """Return the refined recipe's selection, as `load_selection` the paper's."""
        return self._load_selection(SoftSelection, SoftCandidate)

    def _load_selection(self, kind: type[S], candidate: type) -> S | None:
        path = self.path / "selection.json"
        if not path.is_file():
            return None
        values = files.read_json(path, f"The run {self.path}")
        files.check_schema(values, SCHEMA, str(path))
        files.check_seal(values, path)
        values = {k: v for k, v in values.items() if k not in ("schema", files.SEAL)}
        if ("ridge" in values) is not (kind is SoftSelection):
            return None
        try:
            values["curve"] = tuple(candidate(**point) for point in values["curve"])
            return kind(**values)
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{path} does not hold a selection ({error}); delete it to choose "
                f"again."
            ) from None

    def save_start(self, params: Params) -> None:
        """Store the students that the training starts from."""
        if not is_first_process():
            return
        tensors = {k: np.asarray(v) for k, v in dotted.flatten(params).items()}
        with files.replacing(self.path / "start.safetensors") as temporary:
            write_tensors(temporary, tensors)

    def load_start(self) -> Params | None:
        """Return the students that the training starts from, or None before that."""
        path = self.path / "start.safetensors"
        if not path.is_file():
            return None
        try:
            params: Params = dotted.unflatten(read_tensors(path))
            maps.KINDS["students"].check(params)
        except ValueError as error:
            raise InputError(
                f"{path} does not hold a pair of students ({error}); delete it to "
                f"make them again."
            ) from None
        return params

    def save_coupling(self, coupling: Coupling) -> None:
        """Store the potentials, epsilon and the error curve."""
        if not is_first_process():
            return
        # What a plan with its marginals does not have is left out.
        parts = {k: v for k, v in coupling._asdict().items() if v is not None}
        tensors = {k: np.asarray(v) for k, v in parts.items()}
        with files.replacing(self.path / "coupling.safetensors") as temporary:
            write_tensors(temporary, tensors)

    def load_coupling(self) -> Coupling | None:
        """Return the stored coupling, or None before that stage is through."""
        path = self.path / "coupling.safetensors"
        if not path.is_file():
            return None
        try:
            tensors = read_tensors(path)
        except InputError as error:
            raise InputError(f"{error} Delete it to solve again.") from None
        every, soft = set(Coupling._fields), set(Coupling._field_defaults)
        if tensors.keys() not in (every, every - soft):
            raise InputError(
                f"{path} does not hold a coupling; delete it to solve again."
            )
        return Coupling(**{k: jnp.asarray(v) for k, v in tensors.items()})

    def save_checkpoint(self, state: TrainState) -> None:
        """Store the training state."""
        checkpoints.save_checkpoint(self.path / "checkpoints", state)

    def restore_checkpoint(self, template: TrainState) -> TrainState | None:
        """Return the newest training state and forget the metrics after it.

        None, where no state was stored.
        """
        state = checkpoints.restore_checkpoint(self.path / "checkpoints", template)
        self._truncate_metrics(0 if state is None else int(state.epoch))
        return state

    def drop_checkpoints(self) -> None:
        """Delete the checkpoints; the finished model replaces them."""
        if not is_first_process():
            return
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)

    def log(self, record: Mapping[str, Any]) -> None:
        """Append one record to metrics.jsonl."""
        if not is_first_process():
            return
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def save_result(self, name: str, values: Mapping[str, Any]) -> None:
        """Write results/NAME.json."""
        if not is_first_process():
            return
        path = self.path / "results" / f"{name}.json"
        files.write_json(path, {"schema": SCHEMA, **values})

    def load_result(self, name: str) -> dict[str, Any] | None:
        """Return results/NAME.json, or None."""
        path = self.path / "results" / f"{name}.json"
        if not path.is_file():
            return None
        return files.read_json(path, f"The run {self.path}")

    def identity(self) -> dict[str, Any]:
        """Return config.json, the settings and the digest of the data.

        Raises:
            InputError: no run is there, or its config.json was damaged.
        """
        what = f"The run {self.path}"
        stored = files.read_json(self.path / "config.json", what)
        files.check_schema(stored, SCHEMA, what)
        files.check_seal(stored, self.path / "config.json")
        if not {"config", "data"} <= stored.keys():
            raise InputError(
                f"{self.path} is not a run folder of `anchordot fit`: its config.json "
                f"is of something else; choose an empty or new folder to fit into."
            )
        return stored

    def _check_same(
        self, stored: Mapping[str, Any], identity: Mapping[str, Any]
    ) -> None:
        before, now = dotted.flatten(stored), dotted.flatten(identity)
        for name in NOT_COMPARED:
            before.pop(name, None)
            now.pop(name, None)
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                raise InputError(
                    f"{self.path} holds a run with another {name}: "
                    f"{before.get(name)!r} there, {now.get(name)!r} asked; ask for "
                    f"the same, choose another --out, or pass --overwrite to delete "
                    f"that run."
                )

    def _clear(self) -> None:
        for name in OURS:
            entry = self.path / name
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink(missing_ok=True)

    def _truncate_metrics(self, epoch: int) -> None:
        if not is_first_process():
            return
        path = self.path / "metrics.jsonl"
        if not path.is_file():
            return
        # Damaged bytes cost their own line only.
        text = path.read_text(encoding="utf-8", errors="replace")
        kept = []
        for line in text.splitlines():
            try:
                if json.loads(line)["epoch"] <= epoch:
                    kept.append(line + "\n")
            except (ValueError, KeyError, TypeError, RecursionError):
                # A damaged line, or one that an interruption cut short.
                continue
        with files.replacing(path) as temporary:
            temporary.write_text("".join(kept), encoding="utf-8")


def environment() -> dict[str, Any]:
    """Return versions and devices, for env.json and reports."""
    packages = ("anchordot-jax", "jax", "jaxlib", "ott-jax", "flax", "optax", "numpy")
    return {
        "schema": SCHEMA,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: package_version(name) for name in packages},
        "backend": jax.default_backend(),
        "devices": [str(device) for device in jax.devices()],
        "x64": jnp.asarray(1.0).dtype == jnp.float64,
    }


def package_version(name: str) -> str:
    """Return an installed package's version, or "unknown" where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
