"""Compilation of functions that a Python loop calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


@cache  # so that a second run with the same settings reuses the compiled functions
def compiled(function: Callable[..., Any], donate: tuple[int, ...] = ()) -> Callable[..., Any]:
    """Wrap a function in `jit`, with its first argument (a learner, program or config) static.

    Args:
        function: a pure function whose first argument is hashable.
        donate: indices of the arguments whose buffers may be overwritten.

    Returns:
        The compiled function, the same one for the same arguments.
    """
    import jax

    return jax.jit(function, static_argnums=0, donate_argnums=donate)
