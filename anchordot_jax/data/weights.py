"""Reading a marginal: one weight a row."""

from pathlib import Path

import numpy as np
from numpy.lib.format import read_array
from numpy.typing import NDArray

from anchordot_jax.data.formats.base import readable
from anchordot_jax.data.formats.numpy_files import NPY
from anchordot_jax.errors import InputError


def read_weights(path: str | Path, n_rows: int) -> NDArray[np.float32]:
    """Return the weights of a .npy file, `[n_rows]`, float32.

    Raises:
        InputError: no such file, another format, or not one finite weight >= 0 a row.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"The weights file {path} does not exist.")
    with readable(str(path), NPY.kind), path.open("rb") as stream:
        values = read_array(stream, allow_pickle=False)
    if values.shape != (n_rows,):
        raise InputError(
            f"{path} must hold one weight for each of the {n_rows} rows, got the shape "
            f"{values.shape}."
        )
    if not np.issubdtype(values.dtype, np.number) or np.iscomplexobj(values):
        raise InputError(f"{path} must hold numbers, got {values.dtype}.")
    with np.errstate(over="ignore"):
        weights = values.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(weights) | (weights < 0))
    if len(bad):
        raise InputError(
            f"{path} must hold finite weights >= 0, got {weights[bad[0]]} in row "
            f"{bad[0]}."
        )
    return weights
