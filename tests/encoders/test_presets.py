"""Naming encoders, finding their weights, and saying what is missing."""

import json
from pathlib import Path

import pytest

from anchordot_jax.encoders import base, presets, weights
from anchordot_jax.encoders.loading import HOMES, load_encoder
from anchordot_jax.encoders.presets import PRESETS, check_pooling, resolve
from anchordot_jax.errors import InputError
from anchordot_jax.extras import needs

NAMES = (
    "dinov2-small dinov2-base dinov3-large clip-vit-b32 openclip-vit-b32 siglip-b16",
    "minilm nv-embed-v2 molformer-xl minimol efficientnet-lite2 morgan-maccs",
)


def test_the_papers_encoders_are_presets() -> None:
    """Each says dimension, licence, pairs, and an extra that exists."""
    assert " ".join(PRESETS) == " ".join(NAMES)
    project = Path(__file__).parents[2] / "pyproject.toml"
    for preset in PRESETS.values():
        assert preset.dim
        assert preset.pooling in preset.poolings
        assert presets.UNKNOWN not in (preset.licence, preset.paired)
        assert preset.paired.startswith(("yes", "no"))
        assert preset.library in HOMES
        assert f"\n{preset.extra} = [" in project.read_text()


@pytest.mark.parametrize(
    ("spec", "library", "kind"),
    [
        ("dinov2-small", "transformers", "image"),
        ("clip-vit-b32", "transformers", "image"),
        ("clip-vit-b32:text", "transformers", "text"),
        ("hf:org/model", "transformers", "image"),
        ("hf:org/model:molecule", "transformers", "molecule"),
        ("timm:vit_tiny", "timm", "image"),
        ("st:org/model", "sentence-transformers", "text"),
        ("open-clip:ViT-B-32/openai:text", "open-clip", "text"),
    ],
)
def test_other_models_are_named_by_their_library(
    spec: str, library: str, kind: str
) -> None:
    """PREFIX:MODEL, and what it takes behind it."""
    preset, found = resolve(spec)
    assert (preset.library, found) == (library, kind)


@pytest.mark.parametrize(
    ("files", "library", "kind"),
    [
        ({"config.json": {"patch_size": 14}}, "transformers", "image"),
        ({"config.json": {"vocab_size": 9}}, "transformers", "text"),
        ({"config.json": {"architecture": "vit_tiny"}}, "timm", "image"),
        ({"modules.json": [], "config.json": {}}, "sentence-transformers", "text"),
        ({"open_clip_config.json": {}}, "open-clip", "image"),
    ],
)
def test_a_folder_is_known_by_its_files(
    tmp_path: Path, files: dict[str, object], library: str, kind: str
) -> None:
    """The files that each library saves tell it from the others."""
    for name, values in files.items():
        (tmp_path / name).write_text(json.dumps(values))
    preset, found = resolve(str(tmp_path))
    assert (preset.library, found, preset.model) == (library, kind, str(tmp_path))


def test_wrong_names_are_one_sentence(tmp_path: Path) -> None:
    """Misspelt, of another kind, an empty folder, a pooling that is not on offer."""
    with pytest.raises(InputError, match=r"did you mean dinov2-small\? name a preset"):
        resolve("dinov2-smal")
    with pytest.raises(InputError, match="minilm takes text, not image"):
        resolve("minilm:image")
    with pytest.raises(InputError, match=r"none of config\.json"):
        resolve(str(tmp_path))
    with pytest.raises(InputError, match="minilm offers the pooling own, got cls"):
        check_pooling(PRESETS["minilm"], "cls")
    with pytest.raises(InputError, match=r"runs Python code .* --trust-remote-code"):
        load_encoder("molformer-xl")


def test_the_users_folder_of_weights_comes_first(tmp_path: Path) -> None:
    """WEIGHTS/NAME is taken, and its contents are the revision."""
    folder = tmp_path / "dinov2-small"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    first = weights.locate(PRESETS["dinov2-small"], tmp_path, None)
    assert first.local
    assert first.place == str(folder)
    (folder / "README.md").write_text("no part of the model")
    assert weights.locate(PRESETS["dinov2-small"], tmp_path, None) == first
    (folder / "config.json").write_text("[]")
    assert weights.locate(PRESETS["dinov2-small"], tmp_path, None) != first
    hub = weights.locate(PRESETS["dinov2-base"], tmp_path, "abc")
    assert hub == ("facebook/dinov2-base", False, "", "abc")
    with pytest.raises(InputError, match="folder of weights, does not exist"):
        weights.locate(PRESETS["dinov2-base"], tmp_path / "no", None)


def test_a_missing_library_names_its_extra(tmp_path: Path) -> None:
    """One sentence with the command to run."""
    with pytest.raises(
        InputError,
        match=r"The encoder e needs the Python package nowhere, which is not "
        r"installed; run pip install 'anchordot-jax\[timm\]'",
    ):
        needs("nowhere.inside", extra="timm", what="The encoder e")


def test_a_broken_library_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed, but failing to import: the cause is quoted."""
    (tmp_path / "broken_library.py").write_text("raise RuntimeError('no such op')")
    (tmp_path / "lacking_library.py").write_text("import nowhere_at_all")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"fails to import \(no such op\)"):
        needs("broken_library", extra="timm", what="It")
    with pytest.raises(InputError, match="package nowhere_at_all, which is not"):
        needs("lacking_library", extra="timm", what="It")


def test_weights_out_of_reach_say_what_to_download_and_where_to_put_it() -> None:
    """The command, the folder, and the option."""
    for name, hub in (
        ("dinov2-small", "facebook/dinov2-small"),
        ("timm:vit_tiny_patch16_224", "timm/vit_tiny_patch16_224"),
    ):
        preset = resolve(name)[0]
        place = weights.locate(preset, None, None)
        with (
            pytest.raises(InputError) as caught,
            weights.loading(preset, place, "a library"),
        ):
            raise OSError("no network")
        said = str(caught.value)
        inside = name.rpartition(":")[2]
        assert f"hf download {hub} --local-dir WEIGHTS/{inside} " in said
        assert "pass --weights WEIGHTS" in said


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("CUDA out of memory"), True),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory"),
            True,
        ),
        (RuntimeError("shapes differ"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_errors_of_memory_are_told_from_others(
    error: Exception, expected: bool
) -> None:
    """By type or by the libraries' own words."""
    assert base.is_out_of_memory(error) is expected
