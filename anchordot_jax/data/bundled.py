"""The bundled data set: Open Clip Art, so that everything runs without a download.

`openclipart.md` beside this file says where it comes from.
"""

from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchordot_jax.data.readers import open_embeddings
from anchordot_jax.errors import InputError

FILE = "openclipart.h5"


class Openclipart(NamedTuple):
    """Pieces of clip art; row i of all fields is one piece.

    Attributes:
        image: `[2786, 1280]` float32 image embeddings.
        text: `[2786, 384]` float32 embeddings of title and keywords.
        ids: `[2786]` names.
    """

    image: NDArray[np.float32]
    text: NDArray[np.float32]
    ids: NDArray[np.str_]


def load_openclipart() -> Openclipart:
    """Return the bundled clip art embeddings, of unit norm up to float16.

    Raises:
        InputError: The file is missing from the installation.
    """
    path = bundled_path()
    image = open_embeddings(f"{path}::image")
    text = open_embeddings(f"{path}::text")
    if image.ids is None:
        raise InputError(f"{path} has no ids; install anchordot-jax again.")
    return Openclipart(image.read(), text.read(), image.ids.astype(np.str_))


def bundled_path() -> Path:
    """Return where the bundled file lies; the package is installed as a folder."""
    return Path(str(resources.files("anchordot_jax.data") / FILE))
