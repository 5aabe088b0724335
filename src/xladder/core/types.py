"""Names for what passes between programs and the host."""

from typing import Any

Array = Any
"""An array that is `jax.Array` inside a program and `numpy.ndarray` on the host, in the same field."""

Params = Any
"""A pytree of float32 arrays: a network's parameters."""
