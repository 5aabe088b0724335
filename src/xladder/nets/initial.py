"""Initial distributions. (Flax's own `uniform(scale)` draws from [0, scale).)"""

import jax
import jax.numpy as jnp
from jax.nn.initializers import Initializer


def symmetric_uniform(bound: float) -> Initializer:
    """U(−bound, +bound)."""

    def init(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init
