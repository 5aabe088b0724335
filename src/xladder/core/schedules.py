"""Numbers that change with the count of steps: ε of exploring, β of prioritised replay.

Each function takes Python or NumPy numbers on the host, and gives NumPy; if any argument is a JAX array, traced or not,
it gives JAX. Both convert to float32 first and then do the same operations. They agree to the last digit or nearly: XLA
may multiply by the inverse where it should divide by a constant.

Count steps in int32, and not in float32, which cannot count beyond 2²⁴. The conversion here is harmless: up to 2³¹ it
moves a step by at most 64, which is 6e-8 of the way.
"""

from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core.types import Array


def linear(start: Array | float, end: Array | float, steps: Array | float, step: Array | int) -> Array:
    """float32: a straight line from `start` at step 0 to `end` at step `steps`, and level before and after.

    `steps` = 0 is `end` at once. The line never turns back, and but for the last digit never leaves its range.
    """
    xp, (start, end, steps, step) = _as_float32(start, end, steps, step)
    # What is left, not what is done: `end` is then met exactly, and equal ends give an exact constant.
    left = xp.clip(steps - step, np.float32(0), steps) / xp.maximum(steps, np.finfo(np.float32).tiny)
    return end + (start - end) * left


def exponential(start: Array | float, end: Array | float, half_life: Array | float, step: Array | int) -> Array:
    """float32: from `start` at step 0 towards `end`; the distance halves with every `half_life` steps.

    It is level before step 0, and `half_life` = 0 is `end` at once. In other words: a factor e takes
    `half_life` / 0.693 steps, and shrinking by a small part d at every step is a half-life of 0.693 / d.
    """
    xp, (start, end, half_life, step) = _as_float32(start, end, half_life, step)
    gradual = half_life > 0
    halvings = xp.maximum(step, np.float32(0)) / xp.where(gradual, half_life, np.float32(1))
    return end + (start - end) * xp.where(gradual, xp.exp2(-halvings), np.float32(0))


def _as_float32(*numbers: Array | float) -> tuple[ModuleType, list[Array]]:
    """The library that the numbers ask for, and the numbers in it."""
    xp = jnp if any(isinstance(number, jax.Array) for number in numbers) else np
    return xp, [xp.asarray(number, np.float32) for number in numbers]
