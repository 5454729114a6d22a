"""Matrix products of factors rounded to bfloat16, with float32 sums, both ways."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax.arrays import AnyArray


def product(
    a: Float[AnyArray, "n k"], b: Float[AnyArray, "k m"], matmul: str | None
) -> Float[Array, "n m"]:
    """Return a b in float32, of factors as they are or rounded to bfloat16.

    The gradient's two products have factors of the same kind.

    Args:
        a: float32.
        b: float32.
        matmul: "bfloat16", or the factors are as they are.
    """
    return _rounded(a, b) if matmul == "bfloat16" else jnp.matmul(a, b)


@jax.custom_vjp
def _rounded(a: Array, b: Array) -> Array:
    return _forward(a, b)[0]


def _forward(a: Array, b: Array) -> tuple[Array, tuple[Array, Array]]:
    a, b = a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
    return _sums(a, b), (a, b)


def _backward(factors: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    a, b = factors
    cotangent = cotangent.astype(jnp.bfloat16)
    return _sums(cotangent, b.T), _sums(a.T, cotangent)


@jax.custom_batching.custom_vmap
def _sums(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, preferred_element_type=jnp.float32)


@_sums.def_vmap
def _batched(size: int, batched: list[bool], a: Array, b: Array) -> tuple[Array, bool]:
    """Return the products of many seeds.

    XLA's CPU backend has none of bfloat16 numbers with an axis more; in float32 the
    same rounded numbers have the same products.
    """
    if jax.default_backend() == "cpu":
        a, b = a.astype(jnp.float32), b.astype(jnp.float32)
    return jnp.matmul(a, b, preferred_element_type=jnp.float32), True


_rounded.defvjp(_forward, _backward)
