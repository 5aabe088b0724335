"""Compilation: of functions that a Python loop calls, and how hard XLA should try."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

LEVEL = "xla_backend_optimization_level"
GPU_OPTIONS = {
    # XLA's default, and loops.
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE",
    "xla_gpu_graph_min_graph_size": 1,
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
}
"""See `options_for`."""


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
    graphs, which XLA can do, but not by default. Nor does it, by default, let kernels of a graph run side by side that
    do not need each other's results. Both together make an iteration of CartPole's DQN take 0.039 ms instead of 0.089,
    with the same bits (docs/benchmarks/speed.md).
    """
    given = os.environ.get("XLA_FLAGS", "")
    if platform == "cpu":
        return None if LEVEL in given else {LEVEL: 2}
    if platform in ("gpu", "cuda"):
        wanted = {name: value for name, value in GPU_OPTIONS.items() if name not in given}
        return _accepted(tuple(wanted.items())) or None
    return None


@cache
def _accepted(options: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """The options that this version of XLA knows, with values that it knows; the others would be errors."""
    if _accepts(options):
        return dict(options)
    return dict(option for option in options if _accepts((option,)))


def _accepts(options: tuple[tuple[str, Any], ...]) -> bool:
    import jax

    try:
        jax.jit(lambda x: x, compiler_options=dict(options)).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
