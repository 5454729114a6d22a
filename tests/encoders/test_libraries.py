"""The loading code of each library, on tiny random checkpoints in its own format."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from anchordot_jax.encoders.base import Encoder
from anchordot_jax.encoders.loading import load_encoder
from anchordot_jax.errors import InputError

# The libraries warn of each other's deprecations while they load.
pytestmark = pytest.mark.filterwarnings("ignore")
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "red", "bus", "cat"]


@pytest.fixture(scope="module")
def torch() -> Any:
    """Return torch, and skip where it is missing."""
    module = pytest.importorskip("torch")
    module.manual_seed(0)
    return module


@pytest.fixture(scope="module")
def transformers(torch: Any) -> Any:
    """Return transformers, and skip where it is missing."""
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return three small pictures of different shapes."""
    folder = tmp_path_factory.mktemp("pictures")
    draws = np.random.default_rng(3)
    paths = []
    for i, shape in enumerate([(40, 50, 3), (64, 64, 3), (33, 21, 3)]):
        paths.append(folder / f"{i}.png")
        pixels = draws.integers(0, 256, shape, dtype=np.uint8)
        Image.fromarray(pixels).save(paths[-1])
    return paths


def rows(encoder: Encoder, values: Any) -> np.ndarray:
    """Return the rows of some items, and check that they come one by one as well."""
    prepared = [encoder.prepare(value) for value in values]
    together = encoder.encode(prepared)
    assert together.shape == (len(values), encoder.dim)
    assert together.dtype == np.float32
    alone = np.concatenate([encoder.encode([item]) for item in prepared])
    assert np.allclose(together, alone, atol=1e-5)
    assert np.isfinite(together).all()
    return together


def write_tokenizer(transformers: Any, folder: Path) -> None:
    """Save a word-piece tokenizer of a few words."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY))
    tokenizer = transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize("name", ["dinov2-small", "dinov3-large"])
def test_dino_checkpoints_and_their_poolings(
    torch: Any, transformers: Any, tmp_path: Path, pictures: list[Path], name: str
) -> None:
    """Cls, mean of the patches without registers, and both: from the hidden states."""
    common = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    if name == "dinov2-small":
        config = transformers.Dinov2Config(**common, image_size=28, patch_size=14)
        model, prefix = transformers.Dinov2Model(config), 1
        processor = transformers.BitImageProcessorPil(
            size={"shortest_edge": 32}, crop_size={"height": 28, "width": 28}
        )
    else:
        config = transformers.DINOv3ViTConfig(
            **common, image_size=32, patch_size=16, num_register_tokens=4
        )
        model, prefix = transformers.DINOv3ViTModel(config), 5
        processor = transformers.ViTImageProcessorPil(size={"height": 32, "width": 32})
    folder = tmp_path / name
    model.eval().save_pretrained(folder)
    processor.save_pretrained(folder)

    found = {
        pooling: rows(load_encoder(name, weights=tmp_path, pooling=pooling), pictures)
        for pooling in ("cls", "mean", "concat", "own")
    }
    images = [Image.open(path).convert("RGB") for path in pictures]
    with torch.no_grad():
        pixels = processor(images=images, return_tensors="pt")["pixel_values"]
        tokens = model(pixels).last_hidden_state.numpy()
    assert tokens.shape[1] == prefix + 4
    expected = {"cls": tokens[:, 0], "mean": tokens[:, prefix:].mean(1)}
    for pooling, values in expected.items():
        assert np.allclose(found[pooling], values, atol=1e-5)
    assert np.array_equal(found["concat"], np.hstack([found["cls"], found["mean"]]))
    assert np.allclose(found["own"], expected["cls"], atol=1e-5)
    facts = load_encoder(name, weights=tmp_path).facts
    assert facts["revision"].startswith("sha256:")
    assert "transformers " in facts["versions"]


@pytest.mark.parametrize("name", ["clip-vit-b32", "siglip-b16"])
def test_dual_checkpoints_give_both_towers(
    torch: Any, transformers: Any, tmp_path: Path, pictures: list[Path], name: str
) -> None:
    """Images and texts in one space, by the model's own projections."""
    text = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "vocab_size": len(VOCABULARY),
        "max_position_embeddings": 8,
        "eos_token_id": 3,
        "bos_token_id": 2,
        "pad_token_id": 0,
    }
    vision = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "image_size": 32,
        "patch_size": 16,
    }
    sizes = {"size": {"height": 32, "width": 32}}
    if name == "clip-vit-b32":
        model = transformers.CLIPModel(
            transformers.CLIPConfig(
                text_config=text, vision_config=vision, projection_dim=12
            )
        )
        processor = transformers.CLIPImageProcessorPil(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
        )
    else:
        model = transformers.SiglipModel(
            transformers.SiglipConfig(
                text_config={**text, "projection_size": 16}, vision_config=vision
            )
        )
        processor = transformers.SiglipImageProcessorPil(**sizes)
    folder = tmp_path / name
    model.eval().save_pretrained(folder)
    processor.save_pretrained(folder)
    write_tokenizer(transformers, folder)

    images = rows(load_encoder(name, weights=tmp_path), pictures)
    texts = rows(load_encoder(f"{name}:text", weights=tmp_path), ["a red bus", "a cat"])
    assert images.shape[1] == texts.shape[1]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    padding = "max_length" if name.startswith("sig") else True
    with torch.no_grad():
        inputs = tokenizer(
            ["a red bus", "a cat"],
            padding=padding,
            max_length=8,
            truncation=True,
            return_tensors="pt",
        )
        pixels = processor(
            images=[Image.open(path).convert("RGB") for path in pictures],
            return_tensors="pt",
        )["pixel_values"]
        output = model(pixel_values=pixels, **inputs)
    for found, expected in ((images, output.image_embeds), (texts, output.text_embeds)):
        unit = found / np.linalg.norm(found, axis=1, keepdims=True)
        assert np.allclose(unit, expected.numpy(), atol=1e-5)


REMOTE_CONFIG = """
from transformers import PretrainedConfig


class MolformerConfig(PretrainedConfig):
    model_type = "molformer"

    def __init__(self, hidden_size=8, vocab_size=9, **kwargs):
        self.hidden_size = hidden_size
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
"""
REMOTE_MODEL = """
import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from .configuration_molformer import MolformerConfig


class MolformerModel(PreTrainedModel):
    config_class = MolformerConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, **kwargs):
        hidden = self.embed(input_ids)
        return BaseModelOutputWithPooling(last_hidden_state=hidden)
"""


def test_molformer_runs_its_own_code_and_averages_without_padding(
    torch: Any, transformers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder in MoLFormer's layout: auto_map, remote code, mean over the tokens."""
    pytest.importorskip("rdkit")
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = tmp_path / "molformer-xl"
    folder.mkdir()
    (folder / "configuration_molformer.py").write_text(REMOTE_CONFIG)
    (folder / "modeling_molformer.py").write_text(REMOTE_MODEL)
    auto = {
        "AutoConfig": "configuration_molformer.MolformerConfig",
        "AutoModel": "modeling_molformer.MolformerModel",
    }
    values = {"model_type": "molformer", "auto_map": auto, "hidden_size": 8}
    values |= {"architectures": ["MolformerModel"], "vocab_size": 9}
    (folder / "config.json").write_text(json.dumps(values))
    table = torch.randn(9, 8)
    from safetensors.torch import save_file

    save_file(
        {"embed.weight": table}, folder / "model.safetensors", metadata={"format": "pt"}
    )
    (folder / "vocab.txt").write_text(
        "\n".join([*VOCABULARY[:5], "c", "##c", "##o", "o"])
    )
    tokenizer = transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    tokenizer.save_pretrained(folder)

    encoder = load_encoder("molformer-xl", weights=tmp_path, trust_remote_code=True)
    found = rows(encoder, ["CCO", "O"])
    # [CLS] c ##c ##o [SEP], and [CLS] o [SEP].
    expected = [table[[2, 5, 6, 7, 3]].mean(0), table[[2, 8, 3]].mean(0)]
    assert np.allclose(found, torch.stack(expected).numpy(), atol=1e-6)


def test_a_timm_checkpoint(torch: Any, tmp_path: Path, pictures: list[Path]) -> None:
    """A folder as `save_for_hf` writes it, with its own preprocessing and poolings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        timm = pytest.importorskip("timm", exc_type=ImportError)
    sizes = {"img_size": 32, "embed_dim": 24, "depth": 1, "num_heads": 2}
    model = timm.create_model("vit_tiny_patch16_224", num_classes=3, **sizes).eval()
    timm.models.save_for_hf(model, tmp_path / "tiny", model_args=sizes)
    config = json.loads((tmp_path / "tiny" / "config.json").read_text())
    config["pretrained_cfg"]["input_size"] = [3, 32, 32]
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(config))

    found = {
        pooling: rows(load_encoder(str(tmp_path / "tiny"), pooling=pooling), pictures)
        for pooling in ("own", "cls", "mean", "concat")
    }
    transform = timm.data.create_transform(
        **timm.data.resolve_model_data_config(model, {"input_size": (3, 32, 32)})
    )
    pixels = [transform(Image.open(path).convert("RGB")) for path in pictures]
    with torch.no_grad():
        tokens = model.forward_features(torch.stack(pixels)).numpy()
    assert np.allclose(found["cls"], tokens[:, 0], atol=1e-5)
    assert np.allclose(found["mean"], tokens[:, 1:].mean(1), atol=1e-5)
    assert np.array_equal(found["concat"], np.hstack([found["cls"], found["mean"]]))
    assert np.allclose(found["own"], tokens[:, 0], atol=1e-5)


def test_an_open_clip_checkpoint(
    torch: Any, tmp_path: Path, pictures: list[Path]
) -> None:
    """A folder in open_clip's hub layout; images and texts."""
    open_clip = pytest.importorskip("open_clip", exc_type=ImportError)
    config = {
        "embed_dim": 12,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
        "text_cfg": {
            "context_length": 16,
            "vocab_size": 49408,
            "width": 16,
            "heads": 2,
            "layers": 1,
        },
    }
    folder = tmp_path / "openclip-vit-b32"
    folder.mkdir()
    model = open_clip.CLIP(**config).eval()
    values = {"model_cfg": config, "preprocess_cfg": {"size": 32}}
    (folder / "open_clip_config.json").write_text(json.dumps(values))
    torch.save(model.state_dict(), folder / "open_clip_pytorch_model.bin")

    images = rows(load_encoder("openclip-vit-b32", weights=tmp_path), pictures)
    encoder = load_encoder("openclip-vit-b32:text", weights=tmp_path)
    texts = rows(encoder, ["a red bus", "a cat"])
    assert (images.shape, texts.shape) == ((3, 12), (2, 12))
    with torch.no_grad():
        tokens = open_clip.SimpleTokenizer(context_length=16)(["a red bus", "a cat"])
        expected = model.encode_text(tokens).numpy()
    assert np.allclose(texts, expected, atol=1e-5)


def test_open_clip_weights_out_of_reach(
    torch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The download command has the hub's name, which is not open_clip's."""
    pytest.importorskip("open_clip", exc_type=ImportError)
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    hub = "laion/CLIP-ViT-B-32-laion2B-s34B-b79K"
    with pytest.raises(InputError, match=f"hf download {hub} --local-dir WEIGHTS/open"):
        load_encoder("openclip-vit-b32")


def test_a_sentence_transformers_checkpoint(
    torch: Any, transformers: Any, tmp_path: Path
) -> None:
    """A saved folder: its own pooling, here the mean of the tokens."""
    module = pytest.importorskip("sentence_transformers", exc_type=ImportError)
    bert = tmp_path / "bert"
    write_tokenizer(transformers, bert)
    config = transformers.BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    model = transformers.BertModel(config).eval()
    model.save_pretrained(bert)
    from sentence_transformers import models

    parts = [models.Transformer(str(bert)), models.Pooling(12)]
    module.SentenceTransformer(modules=parts, device="cpu").save(str(tmp_path / "tiny"))

    texts = ["a red bus", "a cat"]
    found = rows(load_encoder(str(tmp_path / "tiny")), texts)
    # The same weights through transformers, with our own mean pooling.
    assert np.allclose(found, rows(load_encoder(str(bert)), texts), atol=1e-5)
    with pytest.raises(InputError, match="offers the pooling own, got mean"):
        load_encoder(str(tmp_path / "tiny"), pooling="mean")


def test_models_out_of_reach_say_what_to_do(
    transformers: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a network the sentence has the download command."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="hf download facebook/dinov2-small --local"):
        load_encoder("dinov2-small")
    (tmp_path / "dinov2-small").mkdir()
    (tmp_path / "dinov2-small" / "config.json").write_text('{"model_type": "dinov2"}')
    with pytest.raises(InputError, match="check that its files are complete"):
        load_encoder("dinov2-small", weights=tmp_path)
    with pytest.raises(InputError, match="--device cuda:99 is not on this machine"):
        load_encoder("dinov2-small", device="cuda:99")
