"""Two aligned encoders in plain PyTorch. Needs torch and safetensors, nothing else.

from torch_students import load
students = load("this-folder")
scores = students.x(rows_x) @ students.y(rows_y).T   # cosines, [n, m]
"""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn


def unit(rows: torch.Tensor) -> torch.Tensor:
    """Return the rows scaled to unit Euclidean norm; a zero row stays zero."""
    norm = rows.norm(dim=-1, keepdim=True)
    return rows / torch.where(norm > 0, norm, torch.ones_like(norm))


class Student(nn.Module):
    """One side's encoder: rows `[n, d]` to unit rows `[n, k]` of the shared space."""

    def __init__(self, dim_in: int, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim_in, eps=1e-5)
        self.linear = nn.Linear(dim_in, dim)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return unit(linear(norm(unit(rows))))."""
        return unit(self.linear(self.norm(unit(rows))))


class Students(nn.Module):
    """Both encoders; exp(log_scale) times a cosine is a logit."""

    def __init__(self, dim_x: int, dim_y: int, dim: int) -> None:
        super().__init__()
        self.x = Student(dim_x, dim)
        self.y = Student(dim_y, dim)
        self.log_scale = nn.Parameter(torch.zeros(()))


def load(folder: str | Path) -> Students:
    """Return the students of a folder that holds model.safetensors."""
    state = load_file(Path(folder) / "model.safetensors")
    dim, dim_x = state["x.linear.weight"].shape
    students = Students(dim_x, state["y.linear.weight"].shape[1], dim)
    students.load_state_dict(state)
    return students.eval()
