"""Matrix products of factors rounded to bfloat16, with float32 sums, both ways."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anchordot_jax.arrays import AnyArray


def product(
    a: Float[AnyArray, "n k"], b: Float[AnyArray, "k m"], matmul: str
) -> Float[Array, "n m"]:
    """Return a b in float32, of factors as they are or rounded to bfloat16.

    The gradient's two products have factors of the same kind.

    Args:
        a: float32.
        b: float32.
        matmul: "float32" or "bfloat16".
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


_sums = functools.partial(jnp.matmul, preferred_element_type=jnp.float32)
_rounded.defvjp(_forward, _backward)
