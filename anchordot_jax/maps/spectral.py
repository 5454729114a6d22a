"""Spectral embeddings as maps: a trained network's, or a graph's by Nystrom extension.

Both end the same way: the spectral coordinates are projected by what the pairs agreed
on (CCA), shifted, and scaled to unit norm, so that the inner product is the cosine.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax import profiles
from anchordot_jax.arrays import AnyArray
from anchordot_jax.students import Params

HIGHEST = jax.lax.Precision.HIGHEST

# Rows whose distances to all points are held at once.
BLOCK_ROWS = 1024

# LeakyReLU's slope below zero.
SLOPE = 0.01


def tanh_net(layers: Params, rows: Array) -> Float[Array, "n k"]:
    """Return tanh of the last of `layers`, with LeakyReLU between them.

    Args:
        layers: `{"0": {"kernel": [d, h], "bias": [h]}, "1": ..., ...}`.
        rows: `[n, d]`.
    """
    return jnp.tanh(_dense(layers, rows, functools.partial(_leaky, slope=SLOPE)))


def residual_net(layers: Params, rows: Array) -> Float[Array, "n c"]:
    """Return x + MLP(x) with ReLU between the layers; `layers` as in `tanh_net`."""
    return rows + _dense(layers, rows, functools.partial(_leaky, slope=0.0))


def nystrom(
    rows: AnyArray,
    points: AnyArray,
    vectors: AnyArray,
    bandwidth: AnyArray,
    neighbours: int,
) -> Float[Array, "n k"]:
    """Return the Nystrom extension of graph vectors to new rows.

    psi(x) = sum_j p_j(x) v_j over the nearest points of x, where p(x) is
    exp(-|x - x_j|^2 / sigma^2) scaled to sum 1: one step of the graph's random walk
    from x. With v = psi / mu it extends D^{-1} W psi = mu psi (Bengio et al.
    2004, "Out-of-sample extensions for LLE, Isomap, MDS, Eigenmaps, and spectral
    clustering").

    Args:
        rows: `[n, d]`.
        points: the graph's points, `[m, d]`.
        vectors: `[m, k]`, eigenvectors of the random walk divided by their eigenvalues.
        bandwidth: sigma, a scalar.
        neighbours: how many nearest points a row looks at, at most m.
    """
    points, vectors = jnp.asarray(points), jnp.asarray(vectors)
    squares = jnp.sum(points**2, axis=1)

    def extend(row: Array) -> Array:
        products = jnp.matmul(points, row, precision=HIGHEST)
        distances = jnp.sum(row**2) + squares - 2 * products
        kept, found = jax.lax.top_k(-distances, neighbours)
        weights = jax.nn.softmax(jnp.minimum(kept, 0) / bandwidth**2)
        return jnp.matmul(weights, vectors[found], precision=HIGHEST)

    extended: Array = jax.lax.map(extend, rows, batch_size=min(BLOCK_ROWS, len(rows)))
    return extended


def embed(
    params: Params, rows: Array, side: str, settings: Mapping[str, Any]
) -> Float[Array, "n k"]:
    """Return unit(r(net(unit(x)) W Q P + b)) for one side's rows.

    Args:
        params: a side has `layers` of the net, `orthonormal` W `[k, k]`, `rotation` Q
            `[k, k]`, `projection` P `[k, c]`, `shift` b `[c]`, and may have `residual`,
            the layers of r; without them r is the identity.
        rows: `[n, d]`, scaled to unit norm first.
        side: whose maps.
        settings: none.
    """
    del settings
    own = params[side]
    raw = tanh_net(own["layers"], profiles.normalize(rows))
    rotated = _matmul(_matmul(raw, own["orthonormal"]), own["rotation"])
    projected = _matmul(rotated, own["projection"]) + own["shift"][None, :]
    if "residual" in own:
        projected = residual_net(own["residual"], projected)
    return profiles.normalize(projected)


def embed_nystrom(
    params: Params, rows: Array, side: str, settings: Mapping[str, Any]
) -> Float[Array, "n k"]:
    """Return unit(psi(unit(x)) P + b), psi being the `nystrom` extension.

    Args:
        params: a side has `points` `[m, d]`, `vectors` `[m, k]`, `bandwidth` (scalar),
            `projection` P `[k, c]` and `shift` b `[c]`.
        rows: `[n, d]`, scaled to unit norm first.
        side: whose maps.
        settings: `neighbours`, how many nearest points are looked at.
    """
    own = params[side]
    coordinates = nystrom(
        profiles.normalize(rows),
        own["points"],
        own["vectors"],
        own["bandwidth"],
        min(settings["neighbours"], len(own["points"])),
    )
    projected = _matmul(coordinates, own["projection"]) + own["shift"][None, :]
    return profiles.normalize(projected)


def dims(params: Params, side: str) -> tuple[int, int]:
    """Return the dimension that goes into the net and that of the shared space."""
    own = params[side]
    return int(own["layers"]["0"]["kernel"].shape[0]), int(own["projection"].shape[1])


def dims_nystrom(params: Params, side: str) -> tuple[int, int]:
    """Return the dimension of the points and that of the shared space."""
    own = params[side]
    return int(own["points"].shape[1]), int(own["projection"].shape[1])


def check(params: Params) -> None:
    """Raise ValueError, naming the array, unless these are two spectral nets."""
    for side in ("x", "y"):
        own = params.get(side, {})
        k = _check_layers(own.get("layers"), f"{side}.layers", width=None)
        for name in ("orthonormal", "rotation"):
            _check_shape(own, side, name, (k, k))
        c = _check_projection(own, side, k)
        if "residual" in own:
            found = _check_layers(own["residual"], f"{side}.residual", width=c)
            if found != c:
                raise ValueError(f"{side}.residual")
    _check_one_space(params)


def check_nystrom(params: Params) -> None:
    """Raise ValueError, naming the array, unless these are two embedded graphs."""
    for side in ("x", "y"):
        own = params.get(side, {})
        for name in ("points", "vectors"):
            if getattr(own.get(name), "ndim", 0) != 2:
                raise ValueError(f"{side}.{name}")
        m, k = own["vectors"].shape
        if len(own["points"]) != m:
            raise ValueError(f"{side}.vectors")
        _check_shape(own, side, "bandwidth", ())
        _check_projection(own, side, k)
    _check_one_space(params)


def _dense(layers: Params, rows: Array, activation: Any) -> Array:
    for i in range(len(layers)):
        layer = layers[str(i)]
        rows = jnp.matmul(rows, layer["kernel"]) + layer["bias"][None, :]
        if i + 1 < len(layers):
            rows = activation(rows)
    return rows


def _leaky(x: Array, slope: float) -> Array:
    return jnp.where(x > 0, x, slope * x)


def _matmul(x: Array, y: Array) -> Array:
    return jnp.matmul(x, y, precision=HIGHEST)


def _check_layers(layers: Any, where: str, width: int | None) -> int:
    """Return the width that comes out; raise ValueError unless the layers chain."""
    if not isinstance(layers, Mapping) or not layers:
        raise ValueError(where)
    for i in range(len(layers)):
        layer = layers.get(str(i), {})
        kernel, bias = layer.get("kernel"), layer.get("bias")
        shape: tuple[int, ...] = getattr(kernel, "shape", ())
        if len(shape) != 2 or width not in (None, shape[0]):
            raise ValueError(f"{where}.{i}.kernel")
        if getattr(bias, "shape", None) != shape[1:]:
            raise ValueError(f"{where}.{i}.bias")
        width = int(shape[1])
    return width or 0


def _check_projection(own: Params, side: str, k: int) -> int:
    shape: tuple[int, ...] = getattr(own.get("projection"), "shape", ())
    if len(shape) != 2 or shape[0] != k:
        raise ValueError(f"{side}.projection")
    _check_shape(own, side, "shift", shape[1:])
    return int(shape[1])


def _check_shape(own: Params, side: str, name: str, shape: tuple[int, ...]) -> None:
    if getattr(own.get(name), "shape", None) != shape:
        raise ValueError(f"{side}.{name}")


def _check_one_space(params: Params) -> None:
    if params["x"]["projection"].shape[1] != params["y"]["projection"].shape[1]:
        raise ValueError("y.projection")
