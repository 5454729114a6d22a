"""Configs: defaults, every refused range, dictionaries, digests."""

import dataclasses
import functools
import json
import math
import subprocess
import sys

import pytest

from anchordot_jax.config import (
    ONLY,
    Config,
    CouplingConfig,
    DistillationConfig,
    RefinedConfig,
    SelectionConfig,
    SoftCcaConfig,
    check_eta,
    check_gamma,
)
from anchordot_jax.errors import InputError

# One other valid value of every field.
OTHER = {
    Config: {
        "gamma": 0.5,
        "eta": 0.03,
        "rho": 0.3,
        "center": True,
        "seed": 7,
        "bank_size": 10,
    },
    CouplingConfig: {
        "tolerance": 1e-3,
        "max_iterations": 50,
        "overrelaxation": 1.0,
        "check_every": 5,
        "cost_memory": 0,
        "anderson": 4,
        "warm_start": "epsilon",
        "kernel": "pallas",
    },
    DistillationConfig: {
        "dim": 64,
        "epochs": 3,
        "chunk_size": 100,
        "learning_rate": 1e-2,
        "weight_decay": 0.0,
        "warmup_steps": 0,
        "schedule": "cosine",
        "temperature": 0.1,
        "max_logit_scale": 50.0,
        "redraw_chunks": False,
        "matmul": "bfloat16",
        "pool_memory": 0,
    },
    SelectionConfig: {
        "gammas": (0.5,),
        "etas": (0.02, 0.04),
        "rule": "paper",
        "heldout": 0.2,
        "min_heldout": 5,
        "pool_limit": None,
        "rhos": (1.0, 0.5),
    },
    SoftCcaConfig: {
        "ridge": 1.0,
        "balance": (0.5, 2.0),
        "power": 0.9,
        "sharpness": 2.0,
        "ridge_ratio": (0.1,),
        "balance_ratio": 2.0,
        "final_power": 1.5,
        "folds": 2,
        "gallery": 50,
        "pool_limit": None,
        "tolerance": 1e-2,
    },
    RefinedConfig: {
        "epochs": 3,
        "learning_rate": 1e-2,
        "warmup_steps": 0,
        "temperature": 0.1,
    },
}
PARTS = {
    "coupling": CouplingConfig,
    "distillation": DistillationConfig,
    "selection": SelectionConfig,
    "soft_cca": SoftCcaConfig,
    "refined": RefinedConfig,
}


def all_other(recipe):
    """Return a config in which no field that its recipe looks at has its default.

    But rho, with which Anderson's acceleration is refused.
    """
    ignored = {"rho", *ONLY["refined" if recipe == "paper" else "paper"]}
    own = {k: v for k, v in OTHER[Config].items() if k not in ignored}
    for part, cls in PARTS.items():
        values = OTHER[cls].items()
        own[part] = cls(**{k: v for k, v in values if f"{part}.{k}" not in ignored})
    return Config(recipe=recipe, **own)


def recipe_of(name):
    """Return a recipe that looks at a setting."""
    return "paper" if name in ONLY["paper"] else "refined"


def one_other():
    """Yield the name of each field and a config that differs in it alone.

    But Anderson's acceleration, which goes with an omega of 1 only.
    """
    for name, value in OTHER[Config].items():
        yield name, Config(**{name: value}, recipe=recipe_of(name))
    for part, cls in PARTS.items():
        for name, value in OTHER[cls].items():
            with_it = {"overrelaxation": 1.0} if name == "anderson" else {}
            parts = {part: cls(**{name: value}, **with_it)}
            dotted = f"{part}.{name}"
            yield dotted, Config(**parts, recipe=recipe_of(dotted))


def test_defaults_are_the_published_settings():
    """Appendix B's values, and auto where the method chooses."""
    config = Config()
    assert (config.gamma, config.eta, config.center, config.seed) == (
        "auto",
        "auto",
        False,
        0,
    )
    assert config.coupling.tolerance == 1e-4
    assert config.coupling.max_iterations == 1000
    assert config.distillation == DistillationConfig(
        dim=1024,
        epochs=200,
        chunk_size=2000,
        learning_rate=1e-3,
        weight_decay=1e-2,
        warmup_steps=200,
        schedule="constant",
        temperature=0.07,
        max_logit_scale=100.0,
        redraw_chunks=True,
        matmul=None,
        pool_memory=None,
    )
    assert config.selection.gammas == (0, 0.25, 0.5, 0.75, 1)
    assert config.selection.etas == (0.005, 0.01, 0.02, 0.05, 0.1)
    assert config.selection.heldout == 0.1


@pytest.mark.parametrize("cls", OTHER)
def test_every_field_is_covered(cls):
    """The table of other values names every field, and no default."""
    fields = {field.name for field in dataclasses.fields(cls)}
    # Other settings do not go with the other recipe, which has a test of its own.
    assert set(OTHER[cls]) == fields - set(PARTS) - {"recipe"}
    default = cls()
    for name, value in OTHER[cls].items():
        assert getattr(default, name) != value


@pytest.mark.parametrize("cls", OTHER)
def test_configs_are_frozen_and_hashable(cls):
    """A config cannot be changed, and equal ones are one static argument."""
    values = OTHER[cls] | ({"recipe": "paper"} if cls is Config else {})
    config = cls(**values)
    assert hash(config) == hash(cls(**values))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, next(iter(OTHER[cls])), None)
    with pytest.raises(TypeError):
        cls(1)


NAN, INF = math.nan, math.inf
PAPER = functools.partial(Config, recipe="paper")


@pytest.mark.parametrize(
    ("cls", "name", "value", "message"),
    [
        (CouplingConfig, "tolerance", 0.0, "between 0 and 2, got 0.0"),
        (CouplingConfig, "tolerance", 2, "between 0 and 2, got 2"),
        (CouplingConfig, "tolerance", NAN, "between 0 and 2, got nan"),
        (CouplingConfig, "tolerance", "1", "between 0 and 2, got '1'"),
        (CouplingConfig, "max_iterations", 0, "a whole number >= 1, got 0"),
        (CouplingConfig, "max_iterations", 10.0, "a whole number >= 1, got 10.0"),
        (CouplingConfig, "max_iterations", True, "a whole number >= 1, got True"),
        (CouplingConfig, "check_every", 0, "a whole number >= 1, got 0"),
        (CouplingConfig, "overrelaxation", 0.9, r"in \[1, 2\), got 0.9"),
        (CouplingConfig, "overrelaxation", 2.0, r"in \[1, 2\), got 2.0"),
        (CouplingConfig, "cost_memory", -1, "a whole number >= 0, got -1"),
        (CouplingConfig, "anderson", 1, "a whole number >= 2, got 1"),
        (CouplingConfig, "warm_start", "zeros", "'epsilon' or 'subsample', got 'zer"),
        (CouplingConfig, "kernel", "triton", "None or 'pallas', got 'triton'"),
        (DistillationConfig, "dim", 0, "a whole number >= 1, got 0"),
        (DistillationConfig, "epochs", 0, "a whole number >= 1, got 0"),
        (DistillationConfig, "chunk_size", 1, "a whole number >= 2, got 1"),
        (DistillationConfig, "warmup_steps", -1, "a whole number >= 0, got -1"),
        (DistillationConfig, "learning_rate", 0, "> 0, got 0"),
        (DistillationConfig, "learning_rate", INF, "> 0, got inf"),
        (DistillationConfig, "temperature", -0.1, "> 0, got -0.1"),
        (DistillationConfig, "weight_decay", -1e-3, ">= 0, got -0.001"),
        (DistillationConfig, "weight_decay", None, ">= 0, got None"),
        (DistillationConfig, "schedule", "linear", "'constant' or 'cosine', got 'lin"),
        (DistillationConfig, "matmul", "f32", "'float32' or 'bfloat16', got 'f32'"),
        (DistillationConfig, "pool_memory", -1, "a whole number >= 0, got -1"),
        (DistillationConfig, "max_logit_scale", 14, r">= 1/temperature = 14\.29, got"),
        (SelectionConfig, "gammas", (), r"not empty, got \(\)"),
        (SelectionConfig, "gammas", (0.5, 2.1), r"in \[0, 2\], got 2.1"),
        (SelectionConfig, "gammas", ("auto",), r"in \[0, 2\], got 'auto'"),
        (SelectionConfig, "etas", (), r"not empty, got \(\)"),
        (SelectionConfig, "etas", (0.0,), r"in \[0.0001, 10\] .* got 0.0"),
        (
            SelectionConfig,
            "rule",
            "best",
            "'one_standard_error' or 'paper', got 'best'",
        ),
        (SelectionConfig, "heldout", 0.0, r"in \(0, 0.5\], got 0.0"),
        (SelectionConfig, "heldout", 0.6, r"in \(0, 0.5\], got 0.6"),
        (SelectionConfig, "min_heldout", 0, "a whole number >= 1, got 0"),
        (SelectionConfig, "pool_limit", 0, "a whole number >= 1, got 0"),
        (Config, "gamma", -0.1, r"in \[0, 2\], got -0.1"),
        (Config, "gamma", "Auto", r"in \[0, 2\], got 'Auto'"),
        (Config, "gamma", True, r"in \[0, 2\], got True"),
        (Config, "eta", 1e-5, r"in \[0.0001, 10\] \(0.02 is usual\), got 1e-05"),
        (Config, "eta", NAN, r"in \[0.0001, 10\] .* got nan"),
        (Config, "rho", 0, "auto, inf, or a number >= 0.001 .* got 0"),
        (Config, "rho", -INF, "auto, inf, or a number >= 0.001 .* got -inf"),
        (Config, "rho", NAN, "auto, inf, or a number >= 0.001 .* got nan"),
        (Config, "rho", True, "auto, inf, or a number >= 0.001 .* got True"),
        (Config, "rho", "soft", "auto, inf, or a number >= 0.001 .* got 'soft'"),
        (SelectionConfig, "rhos", (), r"not empty, got \(\)"),
        (SelectionConfig, "rhos", (0.3, INF), "numbers >= 0.001, got inf"),
        (SelectionConfig, "rhos", (0.3, 0), "numbers >= 0.001, got 0"),
        (Config, "seed", -1, "a whole number >= 0, got -1"),
        (SoftCcaConfig, "ridge", 0, "a number > 0, got 0"),
        (SoftCcaConfig, "ridge_ratio", "no", "a number > 0, got 'no'"),
        (SoftCcaConfig, "sharpness", NAN, "a number > 0, got nan"),
        (SoftCcaConfig, "balance", (), r"not empty, got \(\)"),
        (SoftCcaConfig, "power", (0.1, -1.0), "a number > 0, got -1.0"),
        (SoftCcaConfig, "final_power", None, "a number > 0, got None"),
        (SoftCcaConfig, "folds", 1, "a whole number >= 2, got 1"),
        (SoftCcaConfig, "gallery", 0, "a whole number >= 1, got 0"),
        (SoftCcaConfig, "pool_limit", 0, "a whole number >= 1, got 0"),
        (SoftCcaConfig, "tolerance", 0, "between 0 and 2, got 0"),
        (RefinedConfig, "epochs", 0, "a whole number >= 1, got 0"),
        (RefinedConfig, "learning_rate", 0, "a number > 0, got 0"),
        (RefinedConfig, "warmup_steps", -1, "a whole number >= 0, got -1"),
        (RefinedConfig, "temperature", INF, "a number > 0, got inf"),
        (Config, "recipe", "new", "'paper' or 'refined', got 'new'"),
        (Config, "bank_size", -1, "a whole number >= 0, got -1"),
        (Config, "seed", 2**32, r"below 2\*\*32, got 4294967296"),
    ],
)
def test_refused_values(cls, name, value, message):
    """A value out of range names its field, what is expected, and what came."""
    part = {cls: f"{part}\\." for part, cls in PARTS.items()}.get(cls, "")
    with pytest.raises(InputError, match=f"^{part}{name} must be .*{message}"):
        cls(**{name: value})


@pytest.mark.parametrize(
    ("cls", "name", "values"),
    [
        (CouplingConfig, "overrelaxation", (1, 1.999)),
        (CouplingConfig, "cost_memory", (0, None)),
        (SelectionConfig, "heldout", (1e-6, 0.5)),
        (PAPER, "gamma", (0, 2, "auto")),
        (PAPER, "eta", (1e-4, 10, "auto")),
        (Config, "seed", (0, 2**32 - 1)),
    ],
)
def test_ends_of_ranges_are_accepted(cls, name, values):
    """The ends that the messages include are accepted."""
    for value in values:
        assert getattr(cls(**{name: value}), name) == value


def test_one_acceleration_at_a_time():
    """Anderson's takes the place of over-relaxation, whose default must be given up."""
    message = (
        r"^coupling.anderson 5 takes .*; set coupling.overrelaxation to 1, got 1.5"
    )
    with pytest.raises(InputError, match=message):
        CouplingConfig(anderson=5)
    assert CouplingConfig(anderson=5, overrelaxation=1).anderson == 5


def test_anderson_needs_iterations_between_two_looks() -> None:
    with pytest.raises(InputError, match=r"check_every must be larger, got 5\.$"):
        CouplingConfig(anderson=5, overrelaxation=1, check_every=5)
    with pytest.raises(InputError, match=r"check_every must be larger, got 3\.$"):
        CouplingConfig(anderson=4, overrelaxation=1, max_iterations=3)


@pytest.mark.parametrize("rho", ["auto", 0.3])
def test_anderson_and_rho_are_refused_before_any_work(rho: str | float) -> None:
    coupling = CouplingConfig(anderson=3, overrelaxation=1)
    with pytest.raises(InputError, match=r"^coupling.anderson is 3, but .* rho"):
        Config(recipe="paper", rho=rho, coupling=coupling)


def test_no_rho_has_one_value():
    """Inf is the balanced problem, as None is: equal fits have equal digests."""
    assert Config(rho=INF) == Config(rho=None) == Config()
    assert Config(recipe="paper", rho="auto").rho == "auto"
    assert Config(recipe="paper", rho=1).to_dict()["rho"] == 1.0


def test_checks_name_the_argument():
    """The checks of gamma and eta carry the name that their caller gives."""
    with pytest.raises(InputError, match=r"^--gamma must be a number"):
        check_gamma(3, "--gamma")
    with pytest.raises(InputError, match=r"^--eta must be a number"):
        check_eta(None, "--eta")
    assert issubclass(InputError, ValueError)


@pytest.mark.parametrize(
    "config",
    [Config(), all_other("paper"), all_other("refined")],
    ids=["default", "paper", "refined"],
)
def test_dictionary_round_trip(config):
    """from_dict undoes to_dict, through JSON text too."""
    values = config.to_dict()
    assert Config.from_dict(values) == config
    assert Config.from_dict(json.loads(json.dumps(values))) == config
    assert Config.from_dict(values).digest() == config.digest()


def test_missing_fields_take_their_default():
    """A dictionary may be partial, at both levels."""
    assert Config.from_dict({}) == Config()
    found = Config.from_dict({"seed": 5, "coupling": {"max_iterations": 7}})
    assert found == Config(seed=5, coupling=CouplingConfig(max_iterations=7))


def test_from_dict_leaves_its_argument():
    """The dictionary that was given stays as it was."""
    values = {"soft_cca": {"ridge": [0.5]}}
    assert Config.from_dict(values).soft_cca.ridge == (0.5,)
    assert values == {"soft_cca": {"ridge": [0.5]}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"gama": 1},
            "^Unknown setting gama; known are: bank_size, center, coupling, distil",
        ),
        (
            {"coupling": {"omega": 1}},
            r"^Unknown setting coupling\.omega; known are: anderson, check_every, ",
        ),
        ({"distillation": {"dim": 0}}, r"^distillation\.dim must be a whole number"),
        ({"eta": "small"}, "^eta must be a number"),
        ({"coupling": 3}, "coupling"),
        ({"distillation": None}, "distillation"),
        ({"selection": {"gammas": 0.5}}, r"selection\.gammas"),
    ],
)
def test_bad_dictionaries(values, message):
    """Unknown keys and bad values are refused by their full name."""
    with pytest.raises(InputError, match=message):
        Config.from_dict(values)


def test_float32_products_are_one_setting():
    """Said or left out, it is the same training."""
    assert DistillationConfig(matmul="float32") == DistillationConfig()


def test_digest_changes_with_every_field():
    """16 hexadecimal digits, the same for equal configs, others for any change."""
    digests = {"": Config().digest()}
    digests |= {name: config.digest() for name, config in one_other()}
    digests["recipe"] = Config(recipe="paper").digest()
    assert len(digests) == 2 + sum(map(len, OTHER.values()))
    assert len(set(digests.values())) == len(digests)
    assert Config().digest() == digests[""]
    for digest in digests.values():
        assert len(digest) == 16
        int(digest, 16)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gamma": 0.5}, r"^gamma has .* recipe refined; leave it out, or take recipe"),
        (
            {"eta": 0.5},
            r"^eta has no effect on recipe refined; .* take recipe paper\.$",
        ),
        ({"rho": "auto"}, "^rho has no effect"),
        ({"center": True}, "^center has no effect"),
        ({"selection": {"rule": "paper"}}, r"^selection\.rule has no .*; leave it out"),
        ({"coupling": {"tolerance": 1}}, r"^coupling\.tol.*; set soft_cca\.tolerance,"),
        (
            {"distillation": {"epochs": 9}},
            r"^distillation\.ep.*; set refined\.epochs, or",
        ),
        (
            {"distillation": {"dim": 9}},
            r"^distillation\.dim has no effect .*; leave it",
        ),
        ({"soft_cca": {"ridge": 9}}, r"^soft_cca\.ridge has .* recipe paper; leave it"),
        (
            {"soft_cca": {"tolerance": 1}},
            r"^soft_cca\.tol.*; set coupling\.tolerance, ",
        ),
        (
            {"refined": {"epochs": 9}},
            r"^refined\.epochs .*; set distillation\.epochs, or",
        ),
    ],
)
def test_a_recipe_refuses_what_it_ignores(values, message):
    """A setting without effect is an error, and says what to set instead."""
    recipe, other = ("paper", "refined")
    if values.keys() & {"soft_cca", "refined"}:
        recipe, other = other, recipe
    Config.from_dict({"recipe": recipe, **values})
    with pytest.raises(InputError, match=message):
        Config.from_dict({"recipe": other, **values})


def test_what_one_recipe_alone_looks_at_is_named_rightly():
    """Every name is a setting's, and so is every one that stands in its place."""
    names = {name for name, _ in one_other()}
    for recipe, other in (("paper", "refined"), ("refined", "paper")):
        assert ONLY[recipe].keys() < names
        for name, instead in ONLY[recipe].items():
            assert instead is None or ONLY[other][instead] == name


def test_each_recipe_has_its_training():
    """The refined recipe replaces four settings of the students and no other."""
    config = Config(
        recipe="paper",
        distillation=DistillationConfig(chunk_size=50, weight_decay=0.5),
    )
    assert config.training() == config.distillation
    short = dataclasses.replace(config, recipe="refined").training()
    assert (short.epochs, short.learning_rate) == (20, 3e-4)
    assert (short.warmup_steps, short.temperature) == (20, 0.05)
    assert (short.chunk_size, short.weight_decay) == (50, 0.5)


def test_config_needs_the_standard_library_only():
    """Importing the settings loads neither NumPy nor JAX."""
    code = (
        "import sys, anchordot_jax.config; "
        "sys.exit(int(any(m in sys.modules for m in ('jax', 'numpy', 'ott'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == 0
