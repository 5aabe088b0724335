"""Initial distributions. (Flax's own `uniform(scale)` draws from [0, scale).)"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def symmetric_uniform(bound: float) -> Callable[..., jax.Array]:
    """U(−bound, +bound)."""

    def init(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init
