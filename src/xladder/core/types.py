"""Types that programs and the host share."""

from collections.abc import Callable
from typing import Any, Protocol

Array = Any
"""An array that is `jax.Array` inside a program and `numpy.ndarray` on the host, in the same field."""

Params = Any
"""A pytree of float32 arrays: a network's parameters."""


class Compiled(Protocol):
    """How a rung compiles a function: the first argument is static, those at `donate` may be overwritten."""

    def __call__(self, function: Callable[..., Any], donate: tuple[int, ...] = ()) -> Any:
        """The compiled function: it can be called, and has `lower` as JAX's own have."""
