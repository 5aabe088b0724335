"""How a function that a Python loop calls is compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


@cache  # so that a second run with the same settings finds what the first compiled
def compiled(function: Callable[..., Any], donate: tuple[int, ...] = ()) -> Callable[..., Any]:
    """`function` under `jit`; its first argument, a learner, program or config, is static.

    Args:
        function: a pure function whose first argument is hashable.
        donate: numbers of the arguments whose buffers may be overwritten.

    Returns:
        The compiled function, the same one for the same arguments.
    """
    import jax

    return jax.jit(function, static_argnums=0, donate_argnums=donate)
