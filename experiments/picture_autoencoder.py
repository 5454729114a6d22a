"""A small convolutional autoencoder of pictures: the decoder that can be trained here.

Four convolutions of stride 2 take 64 x 64 pixels to 4 x 4, a linear map to the code;
the way back doubles the pixels before each convolution. It is trained on the squared
error of the pixels with Adam.
"""

import functools
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from PIL import Image
from prepare_clipart import prepare

from anchordot_jax import InputError, files
from anchordot_jax.encoders.base import Rejected
from anchordot_jax.report.items import check_images, picture_path

SIDE = 64
WIDTHS = (16, 32, 64, 64)
SMALL = SIDE // 2 ** len(WIDTHS)
BATCH = 64
LEARNING_RATE = 1e-3
PACKAGE = (
    "install Debian's openclipart-png and name /usr/share/openclipart/png, or a folder "
    "of pictures named by the data set's ids"
)


class Autoencoder(nnx.Module):
    """Pictures `[n, 64, 64, 3]`, less their mean, to codes `[n, c]` and back."""

    def __init__(self, dim: int, *, rngs: nnx.Rngs) -> None:
        ends = (3, *WIDTHS)
        self.down = nnx.List(
            nnx.Conv(a, b, (3, 3), strides=2, rngs=rngs)
            for a, b in itertools.pairwise(ends)
        )
        self.to_code = nnx.Linear(SMALL**2 * WIDTHS[-1], dim, rngs=rngs)
        self.from_code = nnx.Linear(dim, SMALL**2 * WIDTHS[-1], rngs=rngs)
        self.up = nnx.List(
            nnx.Conv(b, a, (3, 3), rngs=rngs)
            for a, b in reversed(list(itertools.pairwise(ends)))
        )

    def encode(self, pictures: jax.Array) -> jax.Array:
        """Return the codes."""
        for layer in self.down:
            pictures = nnx.gelu(layer(pictures))
        return self.to_code(pictures.reshape(len(pictures), -1))

    def decode(self, codes: jax.Array) -> jax.Array:
        """Return the pictures."""
        hidden = nnx.gelu(self.from_code(codes))
        pictures = hidden.reshape(len(codes), SMALL, SMALL, WIDTHS[-1])
        for layer in self.up:
            pictures = jnp.repeat(jnp.repeat(pictures, 2, axis=1), 2, axis=2)
            pictures = layer(pictures)
            if layer is not self.up[-1]:
                pictures = nnx.gelu(pictures)
        return pictures


class PictureDecoder(NamedTuple):
    """A trained autoencoder as a decoder: see `decoders.Decoder`."""

    graph: Any
    params: Any
    mean: np.ndarray
    """Of the training pictures, `[64, 64, 3]`."""

    def encode(self, images: np.ndarray) -> np.ndarray:
        """Return the codes of pictures `[n, 64, 64, 3]` of 0 to 1."""
        return self._in_batches(_encode, images - self.mean)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the pictures of codes."""
        made = self._in_batches(_decode, np.asarray(codes, np.float32))
        return np.clip(made + self.mean, 0, 1)

    def _in_batches(self, function: Any, rows: np.ndarray) -> np.ndarray:
        parts = []
        for start in range(0, len(rows), BATCH):
            own = rows[start : start + BATCH]
            # One shape: the last batch is filled up.
            filled = np.resize(own, (BATCH, *own.shape[1:]))
            made = function(self.graph, self.params, filled)
            parts.append(np.asarray(made)[: len(own)])
        return np.concatenate(parts)


@functools.partial(jax.jit, static_argnums=0)
def _encode(graph: Any, params: Any, pictures: jax.Array) -> jax.Array:
    return nnx.merge(graph, params).encode(pictures)


@functools.partial(jax.jit, static_argnums=0)
def _decode(graph: Any, params: Any, codes: jax.Array) -> jax.Array:
    return nnx.merge(graph, params).decode(codes)


def train(
    pictures: np.ndarray, *, dim: int = 128, epochs: int = 30, seed: int = 0
) -> PictureDecoder:
    """Return an autoencoder trained on pictures `[n, 64, 64, 3]` of 0 to 1."""
    graph, params = nnx.split(Autoencoder(dim, rngs=nnx.Rngs(seed)), nnx.Param)
    optimizer = optax.adam(LEARNING_RATE)
    state = optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any, batch: jax.Array) -> tuple[Any, Any]:
        def loss(own: Any) -> jax.Array:
            model = nnx.merge(graph, own)
            return jnp.mean((model.decode(model.encode(batch)) - batch) ** 2)

        updates, new = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), new

    mean = pictures.mean(axis=0)
    for batch in _batches(pictures, epochs, seed):
        params, state = step(params, state, batch - mean)
    return PictureDecoder(graph, params, mean)


def _batches(pictures: np.ndarray, epochs: int, seed: int) -> Iterator[np.ndarray]:
    """Yield random batches of one size; a last part of one joins the next epoch."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.permutation(len(pictures)) for _ in range(epochs)])
    for start in range(0, len(rows) - BATCH + 1, BATCH):
        yield pictures[rows[start : start + BATCH]]


@functools.lru_cache(maxsize=1)
def read_pictures(
    folder: Path, names: tuple[str, ...], kept: Path
) -> dict[int, np.ndarray]:
    """Return pictures `[64, 64, 3]` of 0 to 1 by place in the names; some may lack.

    Args:
        folder: of pictures named by the names, with or without a suffix.
        names: the ids of a data set.
        kept: a .npz file that is read where it is of the same names, and written
            otherwise: thousands of large drawings take minutes.

    Raises:
        InputError: there is no such folder, or no picture of any name in it.
    """
    if not folder.is_dir():
        raise InputError(f"The folder of pictures {folder} is not there: {PACKAGE}.")
    check_images(folder)
    if kept.is_file():
        with np.load(kept) as stored:
            if np.array_equal(stored["names"], names):
                return _by_place(stored["places"], stored["pixels"])
    found = {}
    for place, name in enumerate(names):
        path = picture_path(folder, name)
        drawing = None if path is None else _drawing(path)
        if drawing is not None:
            found[place] = np.asarray(drawing.resize((SIDE, SIDE)))
    if not found:
        raise InputError(f"{folder} holds no picture named {names[0]}: {PACKAGE}.")
    places, pixels = np.array(list(found)), np.stack(list(found.values()))
    with files.replacing(kept) as temporary:
        np.savez_compressed(temporary, names=names, places=places, pixels=pixels)
    return _by_place(places, pixels)


def _drawing(path: Path) -> Image.Image | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Pictures so large take gigabytes, and are left out as the report does.
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            return prepare(path)
        except (Rejected, Image.DecompressionBombWarning):
            return None


def _by_place(places: np.ndarray, pixels: np.ndarray) -> dict[int, np.ndarray]:
    scaled = np.asarray(pixels, np.float32) / 255
    return dict(zip(places.tolist(), scaled, strict=True))
