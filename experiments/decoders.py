"""Generation from the shared space: a converter of one modality to a decoder's codes.

AnchorDOT's Appendix C.4, after Yacobi et al. (2025): a decoder and its encoder are
fixed; a small network learns, from images alone, to turn an image's embedding in the
shared space into the decoder's code of that image. A text's embedding is then put
through the same network. What comes out is of the text only if the alignment has made
the embedding of a text look like that of its image.

Any decoder with two functions serves. StyleGAN2 with the inversion encoder e4e, the
paper's on caption-FFHQ, is these lines around the authors' networks (PyTorch, images
`[n, 3, 256, 256]` in [-1, 1], codes `[n, 18, 512]`), which are not part of this
project:

    class StyleGan2:
        def __init__(self, e4e, generator):
            self.e4e, self.generator = e4e.eval(), generator.eval()

        def encode(self, images):
            with torch.no_grad():
                codes = self.e4e(torch.as_tensor(images).cuda())
            # e4e predicts offsets from the generator's mean code.
            codes = codes + self.e4e.latent_avg
            return codes.flatten(1).cpu().numpy()

        def decode(self, codes):
            w = torch.as_tensor(codes, dtype=torch.float32).view(-1, 18, 512).cuda()
            with torch.no_grad():
                images, _ = self.generator([w], input_is_latent=True)
            return images.cpu().numpy()

    found = probe(
        StyleGan2(e4e, generator),
        shared_train=model.embed_x(x[train]), images_train=images[train],
        shared_x=model.embed_x(x[test]), shared_y=model.embed_y(y[test]),
        images_test=images[test], seed=0,
    )
"""

import warnings
from typing import Any, NamedTuple, Protocol

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

from anchordot_jax import InputError

HIDDEN = 512
K = 10


class Decoder(Protocol):
    """What turns images into codes and codes into images."""

    def encode(self, images: np.ndarray) -> np.ndarray:
        """Return the images' codes `[n, c]`."""

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the images of codes `[n, c]`, in the form that `encode` takes."""


class NearestTraining(NamedTuple):
    """The decoder that answers with the nearest training image.

    An image stands for itself by the embedding of its frozen encoder, which is its
    code as well, so that no picture is needed.
    """

    training: np.ndarray
    """`[n, d]`, unit norm."""

    def encode(self, images: np.ndarray) -> np.ndarray:
        """Return the embeddings as they are."""
        return images

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Return the training embedding nearest to each code.

        By the cosine less the training mean, which all codes are near to.
        """
        center = self.training.mean(axis=0)
        cosines = _cosines(codes - center, self.training - center)
        return self.training[np.argmax(cosines, axis=1)]


class Probe(NamedTuple):
    """What the probe measured, and what was made."""

    metrics: dict[str, float]
    codes_x: np.ndarray
    """Codes made of the test images' embeddings, `[t, c]`."""
    codes_y: np.ndarray
    """Codes made of the test texts' embeddings, `[t, c]`."""


def fit_converter(shared: np.ndarray, codes: np.ndarray, *, seed: int) -> Any:
    """Return a network of one hidden layer from embeddings to codes.

    A tenth of the rows decides when to stop; codes are scaled to unit variance.
    """
    network = MLPRegressor(
        hidden_layer_sizes=(HIDDEN,),
        alpha=1e-3,
        early_stopping=True,
        n_iter_no_change=5,
        max_iter=40,
        random_state=seed,
    )
    converter = TransformedTargetRegressor(network, transformer=StandardScaler())
    with warnings.catch_warnings():
        # So many passes are the schedule, settled or not.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return converter.fit(shared, codes)


def probe(
    decoder: Decoder,
    *,
    shared_train: np.ndarray,
    images_train: np.ndarray,
    shared_x: np.ndarray,
    shared_y: np.ndarray,
    images_test: np.ndarray,
    seed: int,
) -> Probe:
    """Return how near the codes made of x and of y are to the images' own codes.

    All cosines are between codes less the training codes' mean. `code_cosine/x` is
    that of the code made of the image's own embedding, the most that can be hoped for;
    `code_cosine/y` that of the code made of its text; `code_cosine/chance` that of
    codes of texts with other images. `reencoded_cosine/...` are the same for what is
    decoded and encoded again, with `decoder` that of the image itself.
    `code_recall@10/...` is the share whose own code is among the 10 nearest of the
    test codes.

    Args:
        decoder: the fixed decoder.
        shared_train: embeddings of training images in the shared space `[n, k]`.
        images_train: the images.
        shared_x: of the test images `[t, k]`.
        shared_y: of the test texts `[t, k]`, row i of image i.
        images_test: the test images.
        seed: fixes the converter.

    Raises:
        InputError: rows that do not belong together, or fewer than two test pairs.
    """
    if len(shared_train) != len(images_train) or not (
        len(shared_x) == len(shared_y) == len(images_test) > 1
    ):
        raise InputError(
            f"The probe needs an image for each embedding and two test pairs, got "
            f"{len(shared_train)} and {len(images_train)} for training, "
            f"{len(shared_x)}, {len(shared_y)} and {len(images_test)} for the test."
        )
    codes_train = decoder.encode(images_train)
    own = decoder.encode(images_test)
    # A network learns slowly from coordinates much smaller than 1.
    scale = np.sqrt(shared_train.shape[1])
    converter = fit_converter(scale * shared_train, codes_train, seed=seed)
    made = {
        side: converter.predict(scale * shared)
        for side, shared in (("x", shared_x), ("y", shared_y))
    }
    center = codes_train.mean(axis=0)
    metrics: dict[str, float] = {f"code_recall@{K}/chance": min(1.0, K / len(own))}
    for side, codes in made.items():
        cosines = _cosines(codes - center, own - center)
        again = _cosines(decoder.encode(decoder.decode(codes)) - center, own - center)
        metrics |= {
            f"code_cosine/{side}": float(np.diagonal(cosines).mean()),
            f"reencoded_cosine/{side}": float(np.diagonal(again).mean()),
            f"code_recall@{K}/{side}": _recall(cosines),
        }
        if side == "y":
            metrics["code_cosine/chance"] = _others(cosines)
            metrics["reencoded_cosine/chance"] = _others(again)
    itself = _cosines(decoder.encode(decoder.decode(own)) - center, own - center)
    metrics["reencoded_cosine/decoder"] = float(np.diagonal(itself).mean())
    return Probe(metrics, made["x"], made["y"])


def _cosines(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the cosines of all pairs; those of a zero row are 0."""
    left, right = (
        part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-12)
        for part in (rows, others)
    )
    return left @ right.T


def _others(cosines: np.ndarray) -> float:
    """Return the mean of what is not on the diagonal."""
    n = len(cosines)
    return float((cosines.sum() - np.trace(cosines)) / (n * (n - 1)))


def _recall(cosines: np.ndarray) -> float:
    """Return the share of rows whose diagonal entry is among the K largest."""
    greater = (cosines > np.diagonal(cosines)[:, None]).sum(axis=1)
    return float((greater < K).mean())
