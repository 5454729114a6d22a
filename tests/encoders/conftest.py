"""Tests of the encoders' own libraries run wherever those are installed."""

import importlib.util

import pytest


@pytest.fixture(scope="session", autouse=True)
def _operators_of_torchvision() -> None:
    """Declare two operators where torchvision's compiled part does not load.

    Its published build needs CUDA; beside a CPU build of torch it fails at import over
    operators that no encoder uses. What is left is plain Python, enough for timm's and
    open_clip's preprocessing.
    """
    if importlib.util.find_spec("torchvision") is None:
        return
    import torch

    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define(
            "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )
        _KEPT.append(library)


# A library's declarations live as long as it does.
_KEPT: list[object] = []
