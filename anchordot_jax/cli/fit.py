"""`anchordot fit`: two embedding files and some pairs become a model."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from anchordot_jax.config import CHOSEN, Config

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from anchordot_jax.data import Split
    from anchordot_jax.fit_inputs import FitData
    from anchordot_jax.model import AlignedModel
    from anchordot_jax.runs.run_folder import RunFolder
    from anchordot_jax.runs.sources import Sources


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """Fit a model. The same command again resumes where an earlier one stopped."""

    x: str
    """FILE or FILE::dataset of the one side's embeddings."""
    y: str
    """FILE or FILE::dataset of the other side's embeddings."""
    pairs: Path
    """CSV with the columns x,y: row numbers (from 0), or ids where the file has ids."""
    out: Path
    """Run folder to write."""
    test_pairs: Path | None = None
    """CSV of pairs kept out of the fit and scored at its end."""
    pool_x: str | None = None
    """FILE of unpaired x items, instead of all other rows of --x."""
    pool_y: str | None = None
    """FILE of unpaired y items, instead of all other rows of --y."""
    weights_x: Path | None = None
    """.npy of one weight a row of --x (or --pool-x): the transport's marginal."""
    weights_y: Path | None = None
    """.npy of one weight a row of --y (or --pool-y)."""
    pair_keys: Literal["auto", "rows", "ids"] = "auto"
    """How the values of the pairs files are read."""
    overwrite: bool = False
    """Delete an earlier run in --out."""
    devices: str | None = None
    """all, or a number of devices to spread both pools over (with recipe refined for
    the training only). One, if not given."""
    distributed: bool = False
    """This process is one of several that run the same command: on Slurm, Open MPI and
    TPU pods they find each other, elsewhere by the next three. --out must be a folder
    that all of them see."""
    coordinator: str | None = None
    """HOST:PORT of process 0."""
    processes: int | None = None
    """Number of processes."""
    process: int | None = None
    """This process's number, from 0."""
    log: tuple[str, ...] = ()
    """tensorboard, wandb or both: the figures of metrics.jsonl go there as well, below
    --out. WANDB_MODE=offline works without a network."""
    quiet: bool = False
    """No progress bars."""
    json: bool = False
    """Print one JSON object instead of tables."""
    config: Annotated[Config, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=Config
    )

    def run(self) -> int:
        """Fit, score the test pairs, and return the exit code."""
        from anchordot_jax.alignment import fit_data
        from anchordot_jax.cli.progress import TerminalListener
        from anchordot_jax.listeners import Interrupted
        from anchordot_jax.parallel import mesh
        from anchordot_jax.runs.lock import sole_writer
        from anchordot_jax.tracking.listening import TrackingListener
        from anchordot_jax.tracking.trackers import open_trackers, tracker_names

        trackers = tracker_names(self.log)
        spread = self._devices()
        data, split = self._load(spread)
        follows = not mesh.is_first_process()
        quiet = self.quiet or self.json or follows
        with TerminalListener(quiet=quiet) as shown, sole_writer(self.out):
            run = self._open_run(data, split)
            resumed = run.finished
            opened = open_trackers(
                () if follows or resumed else trackers, run.path, self.config.to_dict()
            )
            with TrackingListener(shown, opened) as listener:
                try:
                    result = fit_data(
                        data, self.config, run=run, listener=listener, mesh=spread
                    )
                except Interrupted as stop:
                    listener.warn(f"{stop} The same command resumes there.")
                    return 1
                if follows:
                    return 0
                model = self._score(result.model, split, run)
                listener.log("test", 0, model.metrics)
        self._print(model, run, result.seconds, resumed=resumed)
        return 0

    def _devices(self) -> "Mesh | None":
        """Return the devices to spread over; join the other processes first."""
        from anchordot_jax.parallel import mesh

        others = (self.coordinator, self.processes, self.process)
        distributed = self.distributed or any(value is not None for value in others)
        if distributed:
            mesh.initialize(*others)
        if self.devices is None and not distributed:
            return None
        return mesh.make_mesh(self.devices or "all")

    def _load(self, spread: "Mesh | None") -> tuple["FitData", "Split"]:
        """Return the checked arrays and row numbers; nothing is written yet."""
        from anchordot_jax import data
        from anchordot_jax.fit_files import read_fit_data, size_of_pools
        from anchordot_jax.fit_inputs import check_data
        from anchordot_jax.stages.pool_memory import check_size, granted

        source_x, source_y = data.open_embeddings(self.x), data.open_embeddings(self.y)
        pairs = data.read_pairs(self.pairs, source_x, source_y, keys=self.pair_keys)
        data.check_enough_pairs(pairs, str(self.pairs))
        test_pairs = None
        if self.test_pairs is not None:
            test_pairs = data.read_pairs(
                self.test_pairs, source_x, source_y, keys=self.pair_keys
            )
        split = data.split_by_exclusion(
            pairs,
            test_pairs,
            source_x.shape[0],
            source_y.shape[0],
            separate_pools_x=self.pool_x is not None,
            separate_pools_y=self.pool_y is not None,
        )
        # Before anything is read or written: the recipe may refuse pools of this size.
        check_size(size_of_pools(self._sources(), split), self.config, spread)
        memory = granted(self.config, spread) if self.config.recipe == "paper" else None
        # An archive that no limit of the user's forbids is read as ever.
        strict = self.config.distillation.pool_memory is not None
        fit_data = read_fit_data(self._sources(), split, memory=memory, strict=strict)
        check_data(fit_data)
        return fit_data, split

    def _open_run(self, data: "FitData", split: "Split") -> "RunFolder":
        from anchordot_jax.alignment import run_identity
        from anchordot_jax.data import split_digest, write_split
        from anchordot_jax.parallel import mesh
        from anchordot_jax.runs.run_folder import RunFolder
        from anchordot_jax.runs.sources import write_sources

        identity = run_identity(data, self.config)
        identity["data"]["split"] = split_digest(split)
        run = RunFolder.open(self.out, identity, overwrite=self.overwrite)
        if mesh.is_first_process() and not (run.path / "splits.json").exists():
            write_split(split, run.path / "splits.json", seed=self.config.seed)
        if mesh.is_first_process():
            write_sources(run.path, self._sources())
        return run

    def _sources(self) -> "Sources":
        """Return the names of the files, for verbs that look at the run later."""
        from anchordot_jax.runs.sources import Sources

        weights = (self.weights_x, self.weights_y)
        return Sources(
            self.x,
            self.y,
            self.pool_x,
            self.pool_y,
            *(None if path is None else str(path) for path in weights),
        )

    def _score(
        self, model: "AlignedModel", split: "Split", run: "RunFolder"
    ) -> "AlignedModel":
        """Return the model with its results on the test pairs, stored in the run."""
        from anchordot_jax import data

        if not len(split.test_pairs) or model.metrics:
            return model
        x, y = data.open_embeddings(self.x), data.open_embeddings(self.y)
        metrics = model.evaluate_both(x, y, split.test_pairs)
        run.save_result("test", {"task": "retrieval", "metrics": metrics})
        model = dataclasses.replace(model, metrics=metrics)
        model.save_results(run.model)
        return model

    def _print(
        self,
        model: "AlignedModel",
        run: "RunFolder",
        seconds: dict[str, float],
        *,
        resumed: bool,
    ) -> None:
        from anchordot_jax.cli import output

        if self.json:
            summary: dict[str, Any] = {
                "run": str(run.path),
                "model": str(run.model),
                "already_complete": resumed,
                **_chosen(model),
                **_masses(model),
                "converged": model.info["converged"],
                "seconds": seconds,
                "metrics": dict(model.metrics),
            }
            output.print_json(summary)
            return
        if resumed:
            print(f"{run.path} is complete; nothing was left to do.")
        info = model.info
        print(
            f"{info['n_anchors']} pairs, pools of {info['n_pool_x']} and "
            f"{info['n_pool_y']}; {output.settings_line(_chosen(model))}."
        )
        print(info["choice"] + f" {info['sinkhorn_iterations']} Sinkhorn iterations.")
        if "mass" in info:
            print(
                f"The plan's mass is {info['mass']:.3g}; less than a tenth of the mean "
                f"is kept by {info['little_mass_x']:.1%} of the x items and "
                f"{info['little_mass_y']:.1%} of the y items."
            )
        if seconds:
            print(
                "Seconds: "
                + ", ".join(f"{stage} {value:.1f}" for stage, value in seconds.items())
                + "."
            )
        if model.metrics:
            output.print_metrics("Test pairs", model.metrics)
        print(f"Model: {run.model}")


def _chosen(model: "AlignedModel") -> dict[str, float]:
    """Return what the recipe chooses by held-out anchors."""
    return {name: model.info[name] for name in CHOSEN if name in model.info}


def _masses(model: "AlignedModel") -> dict[str, float]:
    """Return what an unbalanced plan leaves out."""
    names = ("mass", "little_mass_x", "little_mass_y")
    return {name: model.info[name] for name in names if name in model.info}
