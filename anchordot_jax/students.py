"""The two student encoders: LayerNorm and one linear map each, unit outputs (Eq. 8)."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray

from anchordot_jax import profiles
from anchordot_jax.arrays import AnyArray

# torch's value. Flax's own 1e-6 and this differ visibly on unit-norm rows, whose
# variance is only 1/d.
LAYER_NORM_EPSILON = 1e-5

Params = dict[str, Any]
"""Nested dictionary of arrays: x and y, each with norm and linear, and log_scale."""


class StudentEncoder(nnx.Module):
    """One side's encoder: x -> Linear(LayerNorm(x / |x|)), scaled to unit norm."""

    def __init__(self, in_dim: int, out_dim: int, *, rngs: nnx.Rngs) -> None:
        self.norm = nnx.LayerNorm(in_dim, epsilon=LAYER_NORM_EPSILON, rngs=rngs)
        self.linear = nnx.Linear(
            in_dim, out_dim, kernel_init=nnx.initializers.xavier_uniform(), rngs=rngs
        )

    def __call__(self, x: Float[AnyArray, "b d"]) -> Float[Array, "b k"]:
        """Return unit-norm embeddings in the shared space."""
        return profiles.normalize(self.linear(self.norm(profiles.normalize(x))))


class Students(nnx.Module):
    """Both encoders and the learned logit scale s = exp(log_scale)."""

    def __init__(
        self,
        dim_x: int,
        dim_y: int,
        dim: int,
        *,
        temperature: float = 0.07,
        key: PRNGKeyArray,
    ) -> None:
        rngs = nnx.Rngs(params=key)
        self.x = StudentEncoder(dim_x, dim, rngs=rngs)
        self.y = StudentEncoder(dim_y, dim, rngs=rngs)
        # An explicit dtype: a weakly typed scalar would recompile the training step.
        self.log_scale = nnx.Param(-jnp.log(jnp.asarray(temperature, jnp.float32)))

    def __call__(
        self, x: Float[AnyArray, "b dx"], y: Float[AnyArray, "c dy"]
    ) -> Float[Array, "b c"]:
        """Return the logits s f(x) . g(y) of every x with every y."""
        return jnp.exp(self.log_scale[...]) * (self.x(x) @ self.y(y).T)


def init_params(
    dim_x: int, dim_y: int, dim: int, *, temperature: float = 0.07, key: PRNGKeyArray
) -> Params:
    """Return freshly drawn parameters: Xavier-uniform weights, zero biases."""
    students = Students(dim_x, dim_y, dim, temperature=temperature, key=key)
    params: Params = nnx.to_pure_dict(nnx.state(students, nnx.Param))
    return params


def bind(params: Params) -> Students:
    """Return the students that these parameters belong to."""
    dim_x, dim = params["x"]["linear"]["kernel"].shape
    dim_y, _ = params["y"]["linear"]["kernel"].shape
    graph, state = nnx.split(_abstract_students(dim_x, dim_y, dim), nnx.Param)
    nnx.replace_by_pure_dict(state, params)
    return nnx.merge(graph, state)


@functools.lru_cache(maxsize=32)
def _abstract_students(dim_x: int, dim_y: int, dim: int) -> Students:
    return nnx.eval_shape(lambda: Students(dim_x, dim_y, dim, key=jax.random.key(0)))
