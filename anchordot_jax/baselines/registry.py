"""Every method by the name that a user types."""

import difflib
from collections.abc import Iterable

from anchordot_jax.baselines import anchordot
from anchordot_jax.baselines.closed_form import (
    asif,
    csa,
    linear,
    profile_matching,
    ridge_cca,
    soft_cca,
)
from anchordot_jax.baselines.plans import couplings, gromov_wasserstein
from anchordot_jax.baselines.protocol import Method
from anchordot_jax.baselines.sotalign import fit as sotalign
from anchordot_jax.baselines.sue import fit as sue
from anchordot_jax.baselines.trained import (
    contrastive,
    nnclr,
    ot_clip,
    s_clip,
    sail,
    structure,
)
from anchordot_jax.baselines.unpaired import (
    closest_point,
    mini_vec2vec,
    wasserstein_procrustes,
)
from anchordot_jax.errors import InputError

MODULES = (
    contrastive,
    asif,
    csa,
    sue,
    linear,
    ridge_cca,
    sail,
    structure,
    ot_clip,
    s_clip,
    nnclr,
    sotalign,
    profile_matching,
    couplings,
    gromov_wasserstein,
    wasserstein_procrustes,
    closest_point,
    mini_vec2vec,
    soft_cca,
    anchordot,
)

METHODS: dict[str, Method] = {
    method.name: method for module in MODULES for method in module.METHODS
}


def find_methods(names: Iterable[str]) -> list[Method]:
    """Return the methods of some names, each once; `all` is every method.

    Raises:
        InputError: an unknown name, with the nearest known one, or no name.
    """
    found: dict[str, Method] = {}
    for name in names:
        if name == "all":
            found |= METHODS
            continue
        if name not in METHODS:
            near = difflib.get_close_matches(name, METHODS, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}? " if near else ""
            raise InputError(
                f"There is no method {name!r}: {hint}Known are all, "
                f"{', '.join(METHODS)}."
            )
        found[name] = METHODS[name]
    if not found:
        raise InputError("Name at least one method to compare, or all.")
    return list(found.values())
