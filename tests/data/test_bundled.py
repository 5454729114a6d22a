"""The bundled clip art set is whole."""

import numpy as np
import pytest

from anchordot_jax.data import bundled, load_openclipart
from anchordot_jax.errors import InputError


def test_the_bundled_set_is_paired_and_of_unit_norm() -> None:
    """Shapes, norms and ids of the 2,786 pieces."""
    images, texts, ids = load_openclipart()
    assert images.shape == (2786, 1280)
    assert texts.shape == (2786, 384)
    assert images.dtype == texts.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(images, axis=1), 1, atol=2e-3)
    np.testing.assert_allclose(np.linalg.norm(texts, axis=1), 1, atol=2e-3)
    assert len(np.unique(ids)) == 2786
    assert ids[0] == "animals/2_dead_frogs_lumen_desig_01"


def test_a_broken_installation_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package without its data file says which file is missing."""
    monkeypatch.setattr(bundled, "FILE", "nowhere.h5")
    with pytest.raises(InputError, match=r"nowhere\.h5 does not exist"):
        load_openclipart()
