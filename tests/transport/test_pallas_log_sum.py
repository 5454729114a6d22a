"""The Pallas kernels, interpreted, against float64 and the plain tiles."""

import contextlib
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh

import reference
from anchordot_jax import geometry
from anchordot_jax.transport.pallas_log_sum import log_sum

FORMS = ("loop", "grid")


@functools.partial(jax.jit, static_argnames="form")
def apply(x, y, h, epsilon, *, form):
    return epsilon * log_sum(x, y, h, epsilon, form=form)


def problem(n, m, r):
    """Return coordinates and a potential with rows of no weight."""
    h = np.random.default_rng(2).normal(scale=0.2, size=m).astype(np.float32)
    h[:: max(2, m // 5)] = -np.inf
    return reference.unit_rows(n, r, 0), reference.unit_rows(m, r, 1), h


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("n", "m", "r"), [(53, 37, 6), (130, 1100, 70), (1, 2, 1)])
def test_log_sums_are_the_float64_ones(form, n, m, r):
    """Of shapes that no tile divides, at a usual and at a tiny epsilon."""
    x, y, h = problem(n, m, r)
    for epsilon in (0.05, 1e-4):
        found = apply(x, y, h, epsilon, form=form)
        expected, _ = reference.log_kernel(h, reference.cost(x, y), epsilon, 1)
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_no_weight_at_all(form):
    """-inf where no column weighs anything, and never NaN where a whole tile does."""
    x, y, h = problem(130, 1100, 70)
    nothing = np.full_like(h, -np.inf)
    np.testing.assert_array_equal(apply(x, y, nothing, 0.1, form=form), -np.inf)
    last = nothing.copy()
    last[-1] = 0.3
    found = apply(x, y, last, 0.1, form=form)
    np.testing.assert_allclose(found, 0.3 - reference.cost(x, y)[:, -1], atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_geometry_takes_the_kernel(axis):
    """Both half-steps of a geometry are those of the plain tiles."""
    x, y, g = problem(53, 37, 6)
    f = np.linspace(-0.2, 0.3, 53, dtype=np.float32)

    def half_step(f, g, epsilon, *, kernel):
        sides = jnp.asarray(x), jnp.asarray(y)
        geom = geometry.ProfileGeometry(*sides, epsilon=epsilon, kernel=kernel)
        leaves, tree = jax.tree.flatten(geom)
        again = jax.tree.unflatten(tree, leaves)
        return again.apply_lse_kernel(f, g, epsilon, axis=axis)[0]

    plain, pallas = (
        jax.jit(functools.partial(half_step, kernel=kernel))
        for kernel in (None, "pallas")
    )
    np.testing.assert_allclose(pallas(f, g, 0.05), plain(f, g, 0.05), atol=1e-6)
    assert "pallas_call" in str(jax.make_jaxpr(pallas)(f, g, 0.05))
    assert "pallas_call" not in str(jax.make_jaxpr(plain)(f, g, 0.05))


@pytest.mark.parametrize(
    ("form", "platform", "call"),
    [("loop", "cuda", "xla.gpu.triton"), ("grid", "tpu", "tpu_custom_call")],
)
def test_the_kernels_lower_for_accelerators(form, platform, call):
    """Each becomes one call of its compiler's; no accelerator is needed to see that."""
    x, y, h = problem(130, 700, 100)
    kernel = jax.jit(functools.partial(log_sum, form=form, interpret=False))
    with on_gpu() if platform == "cuda" else contextlib.nullcontext():
        traced = kernel.trace(x, y, h, jnp.float32(0.05))
        text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert text.count(call) == 1
    # Nothing of n x m, filled up to tiles or not, is outside of the call.
    assert not {"130x700", "192x704", "256x1024"} & set(re.findall(r"\d+x\d+", text))


def on_gpu():
    """Return a context in which a program is traced for a GPU that is not there."""
    device = AbstractDevice(
        device_kind="NVIDIA H100 80GB HBM3", num_cores=132, platform="gpu"
    )
    mesh = AbstractMesh((1,), ("rows",), (AxisType.Auto,), abstract_device=device)
    return use_abstract_mesh(mesh)
