"""What the numerics take: arrays of JAX or NumPy alike."""

import jax
import numpy as np

AnyArray = jax.Array | np.ndarray
