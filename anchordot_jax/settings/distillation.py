"""Settings of the students and their training (Section 3.4)."""

import dataclasses
from typing import Literal

from anchordot_jax.settings.checks import (
    check_count,
    check_setting,
    is_number,
    set_plain,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationConfig:
    """Settings of the two student encoders and their training (Section 3.4)."""

    dim: int = 1024
    """Recipe paper: dimension of the shared space."""
    epochs: int = 200
    """Recipe paper: passes over the pools; see refined.epochs."""
    chunk_size: int = 2000
    """Rows of each pool in one gradient step (each row's number of candidates)."""
    learning_rate: float = 1e-3
    """Recipe paper: Adam's step size after the warm-up; see refined.learning_rate."""
    weight_decay: float = 1e-2
    """Decoupled weight decay, on the two weight matrices only."""
    warmup_steps: int = 200
    """Recipe paper: steps over which the learning rate rises linearly; see
    refined.warmup_steps."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate after the warm-up."""
    temperature: float = 0.07
    """Recipe paper: initial temperature; the logit scale 1/temperature is learned. See
    refined.temperature."""
    max_logit_scale: float = 100.0
    """Upper limit of the learned logit scale."""
    redraw_chunks: bool = True
    """Draw the chunks anew each epoch; off: only their order changes."""
    matmul: Literal["float32", "bfloat16"] | None = None
    """Type that the factors of the students' matrix products are rounded to; sums are
    float32 either way, and so are targets, norms and softmaxes. None: float32."""
    pool_memory: int | None = None
    """Bytes both pools may take as float32. The paper's recipe leaves larger ones in
    their files, and a thread reads each chunk's rows ahead of its step; recipe refined
    refuses them. None: half the device's memory, at most a quarter of the host's; 0:
    always streamed. It does not apply to baselines and many_seeds: arrays given are in
    memory already."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_count("distillation.dim", self.dim, 1)
        check_count("distillation.epochs", self.epochs, 1)
        check_count("distillation.chunk_size", self.chunk_size, 2)
        check_count("distillation.warmup_steps", self.warmup_steps, 0)
        for name in ("learning_rate", "temperature"):
            value = getattr(self, name)
            ok = is_number(value) and value > 0
            check_setting(ok, f"distillation.{name}", "> 0", value)
        ok = is_number(self.weight_decay) and self.weight_decay >= 0
        check_setting(ok, "distillation.weight_decay", ">= 0", self.weight_decay)
        known = self.schedule in ("constant", "cosine")
        what = "'constant' or 'cosine'"
        check_setting(known, "distillation.schedule", what, self.schedule)
        known = self.matmul in ("float32", "bfloat16", None)
        what = "'float32' or 'bfloat16'"
        check_setting(known, "distillation.matmul", what, self.matmul)
        # One value for float32: equal trainings have equal digests.
        set_plain(self, "matmul", None if self.matmul == "float32" else self.matmul)
        if self.pool_memory is not None:
            check_count("distillation.pool_memory", self.pool_memory, 0)
        least = 1 / self.temperature
        ok = is_number(self.max_logit_scale) and self.max_logit_scale >= least
        what = f">= 1/temperature = {least:.4g}"
        check_setting(ok, "distillation.max_logit_scale", what, self.max_logit_scale)
