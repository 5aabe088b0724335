"""Schedules over steps: ε of exploration, β of prioritised replay.

Given Python or NumPy numbers, each function returns NumPy; if any argument is a JAX array, traced or not, it returns
JAX. Both convert to float32 first and then do the same operations. They agree up to the last digit: XLA may multiply by
the inverse of a constant instead of dividing by it.

Count steps in int32, not in float32, which cannot count beyond 2²⁴. The conversion here is harmless: up to 2³¹ it
changes a step by at most 64, a relative error of 6e-8.
"""

from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core.types import Array


def linear(start: Array | float, end: Array | float, steps: Array | float, step: Array | int) -> Array:
    """float32: linear from `start` at step 0 to `end` at step `steps`, and constant before and after.

    `steps` = 0 gives `end` at once. The result is monotonic, and within its range up to the last digit.
    """
    xp, (start, end, steps, step) = _as_float32(start, end, steps, step)
    # The remaining fraction, not the elapsed one: so `end` is reached exactly, and equal ends give an exact constant.
    left = xp.clip(steps - step, np.float32(0), steps) / xp.maximum(steps, np.finfo(np.float32).tiny)
    return end + (start - end) * left


def exponential(start: Array | float, end: Array | float, half_life: Array | float, step: Array | int) -> Array:
    """float32: from `start` at step 0 towards `end`; the distance halves every `half_life` steps.

    It is constant before step 0, and `half_life` = 0 gives `end` at once. A factor of e takes `half_life` / 0.693
    steps, and decay by a small fraction d per step is a half-life of 0.693 / d.
    """
    xp, (start, end, half_life, step) = _as_float32(start, end, half_life, step)
    gradual = half_life > 0
    halvings = xp.maximum(step, np.float32(0)) / xp.where(gradual, half_life, np.float32(1))
    return end + (start - end) * xp.where(gradual, xp.exp2(-halvings), np.float32(0))


def _as_float32(*numbers: Array | float) -> tuple[ModuleType, list[Array]]:
    """NumPy or JAX, depending on the arguments, and the arguments as its arrays."""
    xp = jnp if any(isinstance(number, jax.Array) for number in numbers) else np
    return xp, [xp.asarray(number, np.float32) for number in numbers]
