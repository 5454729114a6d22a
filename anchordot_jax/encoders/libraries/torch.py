"""What the encoders of the PyTorch family share: device, inference, token pooling."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.errors import InputError
from anchordot_jax.extras import needs


def load(extra: str, what: str) -> Any:
    """Return the module torch."""
    return needs("torch", extra=extra, what=what)


def device_of(torch: Any, wanted: str | None) -> Any:
    """Return the device asked for, or the fastest one there is.

    Raises:
        InputError: the machine has no such device.
    """
    if wanted is None:
        if torch.cuda.is_available():
            wanted = "cuda"
        elif torch.backends.mps.is_available():
            wanted = "mps"
        else:
            wanted = "cpu"
    try:
        device = torch.device(wanted)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"--device {wanted} is not on this machine ({str(error).splitlines()[0]}); "
            "leave it out to take what there is."
        ) from None
    return device


@contextmanager
def inference(torch: Any) -> Iterator[None]:
    """Return a context without gradients and without the libraries' warnings."""
    with torch.inference_mode(), quiet():
        yield


def hide_bars() -> None:
    """Keep transformers from drawing a bar for each model that it loads."""
    logging = needs("transformers.utils.logging", extra="transformers", what="A model")
    logging.disable_progress_bar()


@contextmanager
def quiet() -> Iterator[None]:
    """Return a context without warnings: they are the libraries' own affairs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def rows_of(tensor: Any) -> NDArray[np.float32]:
    """Return a tensor `[b, d]` as float32 on the host."""
    return np.asarray(tensor.detach().float().cpu().numpy(), np.float32)


def pool(torch: Any, tokens: Any, mask: Any, pooling: str, prefix: int) -> Any:
    """Return one row for each sequence of tokens.

    cls: the first token. mean: the mean of the tokens that are no padding and, for
    images, no class or register token. concat: both, as SOTAlign's `AGG_MODE=concat`.

    Args:
        torch: the module.
        tokens: `[b, t, d]`.
        mask: `[b, t]`, 0 for padding, or None.
        pooling: cls, mean or concat.
        prefix: class and register tokens in front, left out of the mean.
    """
    first = tokens[:, 0]
    if pooling == "cls":
        return first
    rest = tokens[:, prefix:]
    if mask is None:
        mean = rest.mean(dim=1)
    else:
        weight = mask[:, prefix:, None].to(rest.dtype)
        mean = (rest * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)
    return mean if pooling == "mean" else torch.cat([first, mean], dim=-1)
