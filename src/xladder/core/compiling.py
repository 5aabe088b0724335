"""Compilation: of functions that a Python loop calls, and how hard XLA should try."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

LEVEL = "xla_backend_optimization_level"


@cache  # so that a second run with the same settings reuses the compiled functions
def compiled(function: Callable[..., Any], donate: tuple[int, ...] = ()) -> Callable[..., Any]:
    """Wrap a function in `jit`, with its first argument (a learner, program or config) static.

    Args:
        function: a pure function whose first argument is hashable.
        donate: indices of the arguments whose buffers may be overwritten.

    Returns:
        The compiled function, the same one for the same arguments.
    """
    return uncached(function, donate)


def uncached(function: Callable[..., Any], donate: tuple[int, ...] = ()) -> Callable[..., Any]:
    """The same, compiled anew."""
    import jax

    options = options_for(jax.default_backend())
    return jax.jit(function, static_argnums=0, donate_argnums=donate, compiler_options=options)


def options_for(platform: str) -> dict[str, Any] | None:
    """The `compiler_options` of `jax.jit` for a kind of device; `XLA_FLAGS` has the last word.

    On a CPU XLA asks LLVM for level 3 of its optimisations. Level 2 was as fast in everything we measured, with the
    same bits, and compiles in nine tenths of the time, or a quarter of it where an unrolled loop grows large.
    """
    if platform != "cpu" or LEVEL in os.environ.get("XLA_FLAGS", ""):
        return None
    return {LEVEL: 2}
