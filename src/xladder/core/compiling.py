"""Compilation: of functions that a Python loop calls, and how hard XLA should try."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

LEVEL = "xla_backend_optimization_level"
GRAPHS, SMALLEST_GRAPH = "xla_gpu_enable_command_buffer", "xla_gpu_graph_min_graph_size"
IN_GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE"
"""XLA's default, and loops."""


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

    On a GPU the host decides after every iteration of a loop whether there is another, unless loops are part of CUDA
    graphs, which XLA can do, but not by default. An iteration of CartPole then takes 0.073 ms instead of 0.089, one of
    the hypergrid 0.33 instead of 0.39.
    """
    given = os.environ.get("XLA_FLAGS", "")
    if platform == "cpu":
        return None if LEVEL in given else {LEVEL: 2}
    if platform in ("gpu", "cuda"):
        return None if GRAPHS in given or not _accepts(GRAPHS, IN_GRAPHS) else {GRAPHS: IN_GRAPHS, SMALLEST_GRAPH: 1}
    return None


@cache
def _accepts(option: str, value: str) -> bool:
    """Whether this version of XLA knows an option and its value; one that it does not know is an error."""
    import jax

    try:
        jax.jit(lambda x: x, compiler_options={option: value}).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
