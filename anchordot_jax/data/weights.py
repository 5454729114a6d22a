"""Reading a marginal: one weight a row."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.errors import InputError


def read_weights(path: str | Path, n_rows: int) -> NDArray[np.float32]:
    """Return the weights of a .npy file, `[n_rows]`, float32.

    Raises:
        InputError: no such file, another format, or not one finite weight >= 0 a row.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"The weights file {path} does not exist.")
    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} could not be read as .npy: {error}.") from None
    if not isinstance(values, np.ndarray) or values.shape != (n_rows,):
        shape = getattr(values, "shape", "several arrays")
        raise InputError(
            f"{path} must hold one weight for each of the {n_rows} rows, got {shape}."
        )
    if not np.issubdtype(values.dtype, np.number) or np.iscomplexobj(values):
        raise InputError(f"{path} must hold numbers, got {values.dtype}.")
    weights = values.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(weights) | (weights < 0))
    if len(bad):
        raise InputError(
            f"{path} must hold finite weights >= 0, got {weights[bad[0]]} in row "
            f"{bad[0]}."
        )
    return weights
